//! Goal: what ByteWriter writes ByteReader reads, and no input makes the reader leave its bounds.
#include <doctest/doctest.h>

#include "quack/common/bytes.hpp"
#include "quack/common/crc32c.hpp"
#include "quack/common/prng.hpp"

using namespace quack;

TEST_CASE("values written are read back, at every varint width") {
	std::string out;
	ByteWriter writer(out);
	writer.PutU8(0xab);
	writer.PutU16(0xabcd);
	writer.PutU32(0xdeadbeef);
	writer.PutU64(0x0123456789abcdefULL);
	for (unsigned bits = 0; bits < 64; bits++) {
		writer.PutVarint((uint64_t(1) << bits) - 1);
		writer.PutVarint(uint64_t(1) << bits);
	}
	writer.PutVarint(UINT64_MAX);
	writer.PutBytes(std::string_view("a\0b", 3));
	ByteReader reader(out);
	CHECK(reader.GetU8() == 0xab);
	CHECK(reader.GetU16() == 0xabcd);
	CHECK(reader.GetU32() == 0xdeadbeef);
	CHECK(reader.GetU64() == 0x0123456789abcdefULL);
	for (unsigned bits = 0; bits < 64; bits++) {
		CHECK(reader.GetVarint() == (uint64_t(1) << bits) - 1);
		CHECK(reader.GetVarint() == uint64_t(1) << bits);
	}
	CHECK(reader.GetVarint() == UINT64_MAX);
	CHECK(reader.GetBytes() == std::string_view("a\0b", 3));
	CHECK(reader.Done());
}

TEST_CASE("every truncation fails, stays failed and reads zero") {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(7);
	writer.PutVarint(uint64_t(1) << 40);
	writer.PutBytes("hello");
	for (size_t size = 0; size < out.size(); size++) {
		ByteReader reader(ByteView(out).substr(0, size));
		reader.GetU64();
		reader.GetVarint();
		auto text = reader.GetBytes();
		CHECK(reader.Failed());
		CHECK(text.empty());
		CHECK(reader.GetU32() == 0);
	}
}

TEST_CASE("an over-long varint is refused") {
	std::string eleven(11, '\xff');
	ByteReader reader(eleven);
	reader.GetVarint();
	CHECK(reader.Failed());
}

TEST_CASE("CRC-32C: the check value of RFC 3720 and splitting anywhere") {
	CHECK(Crc32c("123456789") == 0xE3069283U);
	CHECK(Crc32c(std::string(32, '\0')) == 0x8A9136AAU);
	Prng prng(1);
	std::string bytes;
	for (int i = 0; i < 100; i++) {
		bytes.push_back(static_cast<char>(prng.Next()));
	}
	for (size_t cut = 0; cut <= bytes.size(); cut++) {
		auto head = Crc32c(ByteView(bytes).substr(0, cut));
		CHECK(Crc32c(ByteView(bytes).substr(cut), head) == Crc32c(bytes));
	}
}

TEST_CASE("a sealed record comes back whole, and not at all when anything of it is missing or changed") {
	for (std::string record : {std::string(), std::string("x"), std::string(1000, 'r')}) {
		auto sealed = record;
		SealRecord(sealed);
		REQUIRE(UnsealRecord(sealed).has_value());
		CHECK(*UnsealRecord(sealed) == record);
		for (size_t i = 0; i < sealed.size(); i++) {
			CHECK(!UnsealRecord(ByteView(sealed).substr(0, i)));
			auto changed = sealed;
			changed[i] = static_cast<char>(changed[i] ^ 1);
			CHECK(!UnsealRecord(changed));
		}
	}
}
