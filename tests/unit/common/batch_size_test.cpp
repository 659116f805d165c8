//! Goal: batches near the wanted size whatever rows come, and a refusal of what no batch can hold.
#include <doctest/doctest.h>

#include <vector>

#include "quack/common/batch_size.hpp"

using namespace quack;

namespace {

constexpr size_t WANTED = 1000;
constexpr size_t ROWS_MAX = 2048;

//! Encodes `total` rows of `row_bytes`; the size of each batch.
std::vector<size_t> Batches(BatchSize &size, size_t total, size_t row_bytes) {
	std::vector<size_t> batches;
	while (total > 0) {
		auto count = size.Rows(total);
		REQUIRE(count > 0);
		auto fit = size.Note(count * row_bytes, count);
		REQUIRE(fit != BatchSize::Fit::RowTooLarge);
		if (fit == BatchSize::Fit::Yes) {
			batches.push_back(count * row_bytes);
			total -= count;
		}
	}
	return batches;
}

} // namespace

TEST_CASE("batches come near the wanted size and do not exceed it") {
	for (size_t row_bytes : {1, 3, 10, 99, 500, 1000}) {
		BatchSize size(WANTED, ROWS_MAX);
		auto batches = Batches(size, 20000, row_bytes);
		for (auto bytes : batches) {
			CHECK(bytes <= WANTED);
		}
		CHECK(batches[batches.size() / 2] >= WANTED / 4);
	}
}

TEST_CASE("rows may change their size on the way") {
	BatchSize size(WANTED, ROWS_MAX);
	Batches(size, 5000, 1);
	for (auto bytes : Batches(size, 50, 400)) {
		CHECK(bytes <= WANTED);
	}
	auto small = Batches(size, 5000, 1);
	CHECK(small[small.size() / 2] > WANTED / 4);
}

TEST_CASE("a batch has no more rows than allowed") {
	BatchSize size(WANTED * WANTED, ROWS_MAX);
	Batches(size, 100000, 1);
	CHECK(size.Rows(100000) == ROWS_MAX);
	CHECK(size.Rows(7) == 7);
}

TEST_CASE("one row is a batch, be it larger than wanted, up to the limit of rows") {
	BatchSize size(WANTED, ROWS_MAX);
	CHECK(size.Note(64 * ROW_BYTES_MAX, 64) == BatchSize::Fit::Again);
	CHECK(size.Rows(64) == 1);
	CHECK(size.Note(ROW_BYTES_MAX, 1) == BatchSize::Fit::Yes);
	CHECK(size.Note(ROW_BYTES_MAX + 1, 1) == BatchSize::Fit::RowTooLarge);
}
