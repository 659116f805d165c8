//! Histories with a planted anomaly must be refused, equal ones without it accepted, and the search must agree with a
//! deliberately dumb one on small random histories.
#include "sim/checkers/linearizability_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "quack/common/prng.hpp"

using namespace quack;
using namespace quack::sim;

namespace {

constexpr uint64_t PENDING = HistoryOp::PENDING;
constexpr uint64_t STEPS_MAX = 100000;

HistoryOp Make(OpKind kind, uint64_t invoke, uint64_t complete, uint32_t observed) {
	static uint32_t next = 1;
	HistoryOp op;
	op.op = next++;
	op.kind = kind;
	op.invoke = invoke;
	op.complete = complete;
	op.observed = observed;
	return op;
}

HistoryOp Read(uint64_t invoke, uint64_t complete, uint32_t observed) {
	return Make(OpKind::Read, invoke, complete, observed);
}

HistoryOp Write(uint32_t value, uint64_t invoke, uint64_t complete, uint32_t observed) {
	HistoryOp op = Make(OpKind::Write, invoke, complete, observed);
	op.value = value;
	return op;
}

HistoryOp Cas(uint32_t expected, uint32_t value, uint64_t invoke, uint64_t complete, uint32_t observed) {
	HistoryOp op = Make(OpKind::Cas, invoke, complete, observed);
	op.expected = expected;
	op.value = value;
	return op;
}

Verdict Check(const std::vector<HistoryOp> &history) {
	return CheckLinearizability(history, STEPS_MAX).verdict;
}

//! Tries every order of every subset of the pending operations: slow, and hard to get wrong.
bool DumbSearch(const std::vector<HistoryOp> &history, uint64_t placed, uint32_t value) {
	bool complete = true;
	for (size_t i = 0; i < history.size(); i++) {
		complete = complete && ((placed >> i & 1) != 0 || history[i].complete == PENDING);
	}
	if (complete) {
		return true;
	}
	for (size_t i = 0; i < history.size(); i++) {
		if ((placed >> i & 1) != 0) {
			continue;
		}
		const HistoryOp &op = history[i];
		bool first = true;
		for (size_t j = 0; j < history.size(); j++) {
			first = first && ((placed >> j & 1) != 0 || history[j].complete > op.invoke);
		}
		bool fits = op.complete == PENDING || op.observed == value;
		bool changes = op.kind == OpKind::Write || (op.kind == OpKind::Cas && op.expected == value);
		if (first && fits && DumbSearch(history, placed | 1ULL << i, changes ? op.value : value)) {
			return true;
		}
	}
	return false;
}

} // namespace

TEST_CASE("a sequential history is accepted") {
	CHECK(Check({}) == Verdict::Linearizable);
	CHECK(Check({Write(1, 1, 2, 0), Read(3, 4, 1), Cas(1, 2, 5, 6, 1), Cas(1, 3, 7, 8, 2), Read(9, 10, 2)}) ==
	      Verdict::Linearizable);
}

TEST_CASE("overlapping operations may take effect in either order") {
	CHECK(Check({Write(1, 1, 10, 0), Read(2, 3, 0), Read(4, 5, 1)}) == Verdict::Linearizable);
	CHECK(Check({Write(1, 1, 10, 2), Write(2, 2, 9, 0), Read(11, 12, 1)}) == Verdict::Linearizable);
}

TEST_CASE("a stale read is refused: the write it misses was acknowledged before it began") {
	CHECK(Check({Write(1, 1, 2, 0), Read(3, 4, 0)}) == Verdict::NotLinearizable);
	CHECK(Check({Write(1, 1, 2, 0), Write(2, 3, 4, 1), Read(5, 6, 1)}) == Verdict::NotLinearizable);
}

TEST_CASE("a read that goes back is refused: two reads see new, then old, while the write is still open") {
	CHECK(Check({Write(1, 1, 20, 0), Read(2, 3, 1), Read(4, 5, 0)}) == Verdict::NotLinearizable);
}

TEST_CASE("a lost update is refused: two writes found the same value") {
	CHECK(Check({Write(1, 1, 10, 0), Write(2, 2, 9, 0)}) == Verdict::NotLinearizable);
	CHECK(Check({Write(1, 1, 2, 0), Cas(1, 2, 3, 10, 1), Cas(1, 3, 4, 9, 1)}) == Verdict::NotLinearizable);
}

