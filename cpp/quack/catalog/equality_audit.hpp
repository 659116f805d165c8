//! Proves, again and again, that this node holds what the others hold: checksums of all objects at one place of the
//! log.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "quack/catalog/checksum_rounds.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

//! One read of all objects outside `__quack` in the open transaction of `connection`. Throws what DuckDB reports;
//! InterruptException soon after the connection was interrupted.
std::vector<ObjectHash> HashState(duckdb::Connection &connection, duckdb::AttachedDatabase &database);

//! DESIGN.md, "Proof of equality". The leader's audit puts marks into the log; every node's hashes what it held there
//! and puts the result into the log.
class EqualityAudit {
public:
	explicit EqualityAudit(ReplicaCore &core_p);
	~EqualityAudit();

	//! The engine is set. Once.
	void Start();
	//! Interrupts what is under way and joins. Idempotent.
	void Stop();

	//! Apply thread, when exactly the entries up to `index` are applied: takes a snapshot, no more.
	void OnMark(raft::LogIndex index);
	//! Apply thread. Latches this node when a majority of the voters says that it is wrong.
	void OnReport(ChecksumReport report);
	//! Apply thread, after the state was replaced by an image: what this node reported before is no longer about it.
	void OnInstalled();

	std::vector<ChecksumRow> Rows() const;

private:
	//! A mark that waits for, or is under, the hashing of its snapshot.
	struct Task {
		raft::LogIndex index = 0;
		MonotonicNs started = 0;
		std::string refusal; //! why there is no snapshot; else empty
		std::unique_ptr<duckdb::Connection> connection;
		duckdb::shared_ptr<duckdb::AttachedDatabase> database;
	};

	void Run();
	MonotonicNs NextMark() const;
	void ProposeMark();
	void Hash();
	//! Fills in objects, or failure, and the cost.
	void HashSnapshot(ChecksumReport &report);
	void Propose(const std::string &content);
	void LatchThisNode(const ObjectVerdict &verdict, raft::LogIndex index);
	std::vector<std::string> Voters() const;

	ReplicaCore &core;
	SystemClock clock;
	mutable std::mutex lock; //! guards the fields below
	std::condition_variable changed;
	bool is_stopping = false;
	std::unique_ptr<Task> task; //! null = idle
	ChecksumRounds rounds;
	MonotonicNs last_mark = 0;
	//! Until then another round would exceed this node's share of CPU time, whoever asks.
	MonotonicNs rested_at = 0;
	std::thread thread;
	raft::LogIndex installed_index = 0; //! apply thread only
};

} // namespace catalog
} // namespace quack
