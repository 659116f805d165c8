//! Several engines in one process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quack/node/raft_engine.hpp"
#include "unit/node/faulty_log.hpp"
#include "unit/node/memory_network.hpp"
#include "unit/node/memory_state_machine.hpp"

namespace quack {
namespace test {

constexpr MonotonicNs PATIENCE = 30 * NS_PER_SECOND; //! how long a condition that must come true may take

//! Polls until `condition` holds; false when `patience` passes first.
bool WaitUntil(const std::function<bool()> &condition, MonotonicNs patience = PATIENCE);

//! A directory that goes with the object.
class TemporaryDirectory {
public:
	TemporaryDirectory();
	~TemporaryDirectory();
	std::string path;
};

struct TestNode {
	std::string name;
	node::RaftEngineConfig config;
	std::shared_ptr<ListDisk> disk = std::make_shared<ListDisk>();
	std::unique_ptr<storage::LogStore> log;
	std::unique_ptr<node::PeerGateway> gateway;
	std::unique_ptr<transport::Transport> transport;
	std::unique_ptr<MemoryStateMachine> state_machine;
	std::unique_ptr<node::RaftEngine> engine;

	bool IsRunning() const {
		return engine != nullptr;
	}
	FaultyLog &Faults() {
		return static_cast<FaultyLog &>(*log);
	}
};

class TestCluster {
public:
	using Adjust = std::function<void(node::RaftEngineConfig &)>;

	//! Nodes n0, n1, ...; `adjust` may change each one's settings.
	explicit TestCluster(size_t count, const Adjust &adjust = Adjust());
	virtual ~TestCluster();

	virtual void Start(size_t node);
	void StartAll();
	//! Without farewell; log and disk stay.
	void Kill(size_t node);
	void StopGracefully(size_t node);

	//! The running node that leads by its own word and holds the newest term; waits for one. SIZE_MAX when none comes.
	size_t WaitForLeader(raft::GroupId group = raft::ROOT_GROUP);
	//! By an entry through that node; waits until every running node has it and one leads it. The index of the entry.
	raft::LogIndex CreateGroup(size_t node, raft::GroupId group, const std::string &name);
	//! The running nodes that have the group in their status; all of them = `count`.
	bool RunsOn(raft::GroupId group, size_t count);
	node::ProposeOutcome Propose(size_t node, const std::string &payload, MonotonicNs timeout = PATIENCE,
	                             raft::GroupId group = raft::ROOT_GROUP);
	Result<raft::LogIndex> ReadBarrier(size_t node, MonotonicNs timeout = PATIENCE);
	Result<std::vector<node::Position>> ReadBarriers(size_t node, const std::vector<raft::GroupId> &groups,
	                                                 MonotonicNs timeout = PATIENCE);
	//! The name of the leader.
	Result<std::string> Transfer(size_t node, const std::string &target, MonotonicNs timeout = PATIENCE);
	Result<std::string> ChangeMember(size_t node, node::MemberAction action, const std::string &name,
	                                 MonotonicNs timeout = PATIENCE);
	node::GroupStatus StatusOf(size_t node, raft::GroupId group = raft::ROOT_GROUP);
	//! All running nodes hold exactly these values, in this order; waits.
	bool AllHold(const std::vector<std::string> &values);

	TemporaryDirectory directory;
	MemoryNetwork network;
	SystemClock clock;
	std::vector<std::unique_ptr<TestNode>> nodes;

protected:
	virtual std::unique_ptr<storage::LogStore> OpenLog(TestNode &node);
	virtual std::unique_ptr<transport::Transport> MakeTransport(TestNode &node);
};

} // namespace test
} // namespace quack