TEST_CASE("a value from nowhere and a value from the future are refused") {
	CHECK(Check({Read(1, 2, 7)}) == Verdict::NotLinearizable);
	CHECK(Check({Read(1, 2, 7), Write(7, 3, 4, 0)}) == Verdict::NotLinearizable);
}

TEST_CASE("an operation without known outcome may take effect late, or never, but only once") {
	HistoryOp unknown = Write(5, 1, PENDING, 0);
	CHECK(Check({unknown, Read(2, 3, 0), Read(4, 5, 0)}) == Verdict::Linearizable);
	CHECK(Check({unknown, Read(2, 3, 0), Read(4, 5, 5)}) == Verdict::Linearizable);
	CHECK(Check({unknown, Read(2, 3, 5), Write(6, 4, 5, 5), Read(6, 7, 5)}) == Verdict::NotLinearizable);
	CHECK(Check({Write(1, 1, 2, 0), unknown, Cas(5, 6, 3, 4, 5), Read(5, 6, 6)}) == Verdict::Linearizable);
}

TEST_CASE("a pending compare-and-set that was seen proves what it found") {
	// 2 can only come from the cas, which needs the value 1 of the other pending write.
	CHECK(Check({Write(1, 1, PENDING, 0), Cas(1, 2, 2, PENDING, 0), Read(3, 4, 2)}) == Verdict::Linearizable);
	CHECK(Check({Cas(1, 2, 2, PENDING, 0), Read(3, 4, 2)}) == Verdict::NotLinearizable);
}

TEST_CASE("many reads at once cost no search: they are placed as soon as they fit") {
	std::vector<HistoryOp> history;
	for (uint32_t i = 0; i < 200; i++) {
		history.push_back(Read(1 + i, 2000 + i, i % 2 == 0 ? 0 : 7));
	}
	history.push_back(Write(7, 500, 1000, 0));
	LinearizabilityResult good = CheckLinearizability(history, STEPS_MAX);
	CHECK(good.verdict == Verdict::Linearizable);
	history.push_back(Read(1001, 1002, 0));
	CHECK(CheckLinearizability(history, STEPS_MAX).verdict == Verdict::NotLinearizable);
}

TEST_CASE("a search that gives up is unknown, never a pass") {
	std::vector<HistoryOp> history;
	for (uint32_t i = 0; i < 20; i++) {
		history.push_back(Write(i + 1, i + 1, 1000 + i, 999));
	}
	history.push_back(Read(500, 501, 0));
	CHECK(CheckLinearizability(history, 10).verdict == Verdict::Unknown);
}

TEST_CASE("agrees with the exhaustive search on small random histories") {
	Prng prng(20240801);
	uint64_t refused = 0;
	constexpr uint64_t ROUNDS = 20000;
	for (uint64_t round = 0; round < ROUNDS; round++) {
		std::vector<HistoryOp> history;
		size_t count = 1 + prng.Below(6);
		std::vector<uint64_t> times;
		for (uint64_t time = 1; time <= 2 * count; time++) {
			times.push_back(time);
		}
		for (size_t i = times.size() - 1; i > 0; i--) {
			std::swap(times[i], times[prng.Below(i + 1)]);
		}
		for (size_t i = 0; i < count; i++) {
			uint64_t a = std::min(times[2 * i], times[2 * i + 1]);
			uint64_t b = prng.Chance(1, 4) ? PENDING : std::max(times[2 * i], times[2 * i + 1]);
			auto value = static_cast<uint32_t>(i + 1);
			auto observed = static_cast<uint32_t>(prng.Below(count + 1));
			auto expected = static_cast<uint32_t>(prng.Below(count + 1));
			uint64_t kind = prng.Below(3);
			history.push_back(kind == 0   ? Read(a, b, observed)
			                  : kind == 1 ? Write(value, a, b, observed)
			                              : Cas(expected, value, a, b, observed));
		}
		bool dumb = DumbSearch(history, 0, 0);
		refused += dumb ? 0 : 1;
		REQUIRE((Check(history) == Verdict::Linearizable) == dumb);
	}
	CHECK(refused > ROUNDS / 10);
	CHECK(refused < ROUNDS * 9 / 10);
}
