//! Goal: the parts of transactions over several groups keep the rules of cpp/GROUPS.md. Method: direct calls; a model
//! of the locks for random histories.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "quack/node/prepared_parts.hpp"
#include "quack/node/transaction_driver.hpp"
#include "quack/node/transaction_finisher.hpp"

using namespace quack;
using namespace quack::node;

namespace {

TransactionId Id(uint8_t number) {
	TransactionId id {};
	id[0] = number;
	return id;
}

LockSet Rows(const std::string &table, std::vector<uint64_t> rows) {
	LockSet locks;
	AddLock(locks, {table, LockKind::Rows, std::move(rows)});
	return locks;
}

LockSet Table(const std::string &table, LockKind kind) {
	LockSet locks;
	AddLock(locks, {table, kind, {}});
	return locks;
}

PreparedPart Part(LockSet locks, raft::LogIndex index = 1) {
	PreparedPart part;
	part.index = index;
	part.locks = std::move(locks);
	return part;
}

TransactionEntry Decoded(const std::string &payload) {
	auto entry = DecodeTransactionEntry(payload);
	REQUIRE(entry.IsOk());
	return entry.Value();
}

std::vector<TransactionPart> Parts(const std::vector<raft::GroupId> &groups) {
	std::vector<TransactionPart> parts;
	for (auto group : groups) {
		parts.push_back({group, Rows("t", {group}), "body " + std::to_string(group)});
	}
	return parts;
}

} // namespace

TEST_CASE("entries come back as they were written") {
	TransactionEntry entry;
	entry.kind = TransactionEntryKind::Decision;
	entry.id = Id(7);
	entry.planned_version = 300;
	entry.coordinator = 9;
	entry.prepares = {{2, 70000}, {5, 1}};
	entry.decided = {4, 12};
	entry.body = "effects";
	AddLock(entry.locks, {"b", LockKind::Rows, {3, 1, 3}});
	AddLock(entry.locks, {"a", LockKind::SharedTable, {}});
	auto bytes = EncodeTransactionEntry(entry);
	CHECK(IsTransactionEntry(bytes));
	auto back = Decoded(bytes);
	CHECK(back.kind == entry.kind);
	CHECK(back.id == entry.id);
	CHECK(back.planned_version == 300);
	CHECK(back.coordinator == 9);
	CHECK(back.prepares == entry.prepares);
	CHECK(back.decided == entry.decided);
	CHECK(back.body == "effects");
	REQUIRE(back.locks.size() == 2);
	CHECK(back.locks[0].table == "a");
	CHECK(back.locks[1].rows == std::vector<uint64_t>({1, 3}));
	for (size_t size = 0; size < bytes.size(); size++) {
		CHECK_FALSE(DecodeTransactionEntry(ByteView(bytes).substr(0, size)).IsOk());
	}
	CHECK(DecodeTransactionEntry(bytes + "x").GetStatus().Code() == ErrorCode::Corruption);
	bytes[2] = 77;
	CHECK(DecodeTransactionEntry(bytes).GetStatus().Code() == ErrorCode::Incompatible);
	CHECK_FALSE(IsTransactionEntry(std::string("\x01\x00", 2)));
}

TEST_CASE("an entry needs what its proposer had applied") {
	TransactionEntry entry;
	entry.planned_version = 8;
	entry.prepares = {{2, 5}, {3, 6}};
	entry.decided = {2, 40};
	entry.kind = TransactionEntryKind::Prepare;
	CHECK(NeedsOf(entry, 2) == std::vector<Position>({{1, 8}}));
	CHECK(NeedsOf(entry, raft::ROOT_GROUP).empty());
	entry.kind = TransactionEntryKind::Decision;
	CHECK(NeedsOf(entry, raft::ROOT_GROUP) == std::vector<Position>({{2, 5}, {3, 6}}));
	entry.kind = TransactionEntryKind::Release;
	CHECK(NeedsOf(entry, 3) == std::vector<Position>({{2, 40}}));
}

