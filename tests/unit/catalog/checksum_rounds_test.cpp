//! Goal: the verdict on replicas that differ is that of the majority of the voters, never of fewer, whatever is late or
//! missing.
#include <algorithm>

#include <doctest/doctest.h>
#include "quack/catalog/checksum_rounds.hpp"

namespace quack {
namespace catalog {
namespace {

using Names = std::vector<std::string>;

const Names THREE = {"n0", "n1", "n2"};

ObjectHash Table(const std::string &name, const std::string &hash) {
	ObjectHash object;
	object.schema = "main";
	object.object = name;
	object.type = "table";
	object.rows = 7;
	object.hash = hash;
	return object;
}

//! Of node `node`, which holds the table t with this value; no value = it has no t. All hold the table same.
ChecksumReport Report(raft::LogIndex index, const std::string &node, const std::string &value, uint64_t life = 1) {
	ChecksumReport report;
	report.member = std::hash<std::string>()(node);
	report.node_id = node;
	report.life = life;
	report.index = index;
	report.cost_us = 10;
	report.objects.push_back(Table("same", "00"));
	if (!value.empty()) {
		report.objects.push_back(Table("t", value));
	}
	return report;
}

ChecksumReport Failure(raft::LogIndex index, const std::string &node) {
	ChecksumReport report;
	report.node_id = node;
	report.index = index;
	report.failure = "no time";
	return report;
}

//! "n0=equal n1=odd" for table t (or another) in one round, by node.
std::string Verdicts(const ChecksumRounds &rounds, raft::LogIndex index, const Names &voters,
                     const std::string &object = "t") {
	std::string text;
	for (auto &row : rounds.Rows(voters)) {
		if (row.index == index && (row.hash.object == object || row.verdict == "not_computed")) {
			text += (text.empty() ? "" : " ") + row.node_id + "=" + row.verdict;
		}
	}
	return text;
}

Names Odd(const std::vector<ObjectVerdict> &verdicts) {
	Names odd;
	for (auto &verdict : verdicts) {
		CHECK(verdict.object == "t");
		CHECK(verdict.differs);
		for (auto &member : verdict.odd) {
			odd.push_back(member.node_id);
		}
	}
	return odd;
}

} // namespace

TEST_CASE("equal replicas are pending until a majority of the voters has reported, then equal") {
	ChecksumRounds rounds;
	CHECK(rounds.Add(Report(5, "n0", "aa"), THREE).empty());
	CHECK(Verdicts(rounds, 5, THREE) == "n0=pending");
	CHECK(rounds.Add(Report(5, "n1", "aa"), THREE).empty());
	CHECK(Verdicts(rounds, 5, THREE) == "n0=equal n1=equal");
	CHECK(rounds.Add(Report(5, "n2", "aa"), THREE).empty());
	CHECK(Verdicts(rounds, 5, THREE, "same") == "n0=equal n1=equal n2=equal");
}

TEST_CASE("the odd node is named as soon as the majority stands, in every order of reports") {
	Names order = THREE;
	do {
		ChecksumRounds rounds;
		std::vector<ObjectVerdict> last;
		size_t right = 0;
		for (auto &node : order) {
			bool is_odd = node == "n1";
			last = rounds.Add(Report(5, node, is_odd ? "bb" : "aa"), THREE);
			right += is_odd ? 0 : 1;
			if (right < 2) {
				CHECK(Odd(last).empty());
			}
		}
		CHECK(Odd(last) == Names {"n1"});
		CHECK(last[0].is_decided);
		CHECK(last[0].majority.hash == "aa");
		CHECK(last[0].odd[0].value.hash == "bb");
		CHECK(last[0].odd[0].member == std::hash<std::string>()("n1"));
		CHECK(last[0].values == "n0: 7 rows, hash aa; n1: 7 rows, hash bb; n2: 7 rows, hash aa");
		CHECK(Verdicts(rounds, 5, THREE) == "n0=equal n1=odd n2=equal");
		CHECK(Verdicts(rounds, 5, THREE, "same") == "n0=equal n1=equal n2=equal");
	} while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("an object that is missing, or is there alone, is a difference") {
	ChecksumRounds rounds;
	rounds.Add(Report(5, "n0", "aa"), THREE);
	rounds.Add(Report(5, "n1", "aa"), THREE);
	auto missing = rounds.Add(Report(5, "n2", ""), THREE);
	CHECK(Odd(missing) == Names {"n2"});
	CHECK(missing[0].odd[0].value.hash.empty());
	CHECK(missing[0].values.find("n2: it does not exist") != std::string::npos);

	rounds.Add(Report(9, "n0", ""), THREE);
	rounds.Add(Report(9, "n1", "aa"), THREE);
	auto alone = rounds.Add(Report(9, "n2", ""), THREE);
	CHECK(Odd(alone) == Names {"n1"});
	CHECK(alone[0].majority.hash.empty());
}

TEST_CASE("a tie blames nobody") {
	Names two = {"n0", "n1"};
	ChecksumRounds rounds;
	rounds.Add(Report(5, "n0", "aa"), two);
	auto verdicts = rounds.Add(Report(5, "n1", "bb"), two);
	REQUIRE(verdicts.size() == 1);
	CHECK(verdicts[0].is_undecidable);
	CHECK(Odd(verdicts).empty());
	CHECK(Verdicts(rounds, 5, two) == "n0=no_majority n1=no_majority");

	Names four = {"n0", "n1", "n2", "n3"};
	rounds.Add(Report(9, "n0", "aa"), four);
	rounds.Add(Report(9, "n1", "aa"), four);
	verdicts = rounds.Add(Report(9, "n2", "bb"), four);
	CHECK(!verdicts[0].is_undecidable); // the fourth may still decide it
	CHECK(Verdicts(rounds, 9, four) == "n0=differs n1=differs n2=differs");
	verdicts = rounds.Add(Report(9, "n3", "bb"), four);
	CHECK(verdicts[0].is_undecidable);
	CHECK(Odd(verdicts).empty());

	rounds.Add(Report(12, "n0", "aa"), THREE);
	rounds.Add(Report(12, "n1", "bb"), THREE);
	verdicts = rounds.Add(Report(12, "n2", "cc"), THREE);
	CHECK(verdicts[0].is_undecidable);
	CHECK(Odd(verdicts).empty());
}

TEST_CASE("missing, late and failed reports decide nothing") {
	Names five = {"n0", "n1", "n2", "n3", "n4"};
	ChecksumRounds rounds;
	rounds.Add(Report(5, "n0", "aa"), five);
	rounds.Add(Report(5, "n1", "aa"), five);
	CHECK(Odd(rounds.Add(Report(5, "n2", "bb"), five)).empty()); // two of five are no majority of those that spoke
	CHECK(Odd(rounds.Add(Failure(5, "n3"), five)).empty());
	CHECK(Verdicts(rounds, 5, five) == "n0=differs n1=differs n2=differs n3=not_computed");
	// A later round goes on in the meantime; the late report still completes its own.
	rounds.Add(Report(8, "n0", "aa"), five);
	CHECK(Odd(rounds.Add(Report(5, "n4", "aa"), five)) == Names {"n2"});
	CHECK(Verdicts(rounds, 8, five) == "n0=pending");
	// Failures alone: nothing is shown as equal.
	rounds.Add(Failure(11, "n0"), THREE);
	rounds.Add(Failure(11, "n1"), THREE);
	CHECK(Verdicts(rounds, 11, THREE) == "n0=not_computed n1=not_computed");
}

TEST_CASE("learners are judged but have no vote") {
	ChecksumRounds rounds;
	rounds.Add(Report(5, "l0", "bb"), THREE);
	rounds.Add(Report(5, "l1", "bb"), THREE);
	CHECK(Odd(rounds.Add(Report(5, "n0", "aa"), THREE)).empty());
	CHECK(Odd(rounds.Add(Report(5, "n1", "aa"), THREE)) == Names {"l0", "l1"});
}

TEST_CASE("the voters of the moment decide when they change during a round") {
	ChecksumRounds rounds;
	Names five = {"n0", "n1", "n2", "n3", "n4"};
	rounds.Add(Report(5, "n0", "aa"), THREE);
	// Two were promoted: two of three would have been enough, two of five are not.
	CHECK(Odd(rounds.Add(Report(5, "n1", "aa"), five)).empty());
	CHECK(Odd(rounds.Add(Report(5, "n3", "bb"), five)).empty());
	CHECK(Odd(rounds.Add(Report(5, "n2", "aa"), five)) == Names {"n3"});
	// A voter that left has said what it said, but counts no more.
	rounds.Add(Report(9, "n0", "aa"), THREE);
	rounds.Add(Report(9, "n1", "bb"), THREE);
	Names later = {"n1", "n2", "n5"};
	CHECK(Odd(rounds.Add(Report(9, "n2", "bb"), later)) == Names {"n0"});
	// While no voter is known nobody is blamed.
	rounds.Add(Report(12, "n0", "aa"), {});
	rounds.Add(Report(12, "n1", "aa"), {});
	auto verdicts = rounds.Add(Report(12, "n2", "bb"), {});
	CHECK(Odd(verdicts).empty());
	CHECK(!verdicts[0].is_undecidable);
}

TEST_CASE("two disks under one name have one vote, that of the later") {
	ChecksumRounds rounds;
	rounds.Add(Report(5, "n0", "bb", 1), THREE);
	rounds.Add(Report(5, "n0", "bb", 2), THREE);
	CHECK(Odd(rounds.Add(Report(5, "n1", "aa"), THREE)).empty());
	rounds.Add(Report(5, "n0", "aa", 3), THREE);
	CHECK(Odd(rounds.Add(Report(5, "n2", "bb"), THREE)) == Names {"n2"});
	CHECK(rounds.Rows(THREE).size() == 6); // three nodes, two objects
}

TEST_CASE("marks of two leaders are two rounds") {
	ChecksumRounds rounds;
	rounds.Add(Report(5, "n0", "aa"), THREE);
	rounds.Add(Report(6, "n1", "aa"), THREE);
	rounds.Add(Report(6, "n2", "bb"), THREE);
	CHECK(Verdicts(rounds, 5, THREE) == "n0=pending"); // values of different indexes are not compared
	CHECK(Verdicts(rounds, 6, THREE) == "n1=differs n2=differs");
	CHECK(Odd(rounds.Add(Report(6, "n0", "aa"), THREE)) == Names {"n2"});
	CHECK(Verdicts(rounds, 5, THREE) == "n0=pending");
}

TEST_CASE("memory is bounded, and a difference outlives the equal rounds after it") {
	ChecksumRounds rounds;
	for (raft::LogIndex index = 1; index <= 50; index++) {
		rounds.Add(Report(index, "n0", "aa"), THREE);
		rounds.Add(Report(index, "n1", "aa"), THREE);
		rounds.Add(Report(index, "n2", index == 3 || index == 40 ? "bb" : "aa"), THREE);
	}
	std::vector<raft::LogIndex> kept;
	for (auto &row : rounds.Rows(THREE)) {
		if (kept.empty() || kept.back() != row.index) {
			kept.push_back(row.index);
		}
	}
	CHECK(kept == std::vector<raft::LogIndex> {3, 40, 49, 50});
	for (raft::LogIndex index = 51; index <= 90; index++) {
		rounds.Add(Report(index, "n0", "aa"), THREE);
		rounds.Add(Report(index, "n2", "bb"), THREE);
	}
	CHECK(rounds.Rows(THREE).size() <= (2 + 4) * 6);
}

TEST_CASE("the cost is the highest of the newest round in which somebody hashed") {
	ChecksumRounds rounds;
	CHECK(rounds.NewestCostUs() == 0);
	auto dear = Report(5, "n1", "aa");
	dear.cost_us = 5000;
	rounds.Add(Report(5, "n0", "aa"), THREE);
	rounds.Add(dear, THREE);
	rounds.Add(Failure(8, "n0"), THREE);
	CHECK(rounds.NewestCostUs() == 5000);
	rounds.Add(Report(8, "n2", "aa"), THREE);
	CHECK(rounds.NewestCostUs() == 10);
}

TEST_CASE("reports survive encoding; other bytes are refused") {
	auto report = Report(77, "n1", "aa", 9);
	report.failure = "why";
	auto bytes = Encode(report);
	auto decoded = DecodeChecksumReport(bytes);
	REQUIRE(decoded.IsOk());
	CHECK(Encode(decoded.Value()) == bytes);
	CHECK(decoded.Value().life == 9);
	CHECK(decoded.Value().objects.back().applied_index == 77);
	for (size_t length = 0; length < bytes.size(); length++) {
		CHECK(DecodeChecksumReport(ByteView(bytes).substr(0, length)).GetStatus().Code() == ErrorCode::Corruption);
	}
	CHECK(!DecodeChecksumReport(bytes + "x").IsOk());
	bytes[0] = 2;
	CHECK(DecodeChecksumReport(bytes).GetStatus().Message().find("version 2") != std::string::npos);
}

} // namespace catalog
} // namespace quack
