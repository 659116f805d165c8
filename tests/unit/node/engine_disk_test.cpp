//! Goal: full, hung and failing disks do to the engine what DESIGN.md says, through the real log. Method: segmented
//! logs over file systems in memory that break on demand, three engines over a network in memory.
#include <doctest/doctest.h>

#include "quack/storage/segmented_log.hpp"
#include "quack/storage/testing/fault_file_system.hpp"
#include "unit/node/test_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

class FaultyDiskCluster final : public TestCluster {
public:
	FaultyDiskCluster() : TestCluster(3) {
		for (size_t i = 0; i < nodes.size(); i++) {
			disks.push_back(std::make_unique<storage::FaultFileSystem>(i + 1));
		}
		StartAll();
	}
	~FaultyDiskCluster() override {
		for (size_t i = 0; i < nodes.size(); i++) {
			disks[i]->HangSyncs(false);
			Kill(i);
			nodes[i]->log.reset(); // before its disk
		}
	}
	storage::FaultFileSystem &Disk(size_t node) {
		return *disks[node];
	}

protected:
	std::unique_ptr<storage::LogStore> OpenLog(TestNode &node) override {
		node.log.reset();
		storage::LogOptions options;
		options.directory = "/log";
		options.segment_bytes = 64 * 1024;
		options.prepare_in_background = false;
		auto log = storage::OpenSegmentedLog(*disks[static_cast<size_t>(node.name[1] - '0')], options);
		REQUIRE_MESSAGE(log.IsOk(), log.GetStatus().ToString());
		return std::move(log.Value());
	}

private:
	std::vector<std::unique_ptr<storage::FaultFileSystem>> disks;
};

void Fill(TestCluster &cluster, size_t node, int count, std::vector<std::string> &values) {
	for (int i = 0; i < count; i++) {
		auto value = "value " + std::to_string(values.size()) + std::string(1000, '.');
		auto outcome = cluster.Propose(node, value);
		REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
		values.push_back(value);
	}
}

} // namespace

TEST_CASE("a follower whose disk fills up falls behind, says so, and catches up when space returns") {
	FaultyDiskCluster cluster;
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto full = (leader + 1) % 3;
	std::vector<std::string> values;
	Fill(cluster, leader, 5, values);
	cluster.Disk(full).SetCapacity(150 * 1024);
	Fill(cluster, leader, 300, values);
	CHECK(WaitUntil([&] {
		return cluster.StatusOf(full).reason.find("no space on " + cluster.nodes[full]->name + ": ") !=
		       std::string::npos;
	}));
	CHECK(!cluster.nodes[full]->engine->IsDegraded());
	cluster.Disk(full).SetCapacity(UINT64_MAX);
	CHECK(cluster.AllHold(values));
	CHECK(WaitUntil([&] { return cluster.StatusOf(full).reason.empty(); }));
}

TEST_CASE("a follower whose sync fails latches, and comes back after a restart with what it had") {
	FaultyDiskCluster cluster;
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	auto broken = (leader + 1) % 3;
	std::vector<std::string> values;
	Fill(cluster, leader, 5, values);
	cluster.Disk(broken).FailSyncs(1);
	Fill(cluster, leader, 5, values);
	CHECK(WaitUntil([&] { return cluster.nodes[broken]->engine->IsDegraded(); }));
	CHECK(cluster.StatusOf(broken).reason.find("durable log") != std::string::npos);
	cluster.Kill(broken);
	cluster.Start(broken);
	Fill(cluster, leader, 5, values);
	CHECK(cluster.AllHold(values));
}

TEST_CASE("a leader whose disk hangs is reported and hands over; it follows again once the disk answers") {
	FaultyDiskCluster cluster;
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values;
	Fill(cluster, leader, 5, values);
	cluster.Disk(leader).HangSyncs(true);
	auto other = (leader + 1) % 3;
	// The others commit without it, so the write itself goes through.
	Fill(cluster, other, 1, values);
	CHECK(WaitUntil([&] {
		auto now_leading = cluster.WaitForLeader();
		return now_leading != SIZE_MAX && now_leading != leader;
	}));
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).reason.find("has not answered for") != std::string::npos; }));
	Fill(cluster, other, 5, values);
	// It takes nothing new of its own.
	auto refused = cluster.Propose(leader, "not here").status;
	CHECK(refused.Code() == ErrorCode::Unavailable);
	CHECK(refused.Message().find("has not answered for") != std::string::npos);
	CHECK(!cluster.nodes[leader]->engine->HungDisk().empty());
	cluster.Disk(leader).HangSyncs(false);
	CHECK(cluster.AllHold(values));
	CHECK(WaitUntil([&] { return cluster.StatusOf(leader).reason.empty(); }));
}
