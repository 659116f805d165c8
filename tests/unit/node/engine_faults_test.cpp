//! Goal: an engine fails closed and says why: cut links, full and broken disks, failing appliers, foreign peers.
//! Method: three engines over a network in memory, one fault at a time, others must go on.
#include <algorithm>
#include <future>

#include <doctest/doctest.h>

#include "quack/common/check.hpp"
#include "quack/node/degraded_latch.hpp"
#include "unit/node/test_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

constexpr MonotonicNs SHORT = 700 * NS_PER_MS;

void IsolateNode(TestCluster &cluster, size_t node) {
	cluster.network.Isolate(cluster.nodes[node]->name);
}

size_t StartedLeader(TestCluster &cluster) {
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	REQUIRE(cluster.Propose(leader, "first").status.IsOk());
	return leader;
}

} // namespace

TEST_CASE("a leader cut off from its quorum refuses linearizable reads and says whom it misses") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto other = (leader + 1) % 3;
	IsolateNode(cluster, leader);
	REQUIRE(cluster.Propose(other, "second").status.IsOk());
	auto read = cluster.ReadBarrier(leader, SHORT);
	CHECK(read.GetStatus().Code() == ErrorCode::Unavailable);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).leader_id.empty(); }));
	auto row = cluster.StatusOf(leader);
	CHECK(!row.linearizable_read_safe);
	CHECK(row.reason.find("voters out of reach") != std::string::npos);
	for (auto &node : cluster.nodes) {
		if (node->name != cluster.nodes[leader]->name) {
			CHECK_MESSAGE(row.reason.find(node->name) != std::string::npos, row.reason);
		}
	}
	CHECK(row.reason.find("connection refused") != std::string::npos);
	auto refused = cluster.Propose(leader, "never", SHORT);
	CHECK(refused.status.Code() == ErrorCode::Unavailable);
	cluster.network.HealAll();
	CHECK(cluster.AllHold({"first", "second"}));
	CHECK(cluster.ReadBarrier(leader).IsOk());
}

TEST_CASE("an append of a cut-off leader is unknown at its deadline, and surely not committed once overwritten") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto other = (leader + 1) % 3;
	IsolateNode(cluster, leader);
	auto ask = [&](const char *payload, MonotonicNs timeout) {
		auto promise = std::make_shared<std::promise<node::ProposeOutcome>>();
		cluster.nodes[leader]->engine->Propose(raft::ROOT_GROUP, MakeSharedBytes(payload), timeout,
		                                       [promise](const node::ProposeOutcome &outcome) {
			                                       promise->set_value(outcome);
		                                       });
		return promise->get_future();
	};
	// Both are appended while it still believes to lead.
	auto impatient = ask("lost 1", 300 * NS_PER_MS);
	auto patient = ask("lost 2", PATIENCE);
	CHECK(impatient.get().status.Code() == ErrorCode::OutcomeUnknown);
	REQUIRE(cluster.Propose(other, "second").status.IsOk());
	REQUIRE(cluster.Propose(other, "third").status.IsOk());
	cluster.network.HealAll();
	auto outcome = patient.get();
	CHECK_MESSAGE(outcome.status.Code() == ErrorCode::Unavailable, outcome.status.ToString());
	CHECK(cluster.AllHold({"first", "second", "third"}));
}

TEST_CASE("a forwarded proposal whose answer is lost is reported unknown, and was applied once") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto follower = (leader + 1) % 3;
	cluster.network.LoseAnswers(cluster.nodes[follower]->name, cluster.nodes[leader]->name, true);
	auto outcome = cluster.Propose(follower, "second", SHORT);
	CHECK(outcome.status.Code() == ErrorCode::OutcomeUnknown);
	CHECK(cluster.AllHold({"first", "second"}));
	cluster.network.LoseAnswers(cluster.nodes[follower]->name, cluster.nodes[leader]->name, false);
	CHECK(cluster.Propose(follower, "third").status.IsOk());
	CHECK(cluster.AllHold({"first", "second", "third"}));
}

