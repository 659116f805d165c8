//! Goal: checkpoints bound the log, and a node the log no longer reaches is brought up by a snapshot, also when the
//! transfer breaks in between. Method: small thresholds, so that all of it happens within a few hundred entries.
#include <filesystem>
#include <fstream>
#include <set>

#include <doctest/doctest.h>

#include "unit/node/test_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

void Eager(node::RaftEngineConfig &config) {
	config.checkpoint_log_bytes = 4096;
	config.checkpoint_interval = 200 * NS_PER_MS;
	config.log_tail_bytes = 0;
	config.snapshot_chunk_bytes = 512;
	config.snapshot_idle_timeout = 2 * NS_PER_SECOND;
}

void Fill(TestCluster &cluster, size_t node, int count, std::vector<std::string> &values) {
	for (int i = 0; i < count; i++) {
		auto value = "value " + std::to_string(values.size()) + std::string(100, '.');
		auto outcome = cluster.Propose(node, value);
		REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
		values.push_back(value);
	}
}

} // namespace

TEST_CASE("checkpoints run by log bytes and by time, and the log forgets what they cover, less the tail") {
	TestCluster cluster(1, [](node::RaftEngineConfig &config) {
		Eager(config);
		config.log_tail_bytes = 2000;
	});
	cluster.StartAll();
	std::vector<std::string> values;
	Fill(cluster, 0, 200, values);
	CHECK(WaitUntil([&] { return cluster.StatusOf(0).checkpoint_index == cluster.StatusOf(0).commit_index; }));
	CHECK(cluster.nodes[0]->state_machine->CheckpointCount() >= 2);
	auto &reader = cluster.nodes[0]->log->Reader(raft::ROOT_GROUP);
	CHECK(WaitUntil([&] { return reader.FirstIndex() > 150; }));
	// About 110 bytes each: the tail keeps the last 18 or so.
	CHECK(reader.FirstIndex() < 195);
	cluster.Kill(0);
	cluster.Start(0);
	CHECK(cluster.AllHold(values));
	Fill(cluster, 0, 5, values);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("checkpoints run by log entries, and the tail keeps no more entries than its bound, however small they are") {
	TestCluster cluster(1, [](node::RaftEngineConfig &config) {
		config.checkpoint_log_entries = 50;
		config.checkpoint_interval = 600 * NS_PER_SECOND;
		config.checkpoint_idle = 600 * NS_PER_SECOND;
		config.log_tail_entries = 20;
	});
	cluster.StartAll();
	std::vector<std::string> values;
	Fill(cluster, 0, 200, values);
	// The last checkpoint was due at most 75 entries, the bound and a half, and one batch after the one before.
	CHECK(WaitUntil([&] { return cluster.StatusOf(0).checkpoint_index >= 125; }));
	auto &reader = cluster.nodes[0]->log->Reader(raft::ROOT_GROUP);
	auto covered = cluster.StatusOf(0).checkpoint_index;
	CHECK(WaitUntil([&] { return reader.FirstIndex() > covered - 20; }));
	CHECK(reader.FirstIndex() <= cluster.StatusOf(0).checkpoint_index - 19);
	cluster.Kill(0);
	cluster.Start(0);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("an idle node checkpoints early, a busy one by its thresholds only") {
	TestCluster cluster(1, [](node::RaftEngineConfig &config) { config.checkpoint_idle = 100 * NS_PER_MS; });
	cluster.StartAll();
	std::vector<std::string> values;
	Fill(cluster, 0, 20, values);
	CHECK(WaitUntil([&] { return cluster.StatusOf(0).checkpoint_index == cluster.StatusOf(0).commit_index; }));
	auto count = cluster.nodes[0]->state_machine->CheckpointCount();
	CHECK(count >= 1);
	CHECK(count < 20);
}

TEST_CASE("a node that never ran gets a snapshot, then the log") {
	TestCluster cluster(3, Eager);
	cluster.Start(0);
	cluster.Start(1);
	std::vector<std::string> values;
	Fill(cluster, 0, 100, values);
	CHECK(WaitUntil(
	    [&] { return cluster.StatusOf(0).checkpoint_index >= 90 && cluster.StatusOf(1).checkpoint_index >= 90; }));
	Fill(cluster, 1, 5, values);
	cluster.Start(2);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[2]->state_machine->InstallCount() == 1);
	Fill(cluster, 2, 5, values);
	CHECK(cluster.AllHold(values));
	// It can vote and lead from there on, and restart.
	cluster.Kill(2);
	cluster.Start(2);
	auto status = cluster.Transfer(cluster.WaitForLeader(), "n2");
	CHECK_MESSAGE(status.IsOk(), status.GetStatus().ToString());
	Fill(cluster, 2, 5, values);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("a follower that was away too long is brought back by a snapshot while writes go on") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto away = (leader + 1) % 3;
	std::vector<std::string> values;
	Fill(cluster, leader, 20, values);
	cluster.Kill(away);
	Fill(cluster, leader, 150, values);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 150; }));
	cluster.Start(away);
	Fill(cluster, leader, 60, values);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[away]->state_machine->InstallCount() >= 1);
}

