//! Goal: groups come and go as the state machine says, on every node, whatever was down meanwhile. Method: entries of
//! the root group that create and retire groups; nodes killed in between; the logs looked at from outside.
#include <doctest/doctest.h>

#include "unit/node/test_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

constexpr raft::GroupId SECOND = 2;
constexpr raft::GroupId THIRD = 3;

bool LogHas(TestNode &node, raft::GroupId group) {
	for (auto &recovered : node.log->Recovered()) {
		if (recovered.group == group) {
			return true;
		}
	}
	return false;
}

//! How many of the values begin so, on the node that has fewest.
size_t CountEverywhere(TestCluster &cluster, const std::string &value) {
	size_t least = SIZE_MAX;
	for (auto &node : cluster.nodes) {
		if (node->IsRunning()) {
			auto values = node->state_machine->Values();
			least = std::min<size_t>(least, std::count(values.begin(), values.end(), value));
		}
	}
	return least;
}

} // namespace

TEST_CASE(
    "a group is opened everywhere by the entry that creates it, led soon, and closed by the one that retires it") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	auto begun = cluster.clock.Now();
	cluster.CreateGroup((leader + 1) % 3, SECOND, "orders-group");
	REQUIRE(cluster.Propose((leader + 2) % 3, "first", PATIENCE, SECOND).status.IsOk());
	MESSAGE("first write of a new group: ", (cluster.clock.Now() - begun) / NS_PER_MS, " ms after the wish for it");
	CHECK(cluster.StatusOf(0, SECOND).group_name == "orders-group");
	CHECK(cluster.StatusOf(0, SECOND).voters == std::vector<std::string> {"n0", "n1", "n2"});
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "first") == 1; }));

	REQUIRE(cluster.Propose(0, "retire 2").status.IsOk());
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 0); }));
	auto refused = cluster.Propose(0, "late", PATIENCE, SECOND);
	CHECK(refused.status.Code() == ErrorCode::NotFound);
	CHECK(refused.status.Message() == "group 2 does not exist on this node");
	for (auto &node : cluster.nodes) {
		CHECK(WaitUntil([&] { return node->log->Reader(SECOND).LastIndex() == 0; }));
	}
	cluster.CreateGroup(0, THIRD, "after");
	REQUIRE(cluster.Propose(1, "third", PATIENCE, THIRD).status.IsOk());
}

TEST_CASE("what waits for an answer of a group that is retired gets one") {
	TestCluster cluster(3);
	cluster.StartAll();
	cluster.CreateGroup(0, SECOND, "second");
	auto leader = cluster.WaitForLeader(SECOND);
	// Without a majority the group decides nothing; the root group then has none either, so it is retired before.
	for (auto &node : cluster.nodes) {
		node->state_machine->Hold(true);
	}
	REQUIRE(cluster.Propose(leader, "retire 2").status.IsOk());
	REQUIRE(cluster.Propose(leader, "never applied", PATIENCE, SECOND).status.IsOk());
	auto all = cluster.ReadBarriers(leader, {});
	REQUIRE(all.IsOk());
	CHECK(all.Value().size() == 2);
	for (auto &node : cluster.nodes) {
		node->state_machine->Hold(false);
	}
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 0); }));
	all = cluster.ReadBarriers(leader, {});
	REQUIRE(all.IsOk());
	CHECK(all.Value().size() == 1);
	CHECK(cluster.ReadBarriers(leader, {SECOND}).GetStatus().Code() == ErrorCode::NotFound);
}

TEST_CASE("a restarted node runs the groups of its state, and those that its log creates again with their own logs") {
	TestCluster cluster(3);
	cluster.StartAll();
	cluster.CreateGroup(0, SECOND, "second");
	REQUIRE(cluster.Propose(0, "kept", PATIENCE, SECOND).status.IsOk());
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "kept") == 1; }));
	for (auto &node : cluster.nodes) {
		node->engine->RequestCheckpoint();
	}
	CHECK(WaitUntil([&] {
		for (size_t i = 0; i < 3; i++) {
			if (cluster.StatusOf(i, SECOND).checkpoint_index < 2) {
				return false;
			}
		}
		return true;
	}));
	// Behind the checkpoint: at start the state does not know this group, its log does.
	cluster.CreateGroup(0, THIRD, "third");
	REQUIRE(cluster.Propose(0, "again", PATIENCE, THIRD).status.IsOk());
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "again") == 1; }));
	auto term = cluster.StatusOf(0, THIRD).term;
	for (size_t i = 0; i < 3; i++) {
		cluster.Kill(i);
	}
	cluster.StartAll();
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 3) && cluster.RunsOn(THIRD, 3); }));
	REQUIRE(cluster.WaitForLeader(THIRD) != SIZE_MAX);
	CHECK(cluster.StatusOf(0, THIRD).term > term);
	REQUIRE(cluster.Propose(1, "more", PATIENCE, THIRD).status.IsOk());
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "more") == 1 && CountEverywhere(cluster, "again") == 1; }));
	CHECK(CountEverywhere(cluster, "kept") == 1);
}

TEST_CASE("a node that was away finds groups made and retired; one that retired and crashed forgets the log") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	cluster.CreateGroup(leader, SECOND, "second");
	REQUIRE(cluster.Propose(leader, "short life", PATIENCE, SECOND).status.IsOk());
	auto away = (leader + 1) % 3;
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "short life") == 1; }));
	cluster.Kill(away);
	REQUIRE(cluster.Propose(leader, "retire 2").status.IsOk());
	cluster.CreateGroup(leader, THIRD, "third");
	REQUIRE(cluster.Propose(leader, "new", PATIENCE, THIRD).status.IsOk());
	REQUIRE(LogHas(*cluster.nodes[away], SECOND));
	cluster.Start(away);
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 0) && cluster.RunsOn(THIRD, 3); }));
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "new") == 1; }));

	// The state has retired it durably, the log was not told: as a crash between the two leaves it.
	CHECK(WaitUntil([&] { return !LogHas(*cluster.nodes[away], SECOND); }));
	cluster.StopGracefully(away);
	auto &log = *cluster.nodes[away]->log;
	auto membership = log.Recovered().front().snapshot.membership;
	REQUIRE(log.CreateGroup(SECOND, {0, 0, membership}).IsOk());
	REQUIRE(log.Sync().IsOk());
	cluster.Start(away);
	CHECK(!LogHas(*cluster.nodes[away], SECOND));
	CHECK(WaitUntil([&] { return cluster.RunsOn(THIRD, 3) && cluster.RunsOn(SECOND, 0); }));
}

TEST_CASE("a stopping node hands over all its groups") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	for (raft::GroupId group = 2; group <= 6; group++) {
		cluster.CreateGroup(leader, group, "g" + std::to_string(group));
	}
	auto other = (leader + 1) % 3;
	cluster.StopGracefully(leader);
	for (raft::GroupId group = 1; group <= 6; group++) {
		auto row = cluster.StatusOf(other, group);
		CHECK(row.leader_id != cluster.nodes[leader]->name);
		CHECK(!row.leader_id.empty());
		REQUIRE(cluster.Propose(other, "on", PATIENCE, group).status.IsOk());
	}
}
