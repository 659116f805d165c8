//! Goal: committed entries of many groups are handed out in an order that keeps the rules of cpp/GROUPS.md, loses
//! nothing, and holds up nobody without need. Method: entries whose payload says what they need, "3:7 4:1" = index 7 of
//! group 3 and index 1 of group 4; the order drawn by a seed is compared with the rules themselves.
#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "quack/common/prng.hpp"
#include "quack/node/apply_order.hpp"

using namespace quack;
using namespace quack::node;

namespace {

std::vector<Position> NeedsOf(const CommittedEntry &entry) {
	std::vector<Position> needs;
	std::istringstream words(*entry.entry.payload);
	Position need;
	char colon = 0;
	while (words >> need.group >> colon >> need.index) {
		needs.push_back(need);
	}
	return needs;
}

raft::Entry MakeEntry(raft::LogIndex index, const std::string &needs = "") {
	return {1, index, raft::EntryType::Normal, MakeSharedBytes(needs)};
}

std::vector<raft::Entry> Entries(raft::LogIndex first, raft::LogIndex last) {
	std::vector<raft::Entry> entries;
	for (auto index = first; index <= last; index++) {
		entries.push_back(MakeEntry(index));
	}
	return entries;
}

//! "1:1 1:2 2:1", the entries of a batch in order.
std::string Text(const ApplyOrder::Batch &batch) {
	std::string text;
	for (auto &entry : batch.entries) {
		text += (text.empty() ? "" : " ") + std::to_string(entry.group) + ":" + std::to_string(entry.entry.index);
	}
	return text;
}

ApplyOrder MakeOrder(size_t entries_max = 100, size_t bytes_max = 1 << 20) {
	ApplyOrder::Limits limits;
	limits.entries_max = entries_max;
	limits.bytes_max = bytes_max;
	return ApplyOrder(limits, NeedsOf);
}

} // namespace

TEST_CASE("an entry goes out with what it needs in the same batch, and waits alone when that is missing") {
	auto order = MakeOrder();
	order.Push(2, {MakeEntry(1, "3:2"), MakeEntry(2)});
	order.Push(3, {MakeEntry(1)});
	order.Push(4, {MakeEntry(1), MakeEntry(2)});
	CHECK(Text(order.Take()) == "3:1 4:1 4:2");
	auto held = order.Waiting();
	REQUIRE(held.size() == 1);
	CHECK(held[0].group == 2);
	CHECK(held[0].count == 2);
	REQUIRE(held[0].head);
	CHECK(held[0].head->need == Position {3, 2});
	CHECK(held[0].head->Words() == "index 1 of group 2 waits for index 2 of group 3, which is applied up to 1");
	CHECK(order.Take().Empty());
	CHECK(order.Check().IsOk());
	order.Push(3, {MakeEntry(2)});
	CHECK(Text(order.Take()) == "3:2 2:1 2:2");
	CHECK(order.Count() == 0);
	CHECK(order.Bytes() == 0);
	CHECK(order.AppliedIndex(2) == 2);
}

TEST_CASE("a batch keeps its bounds and serves every group that can go on") {
	auto order = MakeOrder(6);
	order.Push(1, Entries(1, 100));
	order.Push(2, Entries(1, 3));
	order.Push(3, Entries(1, 100));
	auto batch = order.Take();
	CHECK(batch.entries.size() == 6);
	CHECK(Text(batch) == "1:1 1:2 2:1 2:2 3:1 3:2");
	CHECK(batch.reached == std::vector<Position> {{1, 2}, {2, 2}, {3, 2}});
	// The one after the last served comes first, and what a short queue leaves is used by the others.
	CHECK(Text(order.Take()) == "1:3 1:4 2:3 3:3 3:4 1:5");

	auto narrow = MakeOrder(100, 2 * ApplyOrder::Cost(MakeEntry(1)));
	narrow.Push(1, Entries(1, 3));
	CHECK(Text(narrow.Take()) == "1:1 1:2");
	CHECK(Text(narrow.Take()) == "1:3");
	auto tiny = MakeOrder(1, 1);
	tiny.Push(1, Entries(1, 1));
	tiny.Push(2, Entries(1, 1));
	CHECK(Text(tiny.Take()) == "1:1");
	CHECK(Text(tiny.Take()) == "2:1");
}

TEST_CASE("what an image covers is skipped and reported, also what waited for something only the image brings") {
	auto order = MakeOrder();
	order.Push(1, Entries(1, 4));
	order.Push(2, {MakeEntry(1, "3:50"), MakeEntry(2), MakeEntry(3)});
	CHECK(Text(order.Take()) == "1:1 1:2 1:3 1:4");
	order.SetApplied({{1, 6, 1, {}}, {2, 2, 1, {}}, {3, 60, 1, {}}});
	auto batch = order.Take();
	CHECK(Text(batch) == "2:3");
	CHECK(batch.reached == std::vector<Position> {{2, 3}});
	order.Push(2, Entries(4, 4));
	order.SetApplied({{2, 4, 1, {}}});
	batch = order.Take();
	CHECK(batch.entries.empty());
	CHECK(!batch.Empty());
	CHECK(batch.reached == std::vector<Position> {{2, 4}});
	// The cores go on behind the image.
	order.Push(1, Entries(7, 7));
	order.Push(3, Entries(61, 61));
	CHECK(Text(order.Take()) == "3:61 1:7");
}

