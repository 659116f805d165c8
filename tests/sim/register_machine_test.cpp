//! The image that snapshots carry: the whole machine, or nothing.
#include "sim/register_machine.hpp"

#include <doctest/doctest.h>

#include "quack/raft/raft.hpp"

using namespace quack;
using namespace quack::sim;

TEST_CASE("an image decodes to the machine that was encoded, and any change of its bytes is noticed") {
	raft::Membership membership;
	membership.voters = {1, 2, 3};
	RegisterMachine machine(2, membership);
	machine.Apply({1, 1, raft::EntryType::NoOp, MakeSharedBytes("")});
	machine.Apply({1, 2, raft::EntryType::Normal, EncodeCommand({7, OpKind::Write, 1, 42, 0}, 3)});
	membership.voters = {1, 2};
	machine.Apply({2, 3, raft::EntryType::Membership, MakeSharedBytes(raft::EncodeMembership(membership))});
	auto bytes = machine.Encode();
	auto decoded = RegisterMachine::Decode(bytes);
	REQUIRE(decoded.IsOk());
	auto &copy = decoded.Value();
	CHECK(copy.AppliedIndex() == 3);
	CHECK(copy.AppliedTerm() == 2);
	CHECK(copy.HistoryHash() == machine.HistoryHash());
	CHECK(copy.Read(1) == 42);
	CHECK(copy.AppliedOps() == std::vector<uint32_t> {7});
	CHECK(copy.MembershipAt(2).voters.size() == 3);
	CHECK(copy.MembershipAt(3) == membership);
	CHECK(copy.Encode() == bytes);
	for (size_t i = 0; i < bytes.size(); i++) {
		auto bent = bytes;
		bent[i] = static_cast<char>(bent[i] ^ 4);
		CHECK(!RegisterMachine::Decode(bent).IsOk());
		CHECK(!RegisterMachine::Decode(ByteView(bytes).substr(0, i)).IsOk());
	}
}
