//! Goal: only a whole stream, in order, each fragment once, passes for a transaction. Method: the rules alone; random
//! deliveries against a dumb model.
#include <doctest/doctest.h>

#include "quack/catalog/fragments.hpp"
#include "quack/common/crc32c.hpp"
#include "quack/common/prng.hpp"

using namespace quack;
using namespace quack::catalog;

namespace {

StreamId IdOf(uint8_t number) {
	StreamId id;
	id.fill(number);
	return id;
}

Fragment MakeFragment(uint32_t sequence, ByteView bytes, uint8_t stream = 1) {
	Fragment fragment;
	fragment.stream = IdOf(stream);
	fragment.sequence = sequence;
	fragment.bytes = bytes;
	return fragment;
}

OpenStream NewStream() {
	OpenStream open;
	open.group = 3;
	open.stream = IdOf(1);
	open.request_id = IdOf(9);
	return open;
}

FragmentsEnd EndOf(uint32_t count, const std::string &bytes) {
	FragmentsEnd end;
	end.stream = IdOf(1);
	end.count = count;
	end.bytes = bytes.size();
	end.crc = Crc32c(bytes);
	return end;
}

} // namespace

TEST_CASE("fragments: what is encoded decodes to the same, and nothing shorter or longer decodes") {
	auto content = EncodeFragment(MakeFragment(7, "some bytes"));
	auto fragment = DecodeFragment(content);
	REQUIRE(fragment.IsOk());
	CHECK(fragment.Value().stream == IdOf(1));
	CHECK(fragment.Value().sequence == 7);
	CHECK(fragment.Value().bytes == "some bytes");
	for (size_t size = 0; size <= 20; size++) { // without bytes it is none
		CHECK(DecodeFragment(ByteView(content).substr(0, size)).GetStatus().Code() == ErrorCode::Corruption);
	}

	auto end_content = EncodeFragmentsEnd(EndOf(5, "abc"));
	auto end = DecodeFragmentsEnd(end_content);
	REQUIRE(end.IsOk());
	CHECK(end.Value().stream == IdOf(1));
	CHECK(end.Value().count == 5);
	CHECK(end.Value().bytes == 3);
	CHECK(end.Value().crc == Crc32c("abc"));
	auto open = NewStream();
	REQUIRE(open.Take(MakeFragment(0, "abc"), 17));
	auto open_content = EncodeOpenStream(open);
	auto again = DecodeOpenStream(open_content);
	REQUIRE(again.IsOk());
	CHECK(EncodeOpenStream(again.Value()) == open_content);
	CHECK(again.Value().group == 3);
	CHECK(again.Value().request_id == IdOf(9));
	CHECK(again.Value().first_index == 17);
	CHECK(again.Value().crc == Crc32c("abc"));
	for (auto &whole : {end_content, open_content, EncodeStreamId(IdOf(4))}) {
		for (size_t size = 0; size < whole.size(); size++) {
			auto cut = ByteView(whole).substr(0, size);
			CHECK((whole != end_content || !DecodeFragmentsEnd(cut).IsOk()));
			CHECK((whole != open_content || !DecodeOpenStream(cut).IsOk()));
			CHECK((whole.size() != 16 || !DecodeStreamId(cut).IsOk()));
		}
		CHECK(!DecodeFragmentsEnd(whole + "x").IsOk());
		CHECK(!DecodeOpenStream(whole + "x").IsOk());
		CHECK(!DecodeStreamId(whole + "x").IsOk());
	}
}

TEST_CASE("fragments: repeats, gaps and foreign fragments change nothing") {
	auto open = NewStream();
	CHECK(!open.Take(MakeFragment(1, "b"), 10));
	CHECK(open.Take(MakeFragment(0, "a"), 11));
	CHECK(!open.Take(MakeFragment(0, "a"), 12));
	CHECK(!open.Take(MakeFragment(2, "c"), 13));
	CHECK(!open.Take(MakeFragment(1, "b", 2), 14));
	CHECK(open.Take(MakeFragment(1, "b"), 15));
	CHECK(open.first_index == 11);
	CHECK(open.last_index == 15);
	CHECK(open.Check(EndOf(2, "ab")).IsOk());
	for (auto &end : {EndOf(1, "a"), EndOf(3, "abc"), EndOf(2, "ac"), EndOf(2, "abc")}) {
		CHECK(open.Check(end).Code() == ErrorCode::Conflict);
	}
	auto other = EndOf(2, "ab");
	other.stream = IdOf(2);
	CHECK(open.Check(other).Code() == ErrorCode::Conflict);
}

TEST_CASE("fragments: tables stay near their size, each begins when the one before is full") {
	auto open = NewStream();
	const std::string bytes(3 * 1024 * 1024, 'x');
	uint64_t in_table = 0;
	for (uint32_t i = 0; i < 40; i++) {
		auto table_before = open.tables;
		REQUIRE(open.Take(MakeFragment(i, bytes), i + 1));
		in_table = open.tables == table_before ? in_table + bytes.size() : bytes.size();
		CHECK(open.last_table_bytes == in_table);
		CHECK(in_table < FRAGMENT_TABLE_BYTES + bytes.size());
	}
	CHECK(open.tables == 7); // 6 fragments each
}

TEST_CASE("fragments: under any delivery only the whole stream passes") {
	for (uint64_t seed = 1; seed <= 500; seed++) {
		Prng random(seed);
		const uint32_t count = 1 + uint32_t(random.Below(6));
		std::vector<std::string> pieces;
		std::string whole;
		for (uint32_t i = 0; i < count; i++) {
			pieces.push_back(std::string(1 + random.Below(20), char('a' + random.Below(26))));
			whole += pieces.back();
		}
		auto open = NewStream();
		uint32_t next = 0;
		for (raft::LogIndex index = 1; index <= 12; index++) {
			auto sequence = uint32_t(random.Below(count));
			CHECK(open.Take(MakeFragment(sequence, pieces[sequence]), index) == (sequence == next));
			next += sequence == next ? 1 : 0;
		}
		CHECK(open.Check(EndOf(count, whole)).IsOk() == (next == count));
	}
}
