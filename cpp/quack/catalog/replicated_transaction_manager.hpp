//! Turns COMMIT of a local transaction into: capture its effects, roll it back, let consensus order the entry, wait
//! until the applier has applied it here.
#pragma once

#include "duckdb.hpp"
#include "duckdb/transaction/duck_transaction_manager.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

struct FragmentPlan;
struct GroupTransaction;
enum class PartLayout : uint8_t;
class PartWriters;
class SpoolFile;

class ReplicatedTransactionManager final : public duckdb::DuckTransactionManager {
public:
	ReplicatedTransactionManager(duckdb::AttachedDatabase &database, std::shared_ptr<ReplicaCore> core_p);

	duckdb::Transaction &StartTransaction(duckdb::ClientContext &context) override;
	duckdb::ErrorData CommitTransaction(duckdb::ClientContext &context, duckdb::Transaction &transaction) override;
	void RollbackTransaction(duckdb::Transaction &transaction) override;
	//! CHECKPOINT by a user is refused: what a checkpoint covers decides how far the log may be cut.
	void Checkpoint(duckdb::ClientContext &context, bool force) override;

	//! Used by ReplicatedDatabase; the caller holds the exclusive checkpoint lock.
	void WriteCheckpoint(duckdb::ClientContext &context);

private:
	bool PassThrough(duckdb::ClientContext &context) const;
	duckdb::ErrorData CommitReplicated(duckdb::ClientContext &context, duckdb::DuckTransaction &transaction);
	//! What a transaction changed; bytes of a large one lie in the spool.
	struct Captured {
		std::unique_ptr<SpoolFile> spool;
		std::unique_ptr<PartWriters> parts;
	};
	Captured CaptureChanges(duckdb::DuckTransaction &transaction, const OpenTransaction &open, bool are_reads_hidden);
	Captured CaptureChanges(PartLayout layout, duckdb::DuckTransaction &transaction, const OpenTransaction &open,
	                        bool are_reads_hidden);
	raft::Membership RootMembership() const;
	void AddReads(const OpenTransaction &open, bool are_hidden, PartWriters &parts);
	void CheckPlan(const OpenTransaction &open, const PartWriters &parts) const;
	static raft::LogIndex SnapshotIndex(const OpenTransaction &open, raft::GroupId group);
	std::string FinishPart(const EntryHeader &header, raft::GroupId group, Captured &captured,
	                       FragmentPlan &plan) const;
	GroupTransaction MakeParts(const OpenTransaction &open, EntryHeader header, Captured &captured,
	                           FragmentPlan &plan) const;
	CommitOutcome Commit(duckdb::ClientContext &context, FragmentPlan &plan, const SpoolFile &spool,
	                     std::string payload, GroupTransaction over_groups);
	duckdb::ErrorData Fail(duckdb::ClientContext &context, duckdb::DuckTransaction &transaction, const Status &status);

	std::shared_ptr<ReplicaCore> core;
};

//! The text of a failed commit: "quack <code>: <message> (transaction <request id>)".
std::string CommitErrorText(const CommitOutcome &outcome);

} // namespace catalog
} // namespace quack