TEST_CASE("a node without space for an entry waits with it, says so, and goes on when there is space") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto full = (leader + 1) % 3;
	cluster.nodes[full]->state_machine->FillDiskAt("large");
	for (auto *value : {"before", "large", "after"}) {
		REQUIRE(cluster.Propose(leader, value).status.IsOk());
	}
	CHECK(WaitUntil([&] { return cluster.StatusOf(full).reason.find("no space for 'large'") != std::string::npos; }));
	CHECK(!cluster.StatusOf(full).degraded);
	CHECK(cluster.nodes[full]->state_machine->Values() == std::vector<std::string> {"first", "before"});
	SUBCASE("space returns") {
		cluster.nodes[full]->state_machine->FillDiskAt("");
		CHECK(cluster.AllHold({"first", "before", "large", "after"}));
		CHECK(WaitUntil([&] { return cluster.StatusOf(full).reason.empty(); }));
	}
	SUBCASE("it is stopped first") {
		cluster.StopGracefully(full);
		cluster.Start(full);
		CHECK(cluster.AllHold({"first", "before", "large", "after"}));
	}
}

TEST_CASE("a follower that cannot apply latches degraded, stops acknowledging, and the others go on") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto broken = (leader + 1) % 3;
	cluster.nodes[broken]->state_machine->FailOn("poison");
	REQUIRE(cluster.Propose(leader, "poison").status.IsOk());
	CHECK(WaitUntil([&] { return cluster.nodes[broken]->engine->IsDegraded(); }));
	auto row = cluster.StatusOf(broken);
	CHECK(row.degraded);
	CHECK(row.reason.find("cannot apply 'poison'") != std::string::npos);
	CHECK(!row.linearizable_read_safe);
	CHECK(cluster.Propose(broken, "x").status.Code() == ErrorCode::Degraded);
	CHECK(cluster.ReadBarrier(broken).GetStatus().Code() == ErrorCode::Degraded);
	CHECK(cluster.nodes[broken]->engine->WaitApplied(raft::ROOT_GROUP, 1000, PATIENCE).Code() == ErrorCode::Degraded);
	REQUIRE(cluster.Propose(leader, "third").status.IsOk());
	auto match_of = [&](const std::string &name) {
		for (auto &peer : cluster.StatusOf(leader).peers) {
			if (peer.node_id == name) {
				return peer.match;
			}
		}
		return raft::LogIndex(0);
	};
	auto healthy = 3 - leader - broken;
	auto last = cluster.StatusOf(leader).last_log_index;
	CHECK(WaitUntil([&] { return match_of(cluster.nodes[healthy]->name) == last; }));
	CHECK(match_of(cluster.nodes[broken]->name) < last);
	// With the third node gone there is no quorum: the degraded one must not make one up.
	cluster.Kill(healthy);
	CHECK(!cluster.Propose(leader, "fourth", SHORT).status.IsOk());
}

TEST_CASE("a degraded leader is replaced, and its pending work is answered") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto other = (leader + 1) % 3;
	cluster.nodes[leader]->engine->LatchDegraded("a test says so");
	cluster.nodes[leader]->engine->LatchDegraded("a second reason");
	CHECK(cluster.StatusOf(leader).reason == "a test says so");
	REQUIRE(cluster.Propose(other, "second").status.IsOk());
	CHECK(cluster.nodes[leader]->engine->IsDegraded());
	CHECK(!cluster.StatusOf(leader).is_leader);
	cluster.Kill(leader);
	cluster.Start(leader);
	CHECK(cluster.AllHold({"first", "second"}));
}

TEST_CASE("a degraded node still answers the status call of a peer, and nothing else") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto broken = (leader + 1) % 3;
	cluster.nodes[broken]->engine->LatchDegraded("a test says so");
	auto ask = [&](const char *method) {
		auto promise = std::make_shared<std::promise<Result<std::string>>>();
		auto future = promise->get_future();
		cluster.nodes[leader]->transport->Call(cluster.nodes[broken]->name, method, "", PATIENCE,
		                                       [promise](Result<std::string> answer) {
			                                       promise->set_value(std::move(answer));
		                                       });
		return future.get();
	};
	auto status = ask("status");
	REQUIRE(status.IsOk());
	auto said = wire::DecodeStatusAnswer(status.Value());
	REQUIRE(said.IsOk());
	CHECK(said.Value().groups.front().reason == "a test says so");
	CHECK(ask("snapshot_open").GetStatus().Code() == ErrorCode::Degraded);
	CHECK(ask("no_such_call").GetStatus().Code() == ErrorCode::NotSupported);
}

