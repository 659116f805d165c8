//! The local transactions of the replicated catalog that are open on this node, so that the applier can abort one that
//! holds what a committed entry needs.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "duckdb.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/catalog/placement_request.hpp"
#include "quack/catalog/position_text.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace catalog {

struct TransactionInfo;

struct OpenTransaction {
	//! Unique; an address is not, it is used again as soon as a transaction has ended.
	uint64_t number = 0;
	duckdb::weak_ptr<duckdb::ClientContext> context;
	//! Catalog version and root index applied before the snapshot was taken.
	raft::LogIndex planned_version = 0;
	raft::LogIndex snapshot_index = 0;
	//! Applied before the snapshot was taken, in all groups.
	std::shared_ptr<const AppliedVector> snapshot;
	//! Tables that get another place at COMMIT, by key.
	std::map<std::string, std::pair<ObjectName, PlacementRequest>> placed;
	//! Pairs of tables that must live in one group then.
	std::vector<std::pair<ObjectName, ObjectName>> joined;
	MonotonicNs opened_at = 0;
	//! What it read is checked at commit; `read` holds the tables by key.
	bool is_serializable = false;
	std::map<std::string, ObjectName> read;
	//! Its effects are being read at COMMIT; it will be gone in a moment. Never lock its session: the session holds its
	//! own lock while it waits for the applier.
	bool committing = false;
	//! Chosen for eviction: its COMMIT must fail at once instead of waiting for the applier, who waits for its session.
	Status doomed;
	//! Keys of tables that its statements were planned to write. Incomplete: DDL and re-executed prepared statements
	//! are not seen; empty means unknown.
	std::map<std::string, ObjectName> written;
};

//! Whom an eviction takes.
struct EvictionScope {
	bool readers_too = false;
	//! Only those that were opened before this moment; 0 = whenever.
	MonotonicNs opened_before = 0;
	//! Only writers of these tables (ObjectName::Key) and writers of unknown ones; empty = all writers.
	std::set<std::string> tables;
};

//! While it lives, transactions that this thread starts do not wait for consensus: the applier replaces an evicted
//! transaction by an empty one and must not wait for itself.
class NoBarrierScope {
public:
	NoBarrierScope();
	~NoBarrierScope();
	NoBarrierScope(const NoBarrierScope &) = delete;
	NoBarrierScope &operator=(const NoBarrierScope &) = delete;
	static bool Active();
};

//! Thread-safe.
class TransactionRegistry {
public:
	void Add(duckdb::DuckTransaction &transaction, OpenTransaction open);
	//! Marks it committing and returns what is known about it.
	OpenTransaction BeginCommit(duckdb::DuckTransaction &transaction);
	//! It ends now. It holds what it held until EndingDone: evictions wait for that. Its address may be reused after.
	void BeginEnding(duckdb::DuckTransaction &transaction);
	void EndingDone();

	//! What is applied in the transaction's snapshot, at least.
	std::shared_ptr<const AppliedVector> SnapshotOf(duckdb::DuckTransaction &transaction);
	void NoteRead(duckdb::DuckTransaction &transaction, const ObjectName &table);
	void NoteWrite(duckdb::DuckTransaction &transaction, const ObjectName &table);
	//! At its COMMIT the table gets another place; the last wish for a table counts.
	void NotePlacement(duckdb::DuckTransaction &transaction, const ObjectName &table, PlacementRequest request);
	bool HasPlacements(duckdb::DuckTransaction &transaction);
	//! What NotePlacement noted for the table, if anything.
	std::optional<PlacementRequest> PlacementOf(duckdb::DuckTransaction &transaction, const ObjectName &table);
	//! At its COMMIT the two tables, which a foreign key joins, must live in one group.
	void NoteForeignKey(duckdb::DuckTransaction &transaction, const ObjectName &table, const ObjectName &other);

	//! Aborts open transactions of `database`, and waits for those that are ending anyway. Their sessions see `reason`
	//! (SessionState::Doomed), at the latest at COMMIT. Returns how many were aborted.
	size_t Evict(duckdb::AttachedDatabase &database, const EvictionScope &scope, const Status &reason);

	//! Oldest first; `holds_checkpoint` is not filled in.
	std::vector<TransactionInfo> List();
	//! None is open or ending.
	bool IsEmpty();
	//! For messages: the oldest ones, with connection, age and what they write.
	std::string DescribeOldest(MonotonicNs now);

	//! While closed, no local transaction starts: the applier retries and must not lose the race for a row again.
	void CloseGate();
	void OpenGate();
	//! Blocks while the gate is closed. Throws InterruptException when the session is interrupted.
	void WaitAtGate(duckdb::ClientContext &context);

private:
	struct Victim {
		duckdb::shared_ptr<duckdb::ClientContext> context;
		duckdb::DuckTransaction *transaction;
		uint64_t number;
	};

	bool EvictOne(duckdb::AttachedDatabase &database, const Victim &victim, const Status &reason);
	bool IsOpen(const Victim &victim);
	void WaitForEnding();

	std::mutex lock;
	std::condition_variable changed;
	std::unordered_map<duckdb::DuckTransaction *, OpenTransaction> open_transactions;
	uint64_t last_number = 0;
	size_t ending = 0;
	bool gate_closed = false;
};

//! Keeps local transactions from starting, once closed.
class GateScope {
public:
	explicit GateScope(TransactionRegistry &registry_p) : registry(registry_p) {
	}
	~GateScope() {
		Open();
	}
	GateScope(const GateScope &) = delete;
	GateScope &operator=(const GateScope &) = delete;
	void Close() {
		closed = true;
		registry.CloseGate();
	}
	void Open() {
		if (closed) {
			closed = false;
			registry.OpenGate();
		}
	}

private:
	TransactionRegistry &registry;
	bool closed = false;
};

//! A transaction ends in DuckDB while this lives.
class EndingScope {
public:
	EndingScope(TransactionRegistry &registry_p, duckdb::DuckTransaction &transaction) : registry(registry_p) {
		registry.BeginEnding(transaction);
	}
	~EndingScope() {
		registry.EndingDone();
	}
	EndingScope(const EndingScope &) = delete;
	EndingScope &operator=(const EndingScope &) = delete;

private:
	TransactionRegistry &registry;
};

} // namespace catalog
} // namespace quack
