//! Goal: one engine alone and three together over a network in memory do what consensus_engine.hpp says, also when
//! nodes die, links break, disks fill and appliers fail. Method: real cores and threads, faults on demand, conditions
//! with deadlines.
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