TEST_CASE("with the throwing panic hook a broken invariant latches the node instead of ending the process") {
	auto before = SetPanicHook(nullptr);
	node::InstallThrowingPanicHook();
	{
		TestCluster cluster(3);
		auto leader = StartedLeader(cluster);
		auto broken = (leader + 1) % 3;
		cluster.nodes[broken]->state_machine->PanicOn("poison");
		REQUIRE(cluster.Propose(leader, "poison").status.IsOk());
		CHECK(WaitUntil([&] { return cluster.nodes[broken]->engine->IsDegraded(); }));
		auto reason = cluster.StatusOf(broken).reason;
		CHECK_MESSAGE(reason.find("broken invariant: the test asked for it") != std::string::npos, reason);
		REQUIRE(cluster.Propose(leader, "third").status.IsOk());
	}
	SetPanicHook(before);
}

TEST_CASE("a failed sync latches the node: it is never retried") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto broken = (leader + 1) % 3;
	cluster.nodes[broken]->Faults().fails_sync = true;
	REQUIRE(cluster.Propose(leader, "second").status.IsOk());
	CHECK(WaitUntil([&] { return cluster.nodes[broken]->engine->IsDegraded(); }));
	CHECK(cluster.StatusOf(broken).reason.find("durable log, sync") != std::string::npos);
	REQUIRE(cluster.Propose(leader, "third").status.IsOk());
}

TEST_CASE("a follower with a full disk keeps serving reads and heals by itself") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto full = (leader + 1) % 3;
	cluster.nodes[full]->Faults().is_full = true;
	REQUIRE(cluster.Propose(leader, "second").status.IsOk());
	CHECK(WaitUntil([&] {
		return cluster.StatusOf(full).reason.find("no space on " + cluster.nodes[full]->name + ": ") !=
		       std::string::npos;
	}));
	CHECK(!cluster.nodes[full]->engine->IsDegraded());
	CHECK(cluster.ReadBarrier(full).IsOk());
	REQUIRE(cluster.Propose(leader, "third").status.IsOk());
	cluster.nodes[full]->Faults().is_full = false;
	CHECK(cluster.AllHold({"first", "second", "third"}));
	CHECK(WaitUntil([&] { return cluster.StatusOf(full).reason.empty(); }));
}

TEST_CASE("a leader with a full disk hands over; without a successor writes say which disk is full") {
	TestCluster cluster(3);
	auto leader = StartedLeader(cluster);
	auto other = (leader + 1) % 3;
	auto third = 3 - leader - other;
	cluster.nodes[leader]->Faults().is_full = true;
	// Committed by the others; whether the full node still hears of it before it hands over is a matter of timing.
	auto second = cluster.Propose(leader, "second", 3 * NS_PER_SECOND);
	CHECK_MESSAGE((second.status.IsOk() || second.status.Code() == ErrorCode::OutcomeUnknown),
	              second.status.ToString());
	CHECK(WaitUntil([&] {
		auto now_leading = cluster.WaitForLeader();
		return now_leading != leader && now_leading != SIZE_MAX;
	}));
	REQUIRE(cluster.Propose(other, "third").status.IsOk());
	cluster.nodes[leader]->Faults().is_full = false;
	auto held = cluster.nodes[other]->state_machine->Values();
	CHECK(std::count(held.begin(), held.end(), "second") <= 1);
	CHECK(WaitUntil([&] {
		auto values = cluster.nodes[other]->state_machine->Values();
		return !values.empty() && values.back() == "third";
	}));
	CHECK(cluster.AllHold(cluster.nodes[other]->state_machine->Values()));

	auto now_leading = cluster.WaitForLeader();
	REQUIRE(now_leading != SIZE_MAX);
	for (auto node : {leader, other, third}) {
		cluster.nodes[node]->Faults().is_full = true;
	}
	static_cast<void>(cluster.Propose(now_leading, "fourth", SHORT));
	auto refused = cluster.Propose(now_leading, "fifth", SHORT);
	CHECK_MESSAGE((refused.status.Code() == ErrorCode::DiskFull || refused.status.Code() == ErrorCode::Unavailable),
	              refused.status.ToString());
	for (auto node : {leader, other, third}) {
		cluster.nodes[node]->Faults().is_full = false;
	}
	// Refused at once until the node has seen that there is space again.
	CHECK(WaitUntil([&] { return cluster.Propose(now_leading, "sixth").status.IsOk(); }));
}

