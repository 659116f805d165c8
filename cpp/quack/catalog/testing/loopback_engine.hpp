//! A consensus engine for tests: one log per group and process, shared by any number of replicas, applied to each by
//! the replica's own thread in an order that only keeps what node::ApplyOrder promises. Can keep the logs in a file, so
//! that a killed process replays them.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "quack/node/apply_order.hpp"
#include "quack/node/consensus_engine.hpp"
#include "quack/node/state_machine.hpp"

namespace quack {
namespace catalog {

//! The shared log. Thread-safe.
class LoopbackLog {
public:
	//! Empty path = memory only. An existing file is read back; a torn tail is dropped.
	explicit LoopbackLog(const std::string &path);
	~LoopbackLog();

	//! The log of this path in this process ("" + name for memory logs).
	static std::shared_ptr<LoopbackLog> Named(const std::string &name, const std::string &path);

	raft::LogIndex Append(SharedBytes payload, raft::EntryType type = raft::EntryType::Normal,
	                      raft::GroupId group = raft::ROOT_GROUP);
	raft::LogIndex LastIndex(raft::GroupId group = raft::ROOT_GROUP) const;
	//! Entries of the group in (after, after + max].
	std::vector<raft::Entry> Read(raft::GroupId group, raft::LogIndex after, size_t max) const;
	//! Waits up to `timeout` for a next Append.
	void Await(uint64_t &seen, MonotonicNs timeout);
	void Wake();

private:
	void Store(raft::GroupId group, const raft::Entry &entry);

	mutable std::mutex lock;
	std::condition_variable changed;
	std::map<raft::GroupId, std::vector<raft::Entry>> groups;
	uint64_t appended = 0;
	int file = -1;
};

class LoopbackEngine final : public node::ConsensusEngine {
public:
	LoopbackEngine(node::StateMachine &machine, std::shared_ptr<LoopbackLog> log, std::string node_id);
	~LoopbackEngine() override;

	Status Start() override;
	void Stop(MonotonicNs timeout) override;
	void Propose(raft::GroupId group, SharedBytes payload, MonotonicNs timeout, ProposeCallback done) override;
	void ReadBarriers(const std::vector<raft::GroupId> &groups, MonotonicNs timeout, PositionsCallback done) override;
	Status WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) override;
	void TransferLeadership(raft::GroupId group, const std::string &target, MonotonicNs timeout,
	                        TextCallback done) override;
	std::vector<node::GroupStatus> GetStatus() const override;
	Result<raft::Membership> RootMembership() const override;
	void LatchDegraded(const std::string &reason) override;
	bool IsDegraded() const override;

	//! Entries of these groups are not handed in, and those of others come in an order drawn from `seed`.
	void HoldBack(std::set<raft::GroupId> groups, uint64_t seed);
	//! Stops and resumes applying, without stopping proposals: the replica falls behind.
	void SetPaused(bool paused);
	//! `count` proposals, after `skip` that go through: "unavailable" (not appended), "unknown" (appended, answered
	//! OutcomeUnknown), "lost" (not appended, answered OutcomeUnknown), "twice" (appended twice).
	void InjectFault(const std::string &kind, int count, int skip = 0);
	//! How many entries at most go into one Apply call.
	void SetBatch(size_t entries);
	//! What GetStatus says about the root group.
	void SetGroup(std::vector<std::string> voters, bool is_leader);
	//! Runs `work` between two Apply calls.
	Status OnApplyThread(const std::function<Status()> &work);

private:
	void Run();
	Status ApplyOnce();
	void HandIn(size_t max);
	std::string TakeFault();

	node::StateMachine &machine;
	std::shared_ptr<LoopbackLog> log;
	std::string node_id;
	std::thread thread;
	mutable std::mutex lock;
	std::condition_variable changed;
	std::mutex apply_lock;
	bool stopping = false;
	bool paused = false;
	bool started = false;
	size_t batch = 1024;
	std::string degraded;
	std::vector<std::string> voters;
	bool is_leader = false;
	std::string fault;
	int fault_count = 0;
	int fault_skip = 0;
	//! Apply thread only.
	node::ApplyOrder order;
	std::map<raft::GroupId, raft::LogIndex> handed_in;
	uint64_t groups_version = UINT64_MAX;
	uint64_t seen = 0;
	//! Guarded by `lock`.
	std::set<raft::GroupId> held_back;
	bool is_shuffled = false;
	std::mt19937_64 random {std::random_device {}()};
};

} // namespace catalog
} // namespace quack
