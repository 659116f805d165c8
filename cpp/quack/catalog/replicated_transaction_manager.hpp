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
	std::unique_ptr<PartWriters> MakeWriters(SpoolFile &spool);
	raft::Membership RootMembership() const;
	void AddReads(const OpenTransaction &open, bool are_hidden, PartWriters &parts);
	void CheckPlan(const OpenTransaction &open, const PartWriters &parts) const;
	static raft::LogIndex SnapshotIndex(const OpenTransaction &open, raft::GroupId group);
	static GroupTransaction MakeParts(const OpenTransaction &open, EntryHeader header, PartWriters &parts);
	CommitOutcome Commit(duckdb::ClientContext &context, FragmentPlan &plan, const SpoolFile &spool,
	                     std::string payload, GroupTransaction over_groups);
	CommitOutcome CommitLarge(duckdb::ClientContext &context, FragmentPlan &plan, const SpoolFile &spool,
	                          std::string end_payload);
	duckdb::ErrorData Fail(duckdb::ClientContext &context, duckdb::DuckTransaction &transaction, const Status &status);

	std::shared_ptr<ReplicaCore> core;
};

//! The text of a failed commit: "quack <code>: <message> (transaction <request id>)".
std::string CommitErrorText(const CommitOutcome &outcome);

} // namespace catalog
} // namespace quack