TEST_CASE("a retired group is dropped and nobody waits for it any more") {
	auto order = MakeOrder();
	order.SetGroups({{2, "two", {}}, {3, "three", {}}});
	order.Push(2, {MakeEntry(1, "3:9")});
	order.Push(3, {MakeEntry(1, "4:1")});
	CHECK(order.Take().Empty());
	order.SetGroups({{2, "two", {}}, {4, "four", {}}});
	CHECK(Text(order.Take()) == "2:1");
	CHECK(order.Count() == 0);
	CHECK(order.Bytes() == 0);
	order.Push(3, Entries(2, 2));
	CHECK(order.Count() == 0);
	// One that does not exist yet may still come.
	order.Push(2, {MakeEntry(2, "5:1")});
	CHECK(order.Take().Empty());
	CHECK(order.Check().IsOk());
	order.SetGroups({{2, "two", {}}, {4, "four", {}}, {5, "five", {}}});
	order.Push(5, Entries(1, 1));
	CHECK(Text(order.Take()) == "5:1 2:2");
}

TEST_CASE("entries that can never be applied are named, and only those") {
	auto order = MakeOrder();
	order.Push(2, {MakeEntry(1, "3:2")});
	order.Push(3, {MakeEntry(1, "4:1")});
	order.Push(4, {MakeEntry(1, "5:7")});
	CHECK(order.Take().Empty());
	CHECK(order.Check().IsOk());
	order.Push(5, {MakeEntry(1, "1:1 3:1")});
	CHECK(order.Take().Empty());
	auto status = order.Check();
	CHECK(status.Code() == ErrorCode::Internal);
	CHECK(
	    status.Message() ==
	    "committed entries wait for each other and can never be applied: index 1 of group 3 waits for index 1 of group "
	    "4, which is applied up to 0; index 1 of group 4 waits for index 7 of group 5, which is applied up to 0; index "
	    "1 of group 5 waits for index 1 of group 3, which is applied up to 0");
	auto alone = MakeOrder();
	alone.Push(2, {MakeEntry(1, "2:1")});
	CHECK(alone.Take().Empty());
	CHECK(alone.Check().Code() == ErrorCode::Internal);
}

TEST_CASE("whatever comes in whatever order, all is handed out once, in order, and never before what it needs") {
	for (uint64_t seed = 1; seed <= 200; seed++) {
		Prng prng(seed);
		constexpr raft::GroupId GROUPS = 6;
		constexpr raft::LogIndex LENGTH = 40;
		// Entries are made in one drawn order; each may need what was made before it, as commits do.
		std::map<raft::GroupId, std::vector<raft::Entry>> logs;
		for (size_t i = 0; i < GROUPS * LENGTH; i++) {
			auto group = 1 + prng.Below(GROUPS);
			std::string needs;
			for (raft::GroupId other = 1; other <= GROUPS; other++) {
				if (other != group && !logs[other].empty() && prng.Below(4) == 0) {
					needs += std::to_string(other) + ":" + std::to_string(1 + prng.Below(logs[other].size())) + " ";
				}
			}
			logs[group].push_back(MakeEntry(logs[group].size() + 1, needs));
		}
		auto order = MakeOrder(1 + prng.Below(20), 64 + prng.Below(4000));
		std::map<raft::GroupId, size_t> pushed;
		std::map<raft::GroupId, raft::LogIndex> applied;
		size_t total = 0;
		auto all_pushed = false;
		while (true) {
			auto batch = order.Take();
			for (auto &entry : batch.entries) {
				REQUIRE(entry.entry.index == applied[entry.group] + 1);
				for (auto &need : NeedsOf(entry)) {
					REQUIRE(applied[need.group] >= need.index);
				}
				applied[entry.group] = entry.entry.index;
				total++;
			}
			if (batch.Empty() && all_pushed) {
				break;
			}
			all_pushed = true;
			for (auto &log : logs) {
				auto &begin = pushed[log.first];
				auto end = std::min<size_t>(log.second.size(), begin + prng.Below(10));
				order.Push(log.first, {log.second.begin() + static_cast<ptrdiff_t>(begin),
				                       log.second.begin() + static_cast<ptrdiff_t>(end)});
				begin = end;
				all_pushed = all_pushed && begin == log.second.size();
			}
			REQUIRE(order.Check().IsOk());
		}
		REQUIRE(total == GROUPS * LENGTH);
		REQUIRE(order.Count() == 0);
	}
}