TEST_CASE("a transfer goes on after the link broke, at the offset where it stopped; progress is shown") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) {
		Eager(config);
		config.snapshot_idle_timeout = 30 * NS_PER_SECOND;
		config.snapshot_bytes_per_second = 20000;
	});
	cluster.Start(0);
	cluster.Start(1);
	std::vector<std::string> values;
	Fill(cluster, 0, 150, values);
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader < 2);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 140; }));
	cluster.Start(2);
	auto &leader_name = cluster.nodes[leader]->name;
	REQUIRE(WaitUntil([&] { return cluster.StatusOf(2).snapshot_bytes_done > 2000; }));
	auto row = cluster.StatusOf(2);
	CHECK(row.snapshot_bytes_total > row.snapshot_bytes_done);
	CHECK(cluster.StatusOf(leader).snapshot_bytes_total == row.snapshot_bytes_total);
	cluster.network.Cut("n2", leader_name);
	REQUIRE(WaitUntil([&] { return !cluster.StatusOf(2).peers[leader].connected; }));
	auto before = cluster.StatusOf(2).snapshot_bytes_done;
	cluster.network.Heal("n2", leader_name);
	REQUIRE(WaitUntil([&] { return cluster.StatusOf(2).snapshot_bytes_done > before; }));
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[2]->state_machine->InstallCount() == 1);
}

TEST_CASE("a leader killed in the middle of a transfer is replaced as the source") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) {
		Eager(config);
		config.snapshot_bytes_per_second = 20000;
	});
	cluster.Start(0);
	cluster.Start(1);
	std::vector<std::string> values;
	Fill(cluster, 0, 150, values);
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader < 2);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 140; }));
	cluster.Start(2);
	REQUIRE(WaitUntil([&] { return cluster.StatusOf(2).snapshot_bytes_done > 2000; }));
	cluster.Kill(leader);
	// The receiver cannot vote before it is done, so the killed one must come back for a quorum.
	cluster.Start(leader);
	CHECK(cluster.AllHold(values));
	Fill(cluster, 2, 3, values);
	CHECK(cluster.AllHold(values));
}

namespace {

//! Slow enough to be cut in the middle, and so that the receiver writes down what it has on the way.
void Slow(node::RaftEngineConfig &config) {
	Eager(config);
	config.snapshot_bytes_per_second = 5000;
	config.snapshot_idle_timeout = 30 * NS_PER_SECOND;
}

node::SnapshotTransfer Receiving(TestCluster &cluster, size_t node) {
	for (auto &transfer : cluster.nodes[node]->engine->GetSnapshotTransfers()) {
		if (!transfer.is_sending) {
			return transfer;
		}
	}
	return node::SnapshotTransfer();
}

//! All that `node` sent of an image in this life; 0 = of any.
uint64_t BytesSent(TestCluster &cluster, size_t node, uint64_t image = 0) {
	uint64_t bytes = 0;
	for (auto &transfer : cluster.nodes[node]->engine->GetSnapshotTransfers()) {
		auto counts = transfer.is_sending && (image == 0 || transfer.image == image);
		bytes += counts ? transfer.bytes_moved : 0;
	}
	return bytes;
}

//! Two nodes with data, and a third one that has got more than half of an image. Returns who leads.
size_t HalfATransfer(TestCluster &cluster, std::vector<std::string> &values) {
	cluster.Start(0);
	cluster.Start(1);
	Fill(cluster, 0, 150, values);
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader < 2);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 140; }));
	cluster.Start(2);
	REQUIRE(WaitUntil([&] {
		auto row = Receiving(cluster, 2);
		return row.bytes_total > 0 && row.bytes_done > row.bytes_total / 2;
	}));
	return leader;
}

} // namespace