TEST_CASE("peers of another cluster or version are kept out in words, and the others are not disturbed") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) {
		if (config.node_id == "n2") {
			config.duckdb_version = "v2.0.2";
		}
	});
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	REQUIRE(leader != 2);
	REQUIRE(cluster.Propose(0, "first").status.IsOk());
	CHECK(WaitUntil([&] { return !cluster.StatusOf(2).reason.empty(); }));
	auto reason = cluster.StatusOf(2).reason;
	CHECK_MESSAGE(reason.find("'v2.0.2'") != std::string::npos, reason);
	CHECK_MESSAGE(reason.find("'v2.0.1'") != std::string::npos, reason);
	CHECK(cluster.nodes[2]->state_machine->Values().empty());
}

TEST_CASE("proposals wait for a leader and are answered when none comes; too many are refused at once") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) { config.pending_proposals_max = 4; });
	cluster.Start(0);
	auto alone = cluster.Propose(0, "x", SHORT);
	CHECK(alone.status.Code() == ErrorCode::Unavailable);
	CHECK_MESSAGE(alone.status.Message().find("n1") != std::string::npos, alone.status.Message());
	std::vector<std::future<node::ProposeOutcome>> futures;
	for (int i = 0; i < 5; i++) {
		auto promise = std::make_shared<std::promise<node::ProposeOutcome>>();
		futures.push_back(promise->get_future());
		cluster.nodes[0]->engine->Propose(raft::ROOT_GROUP, MakeSharedBytes("waiting"), PATIENCE,
		                                  [promise](const node::ProposeOutcome &outcome) {
			                                  promise->set_value(outcome);
		                                  });
	}
	CHECK(futures[4].get().status.Code() == ErrorCode::Overloaded);
	cluster.Start(1);
	for (int i = 0; i < 4; i++) {
		CHECK(futures[static_cast<size_t>(i)].get().status.IsOk());
	}
	CHECK(cluster.AllHold({"waiting", "waiting", "waiting", "waiting"}));
}

TEST_CASE("a slow applier holds back new proposals, not the cluster") {
	TestCluster cluster(1, [](node::RaftEngineConfig &config) { config.apply_queue_bytes_max = 64 * 1024; });
	cluster.StartAll();
	REQUIRE(cluster.Propose(0, "first").status.IsOk());
	cluster.nodes[0]->state_machine->Hold(true);
	std::vector<std::future<node::ProposeOutcome>> futures;
	std::string payload(16 * 1024, 'x');
	for (int i = 0; i < 64; i++) {
		auto promise = std::make_shared<std::promise<node::ProposeOutcome>>();
		futures.push_back(promise->get_future());
		cluster.nodes[0]->engine->Propose(raft::ROOT_GROUP, MakeSharedBytes(payload), PATIENCE,
		                                  [promise](const node::ProposeOutcome &outcome) {
			                                  promise->set_value(outcome);
		                                  });
	}
	CHECK(WaitUntil([&] { return cluster.StatusOf(0).apply_queue_bytes > 0; }));
	CHECK(cluster.StatusOf(0).apply_queue_bytes < 512 * 1024);
	cluster.nodes[0]->state_machine->Hold(false);
	for (auto &future : futures) {
		CHECK(future.get().status.IsOk());
	}
	CHECK(WaitUntil([&] { return cluster.nodes[0]->state_machine->Values().size() == 65; }));
}
