//! Goal: positions are read as they are written, and nothing else is taken for positions.
#include <doctest/doctest.h>

#include "quack/catalog/position_text.hpp"

using namespace quack;
using namespace quack::catalog;

TEST_CASE("positions come back as they were written") {
	for (auto &positions : {AppliedVector(), AppliedVector {{1, 120}}, AppliedVector {{1, 0}, {4, 7}, {19, 1}}}) {
		auto read = PositionsFromText(PositionsToText(positions));
		REQUIRE(read.IsOk());
		CHECK(read.Value() == positions);
	}
	CHECK(PositionsToText({{1, 120}, {4, 7}}) == "1:120,4:7");
}

TEST_CASE("what is no position is refused") {
	for (auto *text : {"1", "1:", ":1", "1:2,", ",1:2", "1:2;3:4", "1:2 ", "-1:2", "1:99999999999999999999"}) {
		auto read = PositionsFromText(text);
		CHECK_MESSAGE(read.GetStatus().Code() == ErrorCode::InvalidArgument, text);
	}
}

TEST_CASE("a group that is not named stands at 0") {
	CHECK(IndexIn({{1, 5}}, 1) == 5);
	CHECK(IndexIn({{1, 5}}, 2) == 0);
}