TEST_CASE("a receiver that dies in the middle of a transfer goes on where it was") {
	TestCluster cluster(3, Slow);
	std::vector<std::string> values;
	auto leader = HalfATransfer(cluster, values);
	auto image = Receiving(cluster, 2).image;
	auto total = Receiving(cluster, 2).bytes_total;
	cluster.Kill(2);
	cluster.Start(2);
	REQUIRE(WaitUntil([&] { return Receiving(cluster, 2).bytes_done > 0; }));
	CHECK(Receiving(cluster, 2).resumed_count == 1);
	CHECK(Receiving(cluster, 2).bytes_total == total);
	CHECK(cluster.AllHold(values));
	// Once, unless a busy machine made another node lead meanwhile: that one keeps no log for this image.
	CHECK(cluster.nodes[2]->state_machine->InstallCount() >= 1);
	CHECK(BytesSent(cluster, leader, image) < total + total / 2);
}

TEST_CASE("a transfer goes on after its source died and came back") {
	TestCluster cluster(3, Slow);
	std::vector<std::string> values;
	auto leader = HalfATransfer(cluster, values);
	auto row = Receiving(cluster, 2);
	CHECK(row.state == "receiving");
	CHECK(row.peer == cluster.nodes[leader]->name);
	CHECK(row.bytes_per_second > 0);
	CHECK(row.seconds_left >= 0);
	cluster.Kill(leader);
	cluster.Start(leader);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[2]->state_machine->InstallCount() >= 1);
	CHECK(BytesSent(cluster, leader, row.image) < row.bytes_total / 2 + 600);
}

TEST_CASE("the log behind an image is held back only up to its bound; a receiver that needs more begins anew") {
	TestCluster cluster(3, [](node::RaftEngineConfig &config) {
		Slow(config);
		config.snapshot_log_bytes_max = 2000;
	});
	std::vector<std::string> values;
	auto leader = HalfATransfer(cluster, values);
	auto &reader = cluster.nodes[leader]->log->Reader(raft::ROOT_GROUP);
	// About 110 bytes each. The image stands near 150.
	Fill(cluster, leader, 60, values);
	CHECK(WaitUntil([&] { return reader.FirstIndex() > 170; }));
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[2]->state_machine->InstallCount() >= 1);
}

TEST_CASE("two receivers at once share the rate of the source and its image") {
	TestCluster cluster(5, [](node::RaftEngineConfig &config) {
		Eager(config);
		config.snapshot_bytes_per_second = 20000;
	});
	for (size_t node = 0; node < 3; node++) {
		cluster.Start(node);
	}
	std::vector<std::string> values;
	Fill(cluster, 0, 150, values);
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader < 3);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 140; }));
	auto begun = cluster.clock.Now();
	cluster.Start(3);
	cluster.Start(4);
	CHECK(cluster.AllHold(values));
	std::set<uint64_t> images;
	for (auto &transfer : cluster.nodes[leader]->engine->GetSnapshotTransfers()) {
		images.insert(transfer.image);
	}
	CHECK(images.size() == 1);
	auto sent = BytesSent(cluster, leader);
	auto took = cluster.clock.Now() - begun;
	CHECK(sent > 20000);
	// The last piece of each is on its way before its time has passed.
	CHECK(static_cast<double>(sent) <= 20000.0 * static_cast<double>(took) / NS_PER_SECOND + 2 * 2500);
}

TEST_CASE("a crash between installing a snapshot and resetting the log is mended at start") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto victim = (leader + 1) % 3;
	std::vector<std::string> values;
	Fill(cluster, leader, 10, values);
	cluster.Kill(victim);
	Fill(cluster, leader, 100, values);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 100; }));
	// The victim's disk as such a crash leaves it: the new state, the old log.
	{
		std::lock_guard<std::mutex> guard(cluster.nodes[leader]->disk->lock);
		cluster.nodes[victim]->disk->checkpoint = cluster.nodes[leader]->disk->checkpoint;
	}
	cluster.Start(victim);
	Fill(cluster, victim, 5, values);
	CHECK(cluster.AllHold(values));
	CHECK(cluster.nodes[victim]->state_machine->InstallCount() == 0);
}

