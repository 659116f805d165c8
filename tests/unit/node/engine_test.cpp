//! Goal: one engine alone and three together over a network in memory do what consensus_engine.hpp says, also when
//! nodes die, links break, disks fill and appliers fail. Method: real cores and threads, faults on demand, conditions
//! with deadlines.
#include <future>

#include <doctest/doctest.h>

#include "unit/node/test_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

//! Proposes values first..last through `node` and requires each to commit.
void ProposeRange(TestCluster &cluster, size_t node, int first, int last, std::vector<std::string> &values) {
	for (auto i = first; i <= last; i++) {
		auto value = "v" + std::to_string(i);
		auto outcome = cluster.Propose(node, value);
		REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
		values.push_back(value);
	}
}

size_t Other(const TestCluster &cluster, size_t node) {
	return (node + 1) % cluster.nodes.size();
}

} // namespace

TEST_CASE("a single node elects itself, commits and applies; status fills every field") {
	TestCluster cluster(1);
	cluster.StartAll();
	std::vector<std::string> values;
	ProposeRange(cluster, 0, 1, 20, values);
	auto read = cluster.ReadBarrier(0);
	REQUIRE(read.IsOk());
	CHECK(read.Value() >= 21);
	REQUIRE(cluster.nodes[0]->engine->WaitApplied(raft::ROOT_GROUP, read.Value(), PATIENCE).IsOk());
	CHECK(cluster.nodes[0]->state_machine->Values() == values);
	auto row = cluster.StatusOf(0);
	CHECK(row.cluster_id == "test-cluster");
	CHECK(row.group_name == "root");
	CHECK(row.role == "leader");
	CHECK(row.is_leader);
	CHECK(row.leader_id == "n0");
	CHECK(row.voters == std::vector<std::string> {"n0"});
	CHECK(row.term >= 1);
	CHECK(row.commit_index == 21);
	CHECK(row.applied_index == 21);
	CHECK(row.last_log_index == 21);
	CHECK(row.durable_index == 21);
	CHECK(row.lease == "valid");
	CHECK(row.linearizable_read_safe);
	CHECK(!row.degraded);
	CHECK(row.reason == "");
	CHECK(row.proposal_queue_count == 0);
}

TEST_CASE("three nodes: proposals through every node commit and reach all in one order") {
	TestCluster cluster(3);
	cluster.StartAll();
	REQUIRE(cluster.WaitForLeader() != SIZE_MAX);
	std::vector<std::string> values;
	for (size_t node = 0; node < 3; node++) {
		ProposeRange(cluster, node, static_cast<int>(node) * 10, static_cast<int>(node) * 10 + 9, values);
	}
	CHECK(cluster.AllHold(values));
}

TEST_CASE("a killed leader is replaced, nothing acknowledged is lost, and it catches up from the log") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	ProposeRange(cluster, leader, 1, 10, values);
	cluster.Kill(leader);
	auto survivor = Other(cluster, leader);
	auto begun = cluster.clock.Now();
	ProposeRange(cluster, survivor, 11, 11, values);
	MESSAGE("first write after the kill: ", (cluster.clock.Now() - begun) / NS_PER_MS, " ms");
	ProposeRange(cluster, survivor, 12, 30, values);
	cluster.Start(leader);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[leader]->state_machine->InstallCount() == 0);
}

TEST_CASE("leadership moves to the named node, to any when none is named, and a follower passes the wish on") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto target = Other(cluster, leader);
	auto status = cluster.Transfer(leader, cluster.nodes[target]->name);
	REQUIRE_MESSAGE(status.IsOk(), status.GetStatus().ToString());
	CHECK(status.Value() == cluster.nodes[target]->name);
	CHECK(WaitUntil([&] { return cluster.WaitForLeader() == target; }));
	auto asker = leader;
	auto third = 3 - leader - target;
	status = cluster.Transfer(asker, cluster.nodes[third]->name);
	REQUIRE_MESSAGE(status.IsOk(), status.GetStatus().ToString());
	CHECK(status.Value() == cluster.nodes[third]->name);
	CHECK(WaitUntil([&] { return cluster.WaitForLeader() == third; }));
	status = cluster.Transfer(third, "");
	REQUIRE_MESSAGE(status.IsOk(), status.GetStatus().ToString());
	CHECK(status.Value() != cluster.nodes[third]->name);
	CHECK(WaitUntil([&] { return cluster.WaitForLeader() != third; }));
	CHECK(cluster.Transfer(0, "nobody").GetStatus().Code() == ErrorCode::NotFound);
	std::vector<std::string> values;
	ProposeRange(cluster, 0, 1, 5, values);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("a graceful stop hands leadership over, takes a last checkpoint, and the node comes back from it") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	ProposeRange(cluster, leader, 1, 10, values);
	auto term = cluster.StatusOf(leader).term;
	cluster.StopGracefully(leader);
	auto successor = cluster.WaitForLeader();
	REQUIRE(successor != SIZE_MAX);
	CHECK(cluster.StatusOf(successor).term == term + 1);
	CHECK(cluster.nodes[leader]->disk->checkpoint.values == values);
	ProposeRange(cluster, successor, 11, 15, values);
	cluster.Start(leader);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("read barriers cover every acknowledged write, on the leader and on followers") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	for (int round = 0; round < 5; round++) {
		ProposeRange(cluster, leader, round, round, values);
		for (size_t node = 0; node < 3; node++) {
			auto read = cluster.ReadBarrier(node);
			REQUIRE_MESSAGE(read.IsOk(), read.GetStatus().ToString());
			REQUIRE(cluster.nodes[node]->engine->WaitApplied(raft::ROOT_GROUP, read.Value(), PATIENCE).IsOk());
			CHECK(cluster.nodes[node]->state_machine->Values() == values);
		}
	}
}

