//! Goal: groups come and go as the state machine says, on every node, whatever was down meanwhile. Method: entries of
//! the root group that create and retire groups; nodes killed in between; the logs looked at from outside.
#include <atomic>
#include <future>
#include <thread>

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
	// What is committed behind the retirement is applied with it in one call, and does nothing.
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
		// Each group has its successor; a node hears of the last one a moment later.
		CHECK(WaitUntil([&] { return !cluster.StatusOf(other, group).leader_id.empty(); }));
		CHECK(cluster.StatusOf(other, group).leader_id != cluster.nodes[leader]->name);
		REQUIRE(cluster.Propose(other, "on", PATIENCE, group).status.IsOk());
	}
}

namespace {

void Eager(node::RaftEngineConfig &config) {
	config.checkpoint_log_bytes = 4096;
	config.checkpoint_interval = 200 * NS_PER_MS;
	config.log_tail_bytes = 0;
	// An image that was opened for a node which is then killed holds the log back until these pass: WaitUntilCut waits
	// for no longer than PATIENCE.
	config.snapshot_idle_timeout = 2 * NS_PER_SECOND;
	config.snapshot_resume_timeout = 5 * NS_PER_SECOND;
	// Nor does a node that is filled here wait for a killed source to come back.
	config.snapshot_source_patience = 2 * NS_PER_SECOND;
}

void Fill(TestCluster &cluster, size_t node, raft::GroupId group, int count, const std::string &value) {
	for (int i = 0; i < count; i++) {
		auto outcome = cluster.Propose(node, value, PATIENCE, group);
		REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
	}
}

//! Waits until the log of the group begins behind `index` there, so that only an image helps whoever lacks that.
void WaitUntilCut(TestCluster &cluster, size_t node, raft::GroupId group, raft::LogIndex index) {
	CHECK(WaitUntil([&] {
		// A node with nothing new makes no checkpoint.
		REQUIRE(cluster.Propose(node, "more", PATIENCE, group).status.IsOk());
		cluster.nodes[node]->engine->RequestCheckpoint();
		return cluster.nodes[node]->log->Reader(group).FirstIndex() > index;
	}));
}

} // namespace

TEST_CASE("one image brings all groups: logs behind it start anew, new groups are opened, vanished ones closed") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	cluster.CreateGroup(leader, SECOND, "second");
	cluster.CreateGroup(leader, 9, "vanishes");
	auto away = (leader + 1) % 3;
	Fill(cluster, leader, SECOND, 5, "early");
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "early") == 5; }));
	cluster.Kill(away);
	auto value = "late" + std::string(100, '.');
	Fill(cluster, leader, raft::ROOT_GROUP, 60, value);
	Fill(cluster, leader, SECOND, 60, value);
	cluster.CreateGroup(leader, THIRD, "third");
	Fill(cluster, leader, THIRD, 60, value);
	REQUIRE(cluster.Propose(leader, "retire 9").status.IsOk());
	for (size_t node = 0; node < 3; node++) {
		for (raft::GroupId group : {raft::ROOT_GROUP, SECOND, THIRD}) {
			if (node != away) {
				WaitUntilCut(cluster, node, group, 55);
			}
		}
	}
	cluster.Start(away);
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, value) == 180; }));
	CHECK(cluster.nodes[away]->state_machine->InstallCount() >= 1);
	CHECK(WaitUntil([&] { return cluster.RunsOn(THIRD, 3) && cluster.RunsOn(9, 0); }));
	CHECK(WaitUntil([&] { return !LogHas(*cluster.nodes[away], 9); }));
	// Logs that were cut behind the state of that image need another one: until then the node refuses proposals.
	for (raft::GroupId group : {raft::ROOT_GROUP, SECOND, THIRD}) {
		CHECK(WaitUntil([&] {
			return cluster.StatusOf(away, group).applied_index >= cluster.StatusOf(leader, group).applied_index;
		}));
	}
	// The logs behind the image go on, and their votes count.
	auto third = 3 - leader - away;
	cluster.Kill(third);
	for (raft::GroupId group : {raft::ROOT_GROUP, SECOND, THIRD}) {
		Fill(cluster, away, group, 3, "behind");
	}
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "behind") == 9; }));
	cluster.Kill(away);
	cluster.Start(away);
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "behind") == 9; }));
}

TEST_CASE("an image for one group is installed although another one is written to without a pause") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	cluster.CreateGroup(leader, SECOND, "second");
	auto away = (leader + 1) % 3;
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 3); }));
	cluster.Kill(away);
	auto value = "late" + std::string(100, '.');
	Fill(cluster, leader, SECOND, 60, value);
	for (size_t node = 0; node < 3; node++) {
		if (node != away) {
			WaitUntilCut(cluster, node, SECOND, 55);
		}
	}
	std::atomic<bool> is_over {false};
	std::atomic<size_t> written {0};
	std::thread writer([&] {
		while (!is_over) {
			written += cluster.Propose(leader, "root", 5 * NS_PER_SECOND).status.IsOk() ? 1 : 0;
		}
	});
	cluster.Start(away);
	CHECK(WaitUntil([&] { return cluster.nodes[away]->state_machine->InstallCount() >= 1; }));
	is_over = true;
	writer.join();
	CHECK(written > 0);
	CHECK(WaitUntil(
	    [&] { return CountEverywhere(cluster, value) == 60 && CountEverywhere(cluster, "root") >= written; }));
}