TEST_CASE("the log that an image kept goes when the image is closed, also when nothing more is written") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	auto victim = (leader + 1) % 3;
	cluster.Kill(victim);
	Fill(cluster, leader, 150, values);
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).checkpoint_index >= 140; }));
	cluster.Start(victim);
	CHECK(WaitUntil([&] { return cluster.nodes[victim]->state_machine->InstallCount() == 1; }));
	// The image is open for two seconds more: the checkpoint of these cannot cut the log yet.
	Fill(cluster, leader, 20, values);
	auto &reader = cluster.nodes[leader]->log->Reader(raft::ROOT_GROUP);
	CHECK(WaitUntil([&] {
		auto status = cluster.StatusOf(leader);
		return status.checkpoint_index == status.commit_index && reader.FirstIndex() == status.commit_index + 1;
	}));
	CHECK(cluster.AllHold(values));
}

TEST_CASE("a node that lost its state and not its log gets it from a peer, also when nobody can lead without it") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	Fill(cluster, leader, 100, values);
	auto victim = (leader + 1) % 3;
	auto other = 3 - leader - victim;
	for (auto node : {leader, victim, other}) {
		auto &reader = cluster.nodes[node]->log->Reader(raft::ROOT_GROUP);
		CHECK(WaitUntil([&] { return reader.FirstIndex() > 50; }));
	}
	cluster.Kill(victim);
	cluster.Kill(other);
	cluster.nodes[victim]->disk = std::make_shared<ListDisk>();
	cluster.Start(victim);
	// One voter and one without state: an image comes from the voter, and then the two are a majority.
	CHECK(WaitUntil([&] { return cluster.nodes[victim]->state_machine->InstallCount() == 1; }));
	CHECK(WaitUntil([&] { return cluster.StatusOf(victim).role != "reseeding"; }));
	Fill(cluster, victim, 5, values);
	cluster.Start(other);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("a node that lost its state says what it waits for; a lone one refuses to start") {
	TestCluster cluster(3, Eager);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	Fill(cluster, leader, 100, values);
	auto &reader = cluster.nodes[leader]->log->Reader(raft::ROOT_GROUP);
	CHECK(WaitUntil([&] { return reader.FirstIndex() > 50; }));
	for (size_t node = 0; node < 3; node++) {
		cluster.Kill(node);
	}
	cluster.nodes[leader]->disk = std::make_shared<ListDisk>();
	cluster.Start(leader);
	auto status = cluster.StatusOf(leader);
	CHECK(status.role == "reseeding");
	CHECK(status.reason.find("begins after index") != std::string::npos);
	CHECK(status.reason.find("getting the state from a peer") != std::string::npos);
	auto refused = cluster.Propose(leader, "too early", NS_PER_SECOND);
	CHECK(refused.status.Code() == ErrorCode::Unavailable);

	TestCluster lone(1, Eager);
	lone.StartAll();
	std::vector<std::string> alone;
	Fill(lone, 0, 100, alone);
	auto &lone_reader = lone.nodes[0]->log->Reader(raft::ROOT_GROUP);
	CHECK(WaitUntil([&] { return lone_reader.FirstIndex() > 50; }));
	lone.Kill(0);
	MemoryStateMachine empty(std::make_shared<ListDisk>());
	auto &node = *lone.nodes[0];
	node::PeerGateway gateway(node.config);
	auto transport = lone.network.Make(node.name, gateway);
	node::RaftEngine engine(node.config, *node.log, *transport, gateway, empty, lone.clock);
	auto failure = engine.Start();
	CHECK(failure.Code() == ErrorCode::Corruption);
	CHECK(failure.Message().find("no other member") != std::string::npos);
}

TEST_CASE("leftovers of broken transfers are removed at start, other files are not") {
	TestCluster cluster(1, Eager);
	auto &directory = cluster.nodes[0]->config.temp_dir;
	std::filesystem::create_directories(directory);
	std::ofstream(directory + "/incoming-snapshot-7") << "old";
	std::ofstream(directory + "/keep-me") << "mine";
	cluster.StartAll();
	CHECK(!std::filesystem::exists(directory + "/incoming-snapshot-7"));
	CHECK(std::filesystem::exists(directory + "/keep-me"));
}