TEST_CASE("a membership change removes a voter, keeps one as learner, and brings it back") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto out = Other(cluster, leader);
	std::vector<std::string> voters;
	for (auto &node : cluster.nodes) {
		if (node->name != cluster.nodes[out]->name) {
			voters.push_back(node->name);
		}
	}
	auto name = cluster.nodes[out]->name;
	// A leader that has just begun has not heard from everybody yet, and refuses.
	Result<std::string> done = std::string();
	WaitUntil([&] {
		done = cluster.ChangeMember(out, node::MemberAction::Demote, name);
		return done.IsOk() || done.GetStatus().Code() != ErrorCode::Unavailable;
	});
	REQUIRE_MESSAGE(done.IsOk(), done.GetStatus().ToString());
	CHECK(done.Value() == "node '" + name + "' is a learner");
	CHECK(WaitUntil([&] {
		auto row = cluster.StatusOf(out);
		return row.role == "learner" && !row.membership_change_in_progress && row.voters == voters &&
		       row.learners == std::vector<std::string> {name};
	}));
	std::vector<std::string> values;
	ProposeRange(cluster, out, 1, 5, values);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.Transfer(out, name).GetStatus().Code() == ErrorCode::InvalidArgument);
	done = cluster.ChangeMember(leader, node::MemberAction::Promote, name);
	REQUIRE_MESSAGE(done.IsOk(), done.GetStatus().ToString());
	CHECK(WaitUntil([&] { return cluster.StatusOf(out).role == "follower"; }));
	CHECK(cluster.ChangeMember(leader, node::MemberAction::Promote, name).Value().find("already") != std::string::npos);
	CHECK(cluster.ChangeMember(leader, node::MemberAction::Remove, "stranger").GetStatus().Code() ==
	      ErrorCode::NotFound);
	CHECK(cluster.ChangeMember(leader, node::MemberAction::Add, "stranger").GetStatus().Code() == ErrorCode::NotFound);
}

TEST_CASE("two groups run side by side, each with its own log and leader") {
	constexpr raft::GroupId SECOND = 2;
	TestCluster cluster(3);
	cluster.StartAll();
	cluster.CreateGroup(0, SECOND, "second");
	for (int i = 0; i < 10; i++) {
		REQUIRE(cluster.Propose(0, "root", PATIENCE).status.IsOk());
		REQUIRE(cluster.Propose(1, "second", PATIENCE, SECOND).status.IsOk());
	}
	CHECK(WaitUntil([&] {
		for (auto &node : cluster.nodes) {
			if (node->state_machine->Values().size() != 21) {
				return false;
			}
		}
		return true;
	}));
	CHECK(cluster.Propose(0, "x", PATIENCE, 99).status.Code() == ErrorCode::NotFound);

	for (size_t node = 0; node < 3; node++) {
		auto positions = cluster.ReadBarriers(node, {});
		REQUIRE_MESSAGE(positions.IsOk(), positions.GetStatus().ToString());
		REQUIRE(positions.Value().size() == 2);
		CHECK(positions.Value()[0].group == raft::ROOT_GROUP);
		CHECK(positions.Value()[0].index >= 11);
		CHECK(positions.Value()[1].group == SECOND);
		CHECK(positions.Value()[1].index >= 11);
		auto chosen = cluster.ReadBarriers(node, {SECOND, raft::ROOT_GROUP});
		REQUIRE(chosen.IsOk());
		CHECK(chosen.Value()[0].group == SECOND);
		CHECK(cluster.ReadBarriers(node, {SECOND, 99}).GetStatus().Message() == "group 99 does not exist on this node");
	}
}