TEST_CASE("a node that waits for entries of a group which all others have forgotten is led past them by an image") {
	TestCluster cluster(3);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	cluster.CreateGroup(leader, SECOND, "second");
	auto away = (leader + 1) % 3;
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 3); }));
	cluster.Kill(away);
	auto last = cluster.Propose(leader, "forgotten", PATIENCE, SECOND);
	REQUIRE(last.status.IsOk());
	REQUIRE(cluster.Propose(leader, "after 2:" + std::to_string(last.index) + " moved").status.IsOk());
	REQUIRE(cluster.Propose(leader, "retire 2").status.IsOk());
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 0); }));
	cluster.Start(away);
	CHECK(WaitUntil([&] { return cluster.RunsOn(SECOND, 0) && CountEverywhere(cluster, "forgotten") == 1; }));
	REQUIRE(cluster.Propose(away, "goes on").status.IsOk());
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "goes on") == 1; }));
}

TEST_CASE("leaders spread over the nodes, go back when a lost node is back, and stay where they are then") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) { config.rebalance_after = 300 * NS_PER_MS; });
	cluster.StartAll();
	auto root_leader = cluster.WaitForLeader();
	std::map<raft::GroupId, size_t> places;
	for (raft::GroupId group = 2; group <= 7; group++) {
		cluster.CreateGroup(root_leader, group, "g" + std::to_string(group));
	}
	auto count_leaders = [&] {
		std::map<std::string, size_t> counts;
		for (raft::GroupId group = 2; group <= 7; group++) {
			counts[cluster.StatusOf(root_leader, group).leader_id]++;
		}
		return counts;
	};
	std::map<std::string, size_t> even = {{"n0", 2}, {"n1", 2}, {"n2", 2}};
	CHECK(WaitUntil([&] { return count_leaders() == even; }));
	for (raft::GroupId group = 2; group <= 7; group++) {
		places[group] = cluster.WaitForLeader(group);
	}
	auto lost = (root_leader + 1) % 3;
	cluster.Kill(lost);
	for (raft::GroupId group = 2; group <= 7; group++) {
		REQUIRE(cluster.Propose(root_leader, "on", PATIENCE, group).status.IsOk());
	}
	cluster.Start(lost);
	CHECK(WaitUntil([&] {
		for (auto &place : places) {
			if (cluster.StatusOf(root_leader, place.first).leader_id != cluster.nodes[place.second]->name) {
				return false;
			}
		}
		return true;
	}));
	// Nothing moves any more.
	std::vector<raft::Term> terms;
	for (auto &place : places) {
		terms.push_back(cluster.StatusOf(root_leader, place.first).term);
	}
	auto begun = cluster.clock.Now();
	CHECK(WaitUntil([&] { return cluster.clock.Now() - begun > 2 * NS_PER_SECOND; }));
	for (auto &place : places) {
		CHECK(cluster.StatusOf(root_leader, place.first).term == terms[place.first - 2]);
	}
}

TEST_CASE("leaders move when asked, from any node, with words; a node with a lower priority leads nothing") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) {
		config.rebalance_after = 0;
		for (auto &member : config.members) {
			member.election_priority = member.node_id == "n2" ? 10 : 100;
		}
	});
	cluster.StartAll();
	auto root_leader = cluster.WaitForLeader();
	for (raft::GroupId group = 2; group <= 5; group++) {
		cluster.CreateGroup(root_leader, group, "g" + std::to_string(group));
	}
	auto rebalance = [&](size_t node) {
		auto promise = std::make_shared<std::promise<Result<std::string>>>();
		auto future = promise->get_future();
		cluster.nodes[node]->engine->Rebalance(PATIENCE,
		                                       [promise](Result<std::string> words) { promise->set_value(words); });
		return future.get();
	};
	Result<std::string> words = std::string();
	CHECK(WaitUntil([&] {
		words = rebalance(2);
		return words.IsOk() && words.Value() == "every group is led by the node that it belongs to";
	}));
	// Whoever was asked may have known an older leader of a group: asked again until it is so everywhere.
	CHECK(WaitUntil([&] {
		std::map<std::string, size_t> counts;
		for (raft::GroupId group = 2; group <= 5; group++) {
			counts[cluster.nodes[cluster.WaitForLeader(group)]->name]++;
		}
		auto is_even = counts == std::map<std::string, size_t> {{"n0", 2}, {"n1", 2}};
		if (!is_even) {
			REQUIRE(rebalance(2).IsOk());
		}
		return is_even;
	}));
	auto leader = cluster.WaitForLeader(2);
	auto other = 1 - leader;
	auto moved = std::make_shared<std::promise<Result<std::string>>>();
	cluster.nodes[2]->engine->TransferLeadership(2, cluster.nodes[other]->name, PATIENCE,
	                                             [moved](Result<std::string> name) { moved->set_value(name); });
	REQUIRE(moved->get_future().get().IsOk());
	CHECK(cluster.WaitForLeader(2) == other);
	CHECK(WaitUntil([&] {
		words = rebalance(2);
		return words.IsOk() &&
		       words.Value() == "group 2 'g2': " + cluster.nodes[other]->name + " -> " + cluster.nodes[leader]->name;
	}));
	CHECK(cluster.WaitForLeader(2) == leader);
}

