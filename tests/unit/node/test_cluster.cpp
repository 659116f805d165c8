#include "unit/node/test_cluster.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include <doctest/doctest.h>

namespace quack {
namespace test {

bool WaitUntil(const std::function<bool()> &condition, MonotonicNs patience) {
	SystemClock clock;
	auto deadline = clock.Now() + patience;
	while (!condition()) {
		if (clock.Now() > deadline) {
			return false;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(2));
	}
	return true;
}

TemporaryDirectory::TemporaryDirectory() {
	auto pattern = (std::filesystem::temp_directory_path() / "quack-node-XXXXXX").string();
	path = mkdtemp(pattern.data());
}

TemporaryDirectory::~TemporaryDirectory() {
	std::error_code ignored;
	std::filesystem::remove_all(path, ignored);
}

TestCluster::TestCluster(size_t count, const Adjust &adjust) {
	std::vector<node::MemberConfig> members;
	for (size_t i = 0; i < count; i++) {
		node::MemberConfig member;
		member.node_id = "n" + std::to_string(i);
		member.incarnation = 1;
		member.host = "127.0.0.1";
		members.push_back(member);
	}
	for (size_t i = 0; i < count; i++) {
		auto node = std::make_unique<TestNode>();
		node->name = members[i].node_id;
		node->config.cluster_id = "test-cluster";
		node->config.node_id = node->name;
		node->config.members = members;
		node->config.duckdb_version = "v2.0.1";
		node->config.storage_version = 68;
		node->config.temp_dir = directory.path + "/" + node->name + "/incoming";
		node->config.log_dir = directory.path + "/" + node->name + "/log";
		if (adjust) {
			adjust(node->config);
		}
		nodes.push_back(std::move(node));
	}
}

TestCluster::~TestCluster() {
	for (size_t i = 0; i < nodes.size(); i++) {
		Kill(i);
	}
}

std::unique_ptr<storage::LogStore> TestCluster::OpenLog(TestNode &node) {
	return node.log ? std::move(node.log) : std::make_unique<FaultyLog>();
}

std::unique_ptr<transport::Transport> TestCluster::MakeTransport(TestNode &node) {
	return network.Make(node.name, *node.gateway);
}

void TestCluster::Start(size_t index) {
	auto &node = *nodes[index];
	node.log = OpenLog(node);
	node.state_machine = std::make_unique<MemoryStateMachine>(node.disk);
	node.gateway = std::make_unique<node::PeerGateway>(node.config);
	node.transport = MakeTransport(node);
	node.engine = std::make_unique<node::RaftEngine>(node.config, *node.log, *node.transport, *node.gateway,
	                                                 *node.state_machine, clock);
	auto status = node.engine->Start();
	REQUIRE_MESSAGE(status.IsOk(), status.ToString());
}

void TestCluster::StartAll() {
	for (size_t i = 0; i < nodes.size(); i++) {
		Start(i);
	}
}

void TestCluster::Kill(size_t index) {
	auto &node = *nodes[index];
	if (node.IsRunning()) {
		node.state_machine->Hold(false);
		node.engine->Abort();
		node.engine.reset();
		node.transport.reset();
		node.gateway.reset();
		node.state_machine.reset();
	}
}

void TestCluster::StopGracefully(size_t index) {
	auto &node = *nodes[index];
	node.engine->Stop(PATIENCE);
	node.engine.reset();
	node.transport.reset();
	node.gateway.reset();
	node.state_machine.reset();
}

node::GroupStatus TestCluster::StatusOf(size_t index, raft::GroupId group) {
	for (auto &row : nodes[index]->engine->GetStatus()) {
		if (row.group == group) {
			return row;
		}
	}
	return node::GroupStatus();
}

size_t TestCluster::WaitForLeader(raft::GroupId group) {
	size_t leader = SIZE_MAX;
	WaitUntil([&] {
		raft::Term newest = 0;
		leader = SIZE_MAX;
		for (size_t i = 0; i < nodes.size(); i++) {
			if (!nodes[i]->IsRunning()) {
				continue;
			}
			auto row = StatusOf(i, group);
			if (row.term > newest) {
				newest = row.term;
				leader = SIZE_MAX;
			}
			if (row.is_leader && row.term == newest && row.linearizable_read_safe) {
				leader = i;
			}
		}
		return leader != SIZE_MAX;
	});
	return leader;
}

raft::LogIndex TestCluster::CreateGroup(size_t index, raft::GroupId group, const std::string &name) {
	auto outcome = Propose(index, "create " + std::to_string(group) + " " + name);
	REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
	size_t running = 0;
	for (auto &node : nodes) {
		running += node->IsRunning() ? 1 : 0;
	}
	REQUIRE(WaitUntil([&] { return RunsOn(group, running); }));
	REQUIRE(WaitForLeader(group) != SIZE_MAX);
	return outcome.index;
}

bool TestCluster::RunsOn(raft::GroupId group, size_t count) {
	size_t found = 0;
	for (size_t i = 0; i < nodes.size(); i++) {
		found += nodes[i]->IsRunning() && StatusOf(i, group).group == group && !StatusOf(i, group).role.empty() ? 1 : 0;
	}
	return found == count;
}

node::ProposeOutcome TestCluster::Propose(size_t index, const std::string &payload, MonotonicNs timeout,
                                          raft::GroupId group) {
	auto promise = std::make_shared<std::promise<node::ProposeOutcome>>();
	auto future = promise->get_future();
	nodes[index]->engine->Propose(group, MakeSharedBytes(payload), timeout,
	                              [promise](const node::ProposeOutcome &outcome) { promise->set_value(outcome); });
	return future.get();
}

Result<raft::LogIndex> TestCluster::ReadBarrier(size_t index, MonotonicNs timeout) {
	auto promise = std::make_shared<std::promise<Result<raft::LogIndex>>>();
	auto future = promise->get_future();
	nodes[index]->engine->ReadBarrier(raft::ROOT_GROUP, timeout, [promise](Result<raft::LogIndex> result) {
		promise->set_value(std::move(result));
	});
	return future.get();
}

Result<std::vector<node::Position>> TestCluster::ReadBarriers(size_t index, const std::vector<raft::GroupId> &groups,
                                                              MonotonicNs timeout) {
	auto promise = std::make_shared<std::promise<Result<std::vector<node::Position>>>>();
	auto future = promise->get_future();
	nodes[index]->engine->ReadBarriers(groups, timeout, [promise](Result<std::vector<node::Position>> result) {
		promise->set_value(std::move(result));
	});
	return future.get();
}

Result<std::string> TestCluster::Transfer(size_t index, const std::string &target, MonotonicNs timeout) {
	auto promise = std::make_shared<std::promise<Result<std::string>>>();
	auto future = promise->get_future();
	nodes[index]->engine->TransferLeadership(raft::ROOT_GROUP, target, timeout, [promise](Result<std::string> leader) {
		promise->set_value(std::move(leader));
	});
	return future.get();
}

Result<std::string> TestCluster::ChangeMember(size_t index, node::MemberAction action, const std::string &name,
                                              MonotonicNs timeout) {
	auto promise = std::make_shared<std::promise<Result<std::string>>>();
	auto future = promise->get_future();
	node::MemberChange change;
	change.action = action;
	change.name = name;
	nodes[index]->engine->ChangeMember(raft::ROOT_GROUP, change, timeout,
	                                   [promise](Result<std::string> words) { promise->set_value(std::move(words)); });
	return future.get();
}

bool TestCluster::AllHold(const std::vector<std::string> &values) {
	return WaitUntil([&] {
		for (auto &node : nodes) {
			if (node->IsRunning() && node->state_machine->Values() != values) {
				return false;
			}
		}
		return true;
	});
}

} // namespace test
} // namespace quack