TEST_CASE("an entry is applied after what it needs in another group, and the others do not wait for it") {
	constexpr raft::GroupId SECOND = 2;
	TestCluster cluster(1);
	cluster.StartAll();
	cluster.CreateGroup(0, SECOND, "second");
	auto root = cluster.Propose(0, "root");
	REQUIRE(root.status.IsOk());
	auto need = "1:" + std::to_string(root.index + 2);
	auto second = cluster.Propose(0, "after " + need + " second", PATIENCE, SECOND);
	REQUIRE(second.status.IsOk());
	auto status = cluster.nodes[0]->engine->WaitApplied(SECOND, second.index, 50 * NS_PER_MS);
	CHECK(status.Code() == ErrorCode::DeadlineExceeded);
	REQUIRE(cluster.Propose(0, "goes on").status.IsOk());
	CHECK(cluster.AllHold({"create 2 second", "root", "goes on"}));
	auto words = "index " + std::to_string(second.index) + " of group 2 waits for index " +
	             std::to_string(root.index + 2) + " of group 1, which is applied up to " +
	             std::to_string(root.index + 1);
	CHECK(WaitUntil([&] { return cluster.StatusOf(0, SECOND).reason == words; }));
	auto row = cluster.StatusOf(0, SECOND);
	CHECK(row.apply_queue_count == 1);
	CHECK(row.apply_queue_bytes > 0);
	CHECK(cluster.StatusOf(0).apply_queue_count == 0);
	CHECK(cluster.StatusOf(0).reason.empty());
	REQUIRE(cluster.Propose(0, "needed").status.IsOk());
	CHECK(cluster.AllHold({"create 2 second", "root", "goes on", "needed", "after " + need + " second"}));
	CHECK(WaitUntil([&] { return cluster.StatusOf(0, SECOND).apply_queue_count == 0; }));
	CHECK(cluster.StatusOf(0, SECOND).reason.empty());
}

TEST_CASE("entries that wait for each other latch the node with words that name them") {
	constexpr raft::GroupId SECOND = 2;
	TestCluster cluster(1);
	cluster.StartAll();
	cluster.CreateGroup(0, SECOND, "second");
	REQUIRE(cluster.Propose(0, "after 2:1000 here", PATIENCE).status.IsOk());
	CHECK(!cluster.nodes[0]->engine->IsDegraded());
	REQUIRE(cluster.Propose(0, "after 1:1000 there", PATIENCE, SECOND).status.IsOk());
	CHECK(WaitUntil([&] { return cluster.nodes[0]->engine->IsDegraded(); }));
	CHECK(cluster.StatusOf(0).reason.find("committed entries wait for each other") != std::string::npos);
}

TEST_CASE("starting twice with the same log and state gives the same state; a state without its log is refused") {
	TestCluster cluster(1);
	cluster.StartAll();
	std::vector<std::string> values;
	ProposeRange(cluster, 0, 1, 10, values);
	cluster.Kill(0);
	cluster.Start(0);
	CHECK(cluster.AllHold(values));
	ProposeRange(cluster, 0, 11, 12, values);
	cluster.StopGracefully(0);
	cluster.Start(0);
	CHECK(cluster.AllHold(values));
	cluster.StopGracefully(0);

	FaultyLog empty;
	MemoryStateMachine state_machine(cluster.nodes[0]->disk);
	node::PeerGateway gateway(cluster.nodes[0]->config);
	auto transport = cluster.network.Make("n0", gateway);
	node::RaftEngine engine(cluster.nodes[0]->config, empty, *transport, gateway, state_machine, cluster.clock);
	auto status = engine.Start();
	CHECK(status.Code() == ErrorCode::Corruption);
	CHECK(status.Message().find("its votes are lost") != std::string::npos);
}

TEST_CASE("bad configurations are refused with the fix") {
	auto start = [](const TestCluster::Adjust &adjust) {
		TestCluster cluster(1, adjust);
		FaultyLog log;
		MemoryStateMachine state_machine(cluster.nodes[0]->disk);
		node::PeerGateway gateway(cluster.nodes[0]->config);
		auto transport = cluster.network.Make("n0", gateway);
		return node::RaftEngine(cluster.nodes[0]->config, log, *transport, gateway, state_machine, cluster.clock)
		    .Start();
	};
	auto stranger = start([](node::RaftEngineConfig &config) { config.node_id = "n9"; });
	CHECK(stranger.Code() == ErrorCode::InvalidArgument);
	CHECK(stranger.Message().find("'n9'") != std::string::npos);
	CHECK(start([](node::RaftEngineConfig &config) { config.members.push_back(config.members[0]); }).Code() ==
	      ErrorCode::InvalidArgument);
	CHECK(start([](node::RaftEngineConfig &config) { config.members[0].voter = false; }).Code() ==
	      ErrorCode::InvalidArgument);
	CHECK(start([](node::RaftEngineConfig &config) { config.heartbeat_interval = config.election_timeout; }).Code() ==
	      ErrorCode::InvalidArgument);
}