TEST_CASE("locks clash by kind") {
	struct Case {
		LockSet held;
		LockSet wanted;
		bool clash;
	};
	std::vector<Case> cases = {
	    {Rows("t", {1, 2}), Rows("t", {2}), true},
	    {Rows("t", {1, 2}), Rows("t", {3}), false},
	    {Rows("t", {1}), Rows("u", {1}), false},
	    {Rows("t", {}), Rows("t", {}), false},
	    {Rows("t", {}), Table("t", LockKind::SharedTable), true},
	    {Rows("t", {}), Table("t", LockKind::WholeTable), true},
	    {Table("t", LockKind::SharedTable), Table("t", LockKind::SharedTable), false},
	    {Table("t", LockKind::SharedTable), Rows("t", {}), true},
	    {Table("t", LockKind::WholeTable), Rows("t", {}), true},
	    {Table("t", LockKind::WholeTable), Table("t", LockKind::SharedTable), true},
	};
	for (auto &test : cases) {
		PreparedParts parts;
		REQUIRE_FALSE(parts.Prepare(5, Id(1), Part(test.held)));
		CHECK(parts.FindClash(5, test.wanted, Id(2)).has_value() == test.clash);
		CHECK_FALSE(parts.FindClash(5, test.wanted, Id(1)));
		CHECK_FALSE(parts.FindClash(6, test.wanted, Id(2)));
		auto refused = parts.Prepare(5, Id(2), Part(test.wanted));
		CHECK(refused.has_value() == test.clash);
		if (refused) {
			CHECK(refused->holder == Id(1));
			CHECK(refused->table == "t");
		}
		CHECK(parts.Release(5, Id(1)));
		CHECK_FALSE(parts.Release(5, Id(1)));
		CHECK_FALSE(parts.Prepare(5, Id(3), Part(test.clash ? test.wanted : LockSet())));
	}
}

TEST_CASE("reading and writing a table takes all of it") {
	LockSet locks = Rows("t", {4});
	AddLock(locks, {"t", LockKind::SharedTable, {}});
	REQUIRE(locks.size() == 1);
	CHECK(locks[0].kind == LockKind::WholeTable);
	CHECK(locks[0].rows.empty());
}

TEST_CASE("random locks: nobody holds what clashes, and nothing is left behind") {
	std::mt19937 random(20261128);
	auto draw = [&](uint32_t below) {
		return static_cast<uint32_t>(random() % below);
	};
	PreparedParts parts;
	std::map<TransactionId, LockSet> held;
	auto clashes = [](const LockSet &one, const LockSet &other) {
		for (auto &a : one) {
			for (auto &b : other) {
				if (a.table != b.table) {
					continue;
				}
				auto both_rows = a.kind == LockKind::Rows && b.kind == LockKind::Rows;
				auto both_shared = a.kind == LockKind::SharedTable && b.kind == LockKind::SharedTable;
				std::vector<uint64_t> common;
				std::set_intersection(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(),
				                      std::back_inserter(common));
				if (both_rows ? !common.empty() : !both_shared) {
					return true;
				}
			}
		}
		return false;
	};
	size_t granted = 0;
	size_t refused = 0;
	for (int round = 0; round < 20000; round++) {
		auto id = Id(static_cast<uint8_t>(draw(12)));
		if (held.count(id) != 0) {
			CHECK(parts.Release(1, id));
			held.erase(id);
			continue;
		}
		LockSet wanted;
		for (uint32_t i = 0; i <= draw(3); i++) {
			auto kind = draw(8) == 0 ? LockKind::WholeTable : draw(6) == 0 ? LockKind::SharedTable : LockKind::Rows;
			TableLock lock {std::string(1, static_cast<char>('a' + draw(4))), kind, {}};
			for (uint32_t row = 0; kind == LockKind::Rows && row < draw(4); row++) {
				lock.rows.push_back(draw(10));
			}
			AddLock(wanted, std::move(lock));
		}
		auto expected = false;
		for (auto &other : held) {
			expected = expected || clashes(wanted, other.second);
		}
		auto clash = parts.Prepare(1, id, Part(wanted));
		REQUIRE(clash.has_value() == expected);
		if (clash) {
			REQUIRE(clashes(wanted, held.at(clash->holder)));
			refused++;
			continue;
		}
		granted++;
		held[id] = wanted;
	}
	CHECK(granted > 1000);
	CHECK(refused > 1000);
	for (auto &entry : held) {
		CHECK(parts.Release(1, entry.first));
	}
	CHECK(parts.IsEmpty(1));
	CHECK_FALSE(parts.FindClash(1, Table("a", LockKind::WholeTable), Id(99)));
}

