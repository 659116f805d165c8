//! Goal: the engine holds its promises over the parts it ships with. Method: the cluster of engine_test.cpp over the
//! real HTTP/2 transport and the real segmented log.
#include <future>

#include <doctest/doctest.h>

#include "unit/node/real_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

void Fill(TestCluster &cluster, size_t node, int count, std::vector<std::string> &values) {
	for (int i = 0; i < count; i++) {
		auto value = "value " + std::to_string(values.size()) + std::string(100, '.');
		auto outcome = cluster.Propose(node, value);
		REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
		values.push_back(value);
	}
}

} // namespace

TEST_CASE("real parts: elect, propose through a follower, read, kill the leader, fail over, catch up") {
	RealCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto follower = (leader + 1) % 3;
	std::vector<std::string> values;
	Fill(cluster, follower, 20, values);
	auto read = cluster.ReadBarrier(follower);
	REQUIRE_MESSAGE(read.IsOk(), read.GetStatus().ToString());
	REQUIRE(cluster.nodes[follower]->engine->WaitApplied(raft::ROOT_GROUP, read.Value(), PATIENCE).IsOk());
	CHECK(cluster.nodes[follower]->state_machine->Values() == values);
	cluster.Kill(leader);
	auto begun = cluster.clock.Now();
	// What was on its way to the killed leader is honestly unknown: ask again under another name.
	node::ProposeOutcome outcome;
	auto attempts = 0;
	do {
		outcome = cluster.Propose(follower, "after the kill " + std::to_string(attempts++));
		CHECK((outcome.status.IsOk() || outcome.status.Code() == ErrorCode::OutcomeUnknown));
	} while (!outcome.status.IsOk() && attempts < 10);
	REQUIRE(outcome.status.IsOk());
	values.push_back("after the kill " + std::to_string(attempts - 1));
	MESSAGE("first write after the kill: ", (cluster.clock.Now() - begun) / NS_PER_MS, " ms");
	Fill(cluster, follower, 20, values);
	cluster.Start(leader);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("real parts: all nodes restart from their logs") {
	RealCluster cluster(3);
	cluster.StartAll();
	REQUIRE(cluster.WaitForLeader() != SIZE_MAX);
	std::vector<std::string> values;
	Fill(cluster, 0, 30, values);
	for (size_t node = 0; node < 3; node++) {
		cluster.Kill(node);
	}
	cluster.StartAll();
	Fill(cluster, 1, 5, values);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("real parts: an empty node gets a snapshot over the wire") {
	RealCluster cluster(3, [](node::RaftEngineConfig &config) {
		config.checkpoint_log_bytes = 4096;
		config.log_tail_bytes = 0;
		config.snapshot_chunk_bytes = 1000;
		config.checkpoint_interval = 200 * NS_PER_MS;
	});
	cluster.Start(0);
	cluster.Start(1);
	std::vector<std::string> values;
	Fill(cluster, 0, 100, values);
	CHECK(WaitUntil(
	    [&] { return cluster.StatusOf(0).checkpoint_index >= 90 && cluster.StatusOf(1).checkpoint_index >= 90; }));
	cluster.Start(2);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[2]->state_machine->InstallCount() == 1);
	Fill(cluster, 2, 5, values);
	cluster.Kill(2);
	cluster.Start(2);
	Fill(cluster, 2, 5, values);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("real parts: a peer of another cluster is refused on both sides with both ids") {
	RealCluster cluster(2, [](node::RaftEngineConfig &config) {
		if (config.node_id == "n1") {
			config.cluster_id = "another-cluster";
		}
	});
	cluster.StartAll();
	for (size_t node = 0; node < 2; node++) {
		auto is_told = WaitUntil([&] {
			auto reason = cluster.StatusOf(node).reason;
			return reason.find("'test-cluster'") != std::string::npos &&
			       reason.find("'another-cluster'") != std::string::npos;
		});
		CHECK_MESSAGE(is_told, cluster.StatusOf(node).reason);
	}
}

TEST_CASE(
    "real parts: sixteen proposers at once, a leader killed under load, nothing acknowledged is lost or doubled") {
	RealCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto survivor = (leader + 1) % 3;
	std::vector<std::thread> proposers;
	std::mutex lock;
	std::vector<std::string> acknowledged;
	std::atomic<int> unknown {0};
	for (int proposer = 0; proposer < 16; proposer++) {
		proposers.emplace_back([&, proposer] {
			for (int i = 0; i < 20; i++) {
				auto value = std::to_string(proposer) + "/" + std::to_string(i);
				auto outcome = cluster.Propose(survivor, value);
				std::lock_guard<std::mutex> guard(lock);
				if (outcome.status.IsOk()) {
					acknowledged.push_back(value);
				} else {
					unknown += outcome.status.Code() == ErrorCode::OutcomeUnknown ? 1 : 0;
				}
			}
		});
	}
	CHECK(WaitUntil([&] {
		std::lock_guard<std::mutex> guard(lock);
		return acknowledged.size() > 40;
	}));
	cluster.Kill(leader);
	for (auto &proposer : proposers) {
		proposer.join();
	}
	CHECK(acknowledged.size() + static_cast<size_t>(unknown) == 320);
	auto read = cluster.ReadBarrier(survivor);
	REQUIRE(read.IsOk());
	REQUIRE(cluster.nodes[survivor]->engine->WaitApplied(raft::ROOT_GROUP, read.Value(), PATIENCE).IsOk());
	std::map<std::string, int> counts;
	for (auto &value : cluster.nodes[survivor]->state_machine->Values()) {
		counts[value]++;
	}
	for (auto &value : acknowledged) {
		CHECK(counts[value] == 1);
	}
	for (auto &entry : counts) {
		CHECK(entry.second == 1);
	}
	cluster.Start(leader);
	CHECK(cluster.AllHold(cluster.nodes[survivor]->state_machine->Values()));
}
