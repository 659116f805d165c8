//! Goal: the payload of a membership entry is stable on disk and garbage is refused. Method: golden bytes, round trips
//! of random memberships, every truncation and every changed byte of one.
#include <doctest/doctest.h>

#include "quack/common/prng.hpp"
#include "quack/raft/raft.hpp"

using namespace quack;
using namespace quack::raft;

static Membership MakeJoint() {
	Membership membership;
	membership.voters = {1, 2, 0x0102030405060708ULL};
	membership.outgoing = {1, 3};
	membership.learners = {9};
	membership.learners_next = {3};
	return membership;
}

TEST_CASE("notes travel with a membership, and only then change its format") {
	auto membership = MakeJoint();
	membership.notes[7] = "seven";
	membership.notes[9] = std::string("\0x", 2);
	auto bytes = EncodeMembership(membership);
	CHECK(DecodeMembership(bytes).Value() == membership);
	CHECK(bytes.substr(1, EncodeMembership(MakeJoint()).size() - 1) == EncodeMembership(MakeJoint()).substr(1));
	for (size_t size = 0; size < bytes.size(); size++) {
		CHECK_FALSE(DecodeMembership(ByteView(bytes).substr(0, size)).IsOk());
	}
	auto no_notes = EncodeMembership(MakeJoint());
	no_notes[0] = 2;
	no_notes += '\0';
	CHECK_FALSE(DecodeMembership(no_notes).IsOk());
}

TEST_CASE("golden bytes of format 1") {
	static const std::string EXPECTED("\x01"
	                                  "\x03\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01"
	                                  "\x02\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"
	                                  "\x01\x09\0\0\0\0\0\0\0"
	                                  "\x01\x03\0\0\0\0\0\0\0"
	                                  "\x01",
	                                  1 + 25 + 17 + 9 + 9 + 1);
	CHECK(EncodeMembership(MakeJoint()) == EXPECTED);
	CHECK(DecodeMembership(EXPECTED).Value() == MakeJoint());
}

TEST_CASE("what was encoded is decoded") {
	Prng prng(4);
	for (int round = 0; round < 500; round++) {
		Membership membership;
		for (auto list : {&membership.voters, &membership.outgoing, &membership.learners, &membership.learners_next}) {
			NodeId node = 0;
			for (auto count = prng.Below(5); count > 0; count--) {
				node += 1 + (prng.Next() >> 8);
				list->push_back(node);
			}
		}
		membership.auto_leave = prng.Chance(1, 2);
		CHECK(DecodeMembership(EncodeMembership(membership)).Value() == membership);
	}
}

TEST_CASE("truncations, extra bytes, other formats, unsorted and doubled nodes are Corruption") {
	auto bytes = EncodeMembership(MakeJoint());
	for (size_t size = 0; size < bytes.size(); size++) {
		CHECK(DecodeMembership(ByteView(bytes).substr(0, size)).GetStatus().Code() == ErrorCode::Corruption);
	}
	CHECK(DecodeMembership(bytes + "x").GetStatus().Code() == ErrorCode::Corruption);
	auto other_format = bytes;
	other_format[0] = 2;
	CHECK(DecodeMembership(other_format).GetStatus().Code() == ErrorCode::Corruption);
	auto membership = MakeJoint();
	membership.voters = {2, 1};
	CHECK_FALSE(DecodeMembership(EncodeMembership(membership)).IsOk());
	membership.voters = {2, 2};
	CHECK_FALSE(DecodeMembership(EncodeMembership(membership)).IsOk());
	membership.voters = {0};
	CHECK_FALSE(DecodeMembership(EncodeMembership(membership)).IsOk());
	// A huge count must not make it allocate.
	CHECK_FALSE(DecodeMembership(std::string("\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10)).IsOk());
}

TEST_CASE("no changed byte makes it crash, and what it accepts is well-formed") {
	auto bytes = EncodeMembership(MakeJoint());
	for (size_t position = 0; position < bytes.size(); position++) {
		for (int value = 0; value < 256; value++) {
			auto changed = bytes;
			changed[position] = static_cast<char>(value);
			auto decoded = DecodeMembership(changed);
			if (decoded.IsOk()) {
				CHECK(EncodeMembership(decoded.Value()) == changed);
			}
		}
	}
}