TEST_CASE("a driver prepares, decides and releases") {
	TransactionDriver driver(Id(1), 10, Parts({raft::ROOT_GROUP, 4, 7}), false);
	CHECK(driver.Coordinator() == raft::ROOT_GROUP);
	auto prepares = driver.TakeProposals();
	REQUIRE(prepares.size() == 2);
	CHECK(prepares[1].group == 4);
	auto prepare = Decoded(prepares[0].payload);
	CHECK(prepare.kind == TransactionEntryKind::Prepare);
	CHECK(prepare.coordinator == raft::ROOT_GROUP);
	CHECK(prepare.body == "body 7");
	CHECK(driver.TakeProposals().empty());
	driver.OnPrepared(7, 30, true);
	driver.OnPrepared(7, 31, false); // a repeated proposal's answer
	CHECK(driver.TakeProposals().empty());
	driver.OnPrepared(4, 12, true);
	auto decisions = driver.TakeProposals();
	REQUIRE(decisions.size() == 1);
	CHECK(decisions[0].group == raft::ROOT_GROUP);
	auto decision = Decoded(decisions[0].payload);
	CHECK(decision.prepares == std::vector<Position>({{4, 12}, {7, 30}}));
	CHECK(decision.body == "body 1");
	CHECK_FALSE(driver.GiveUp());
	driver.OnDecided(88);
	auto releases = driver.TakeProposals();
	REQUIRE(releases.size() == 2);
	CHECK(Decoded(releases[0].payload).decided == Position {raft::ROOT_GROUP, 88});
	driver.OnDecided(89);
	CHECK(driver.TakeProposals().empty());
}

TEST_CASE("without a part in the root group the smallest group decides") {
	TransactionDriver driver(Id(1), 10, Parts({9, 4, 7}), true);
	CHECK(driver.Coordinator() == 4);
	auto first = driver.TakeProposals();
	REQUIRE(first.size() == 1);
	CHECK(first[0].group == 9); // descending: the decision, in the smallest group, comes last
	driver.OnPrepared(9, 3, true);
	auto second = driver.TakeProposals();
	REQUIRE(second.size() == 1);
	CHECK(second[0].group == 7);
}

TEST_CASE("a refused prepare ends in a void entry, and what was prepared is released") {
	TransactionDriver driver(Id(1), 10, Parts({4, 7, 9}), false);
	driver.TakeProposals();
	driver.OnPrepared(7, 3, true);
	driver.OnPrepared(9, 5, false);
	auto proposals = driver.TakeProposals();
	REQUIRE(proposals.size() == 1);
	CHECK(proposals[0].kind == TransactionProposal::Kind::Void);
	CHECK(proposals[0].group == 4);
	CHECK_FALSE(driver.GiveUp());
	driver.OnDecided(6);
	CHECK(driver.TakeProposals().size() == 2);
}

TEST_CASE("giving up while prepares are on their way releases them too") {
	TransactionDriver driver(Id(1), 10, Parts({4, 7, 9}), true);
	driver.TakeProposals();
	CHECK(driver.GiveUp());
	auto proposals = driver.TakeProposals();
	REQUIRE(proposals.size() == 1);
	CHECK(proposals[0].kind == TransactionProposal::Kind::Void);
	driver.OnPrepared(9, 3, true); // late
	CHECK(driver.TakeProposals().empty());
	driver.OnDecided(6);
	auto releases = driver.TakeProposals();
	REQUIRE(releases.size() == 1); // group 7 was never asked
	CHECK(releases[0].group == 9);
}

TEST_CASE("the leader of a group ends what its driver left behind") {
	TransactionFinisher finisher(1000, 100, 300);
	PreparedAtLeader part;
	part.group = 7;
	part.id = Id(3);
	part.coordinator = 4;
	CHECK(finisher.Step(10, {part}).empty());
	CHECK(finisher.Step(1009, {part}).empty());
	auto voided = finisher.Step(1010, {part});
	REQUIRE(voided.size() == 1);
	CHECK(voided[0].id == Id(3));
	CHECK(voided[0].proposal.kind == TransactionProposal::Kind::Void);
	CHECK(voided[0].proposal.group == 4);
	CHECK(finisher.Step(1309, {part}).empty());
	CHECK(finisher.Step(1310, {part}).size() == 1);
	part.decided = 55;
	CHECK(finisher.Step(1320, {part}).empty()); // its driver may live
	auto released = finisher.Step(1420, {part});
	REQUIRE(released.size() == 1);
	CHECK(released[0].proposal.group == 7);
	CHECK(Decoded(released[0].proposal.payload).decided == Position {4, 55});
	CHECK(finisher.Step(1500, {}).empty());
	CHECK(finisher.Step(5000, {part}).empty()); // prepared anew: patience anew
}