TEST_CASE("idle groups go quiet, answer whoever asks, and find a new leader when the node of theirs dies") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) {
		config.quiet_after = 300 * NS_PER_MS;
		config.rebalance_after = 0;
	});
	cluster.StartAll();
	for (raft::GroupId group = SECOND; group < SECOND + 6; group++) {
		cluster.CreateGroup(0, group, "group");
	}
	auto all_quiet = [&] {
		for (auto &node : cluster.nodes) {
			for (auto &row : node->engine->GetStatus()) {
				if (row.is_leader && row.lease != "quiet") {
					return false;
				}
			}
		}
		return true;
	};
	REQUIRE(WaitUntil(all_quiet));
	// Through a node that does not lead it: forwarded, committed, applied everywhere, and quiet again.
	auto leader = cluster.WaitForLeader(SECOND);
	REQUIRE(cluster.Propose((leader + 1) % 3, "woken", PATIENCE, SECOND).status.IsOk());
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "woken") == 1; }));
	auto positions = cluster.ReadBarriers((leader + 2) % 3, {});
	REQUIRE(positions.IsOk());
	CHECK(positions.Value().size() == 7);
	REQUIRE(WaitUntil(all_quiet));
	auto term = cluster.StatusOf((leader + 1) % 3, SECOND).term;

	cluster.Kill(leader);
	auto begun = cluster.clock.Now();
	auto is_led = [&] {
		for (size_t i = 1; i < 3; i++) {
			for (auto &row : cluster.nodes[(leader + i) % 3]->engine->GetStatus()) {
				if (row.leader_id.empty() || row.leader_id == cluster.nodes[leader]->name) {
					return false;
				}
			}
		}
		return true;
	};
	REQUIRE(WaitUntil(is_led));
	MESSAGE("every group of the dead node is led again after ", (cluster.clock.Now() - begun) / NS_PER_MS, " ms");
	CHECK(cluster.StatusOf((leader + 1) % 3, SECOND).term > term);
	REQUIRE(cluster.Propose((leader + 1) % 3, "led again", PATIENCE, SECOND).status.IsOk());
	cluster.Start(leader);
	CHECK(WaitUntil([&] { return CountEverywhere(cluster, "led again") == 1; }));
	CHECK(WaitUntil(all_quiet));
}

TEST_CASE("every node that is in reach says how far it has applied each group; nobody speaks for the others") {
	TestCluster cluster(3);
	cluster.StartAll();
	cluster.CreateGroup(0, SECOND, "second");
	auto outcome = cluster.Propose(0, "value", PATIENCE, SECOND);
	REQUIRE(outcome.status.IsOk());
	auto &asking = *cluster.nodes[0]->engine;
	CHECK(WaitUntil([&] {
		auto answers = asking.StatusOfPeers(PATIENCE);
		size_t applied = 0;
		for (auto &answer : answers) {
			for (auto &row : answer.second.groups) {
				applied += row.group == SECOND && row.applied_index == outcome.index && row.queue_count == 0 ? 1 : 0;
			}
		}
		return answers.size() == 2 && answers.count("n0") == 0 && applied == 2;
	}));
	// One that stands still says so, and of what.
	cluster.nodes[1]->state_machine->Hold(true);
	REQUIRE(cluster.Propose(0, "more", PATIENCE, SECOND).status.IsOk());
	CHECK(WaitUntil([&] {
		auto rows = asking.StatusOfPeers(PATIENCE)["n1"].groups;
		return rows.size() == 2 && rows[1].applied_index == outcome.index;
	}));
	cluster.nodes[1]->state_machine->Hold(false);
	cluster.nodes[1]->engine->LatchDegraded("on purpose");
	CHECK(WaitUntil([&] {
		auto rows = asking.StatusOfPeers(PATIENCE)["n1"].groups;
		return rows.size() == 2 && rows[1].reason == "on purpose";
	}));
	cluster.Kill(2);
	CHECK(WaitUntil([&] { return asking.StatusOfPeers(PATIENCE).count("n2") == 0; }));
	// Who does not answer in time is missing.
	cluster.network.LoseAnswers("n0", "n1", true);
	CHECK(asking.StatusOfPeers(50 * NS_PER_MS).empty());
}
