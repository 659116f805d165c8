//! Goal: the whole core does its job in the plainest situations. Method: three nodes on a loss-free in-memory network.
#include "unit/raft/test_cluster.hpp"

using namespace quack;
using namespace quack::raft;
using namespace quack::raft::testing;

TEST_CASE("three nodes elect one leader, which replicates to all") {
	TestCluster cluster;
	AddVoters(cluster, 3);
	auto leader = cluster.WaitForLeader();
	cluster.Propose(leader, "a", 7);
	cluster.Propose(leader, "b", 8);
	cluster.Deliver();
	REQUIRE(cluster.At(leader).proposals.size() == 2);
	CHECK(cluster.At(leader).proposals[0].request == 7);
	CHECK(cluster.At(leader).proposals[0].status.IsOk());
	CHECK(cluster.At(leader).proposals[1].index == cluster.At(leader).proposals[0].index + 1);
	for (NodeId id = 1; id <= 3; id++) {
		CHECK(cluster.Payloads(id) == "a b");
		CHECK(cluster.Status(id).leader == leader);
		CHECK(cluster.Status(id).applied_index == 3);
	}
}

TEST_CASE("a follower refuses proposals and names the leader") {
	TestCluster cluster;
	AddVoters(cluster, 3);
	auto leader = cluster.WaitForLeader();
	NodeId follower = leader == 1 ? 2 : 1;
	cluster.Propose(follower, "a", 1);
	REQUIRE(cluster.At(follower).proposals.size() == 1);
	CHECK(cluster.At(follower).proposals[0].status.Code() == ErrorCode::NotLeader);
}

TEST_CASE("after the leader's death the others elect one of them and keep what was committed") {
	TestCluster cluster;
	AddVoters(cluster, 3);
	auto old_leader = cluster.WaitForLeader();
	cluster.Propose(old_leader, "a");
	cluster.Deliver();
	auto old_term = cluster.Status(old_leader).term;
	cluster.Crash(old_leader);
	auto new_leader = cluster.WaitForLeader();
	CHECK(new_leader != old_leader);
	CHECK(cluster.Status(new_leader).term > old_term);
	cluster.Propose(new_leader, "b");
	cluster.Deliver();
	cluster.Restart(old_leader);
	cluster.Advance(500 * NS_PER_MS);
	for (NodeId id = 1; id <= 3; id++) {
		CHECK(cluster.Payloads(id) == "a b");
		CHECK(cluster.Status(id).leader == new_leader);
	}
}

TEST_CASE("a whole cluster that was stopped starts again with everything acknowledged") {
	TestCluster cluster;
	AddVoters(cluster, 3);
	auto leader = cluster.WaitForLeader();
	for (int i = 0; i < 20; i++) {
		cluster.Propose(leader, std::to_string(i));
	}
	cluster.Deliver();
	auto before = cluster.Payloads(leader);
	for (NodeId id = 1; id <= 3; id++) {
		cluster.Crash(id);
		// A fresh state machine: everything is handed out again.
		cluster.At(id).applied = 0;
		cluster.At(id).committed.clear();
	}
	for (NodeId id = 1; id <= 3; id++) {
		cluster.Restart(id);
	}
	cluster.WaitForLeader();
	cluster.Advance(300 * NS_PER_MS);
	for (NodeId id = 1; id <= 3; id++) {
		CHECK(cluster.Payloads(id) == before);
	}
}

TEST_CASE("a single voter elects itself and commits, but only what is durable") {
	TestCluster cluster;
	AddVoters(cluster, 1);
	cluster.At(1).auto_sync = false;
	cluster.Advance(2 * NS_PER_SECOND);
	CHECK(cluster.Status(1).role == Role::Leader);
	CHECK(cluster.Status(1).commit_index == 0);
	cluster.Sync(1);
	CHECK(cluster.Status(1).commit_index == 1);
	cluster.Propose(1, "a");
	CHECK(cluster.Status(1).commit_index == 1);
	cluster.Sync(1);
	CHECK(cluster.Payloads(1) == "a");
}
