//! The simulated disk may lose only what was not synced, only from the end, and reads must see writes at once.
#include "sim/disk.hpp"

#include <doctest/doctest.h>

using namespace quack;
using namespace quack::sim;

namespace {

LogWrite MakeWrite(raft::LogIndex first, size_t count, raft::Term term) {
	LogWrite write;
	for (size_t i = 0; i < count; i++) {
		raft::Entry entry;
		entry.index = first + i;
		entry.term = term;
		entry.payload = MakeSharedBytes("p");
		write.entries.push_back(std::move(entry));
	}
	return write;
}

} // namespace

TEST_CASE("a write is visible at once and durable only after a sync that covers it") {
	SimDisk disk {raft::SnapshotMeta()};
	uint64_t first = disk.Write(MakeWrite(1, 2, 1));
	disk.Write(MakeWrite(3, 1, 1));
	CHECK(disk.LastIndex() == 3);
	CHECK(disk.Synced().LastIndex() == 0);
	disk.CompleteSync(first);
	CHECK(disk.Synced().LastIndex() == 2);
	CHECK(disk.SyncedSeq() == first);
}

TEST_CASE("a power loss keeps every synced write and a prefix of the rest, whatever the dice say") {
	bool lost_all = false;
	bool lost_some = false;
	bool torn = false;
	for (uint64_t seed = 0; seed < 500; seed++) {
		Prng prng(seed);
		SimDisk disk {raft::SnapshotMeta()};
		disk.CompleteSync(disk.Write(MakeWrite(1, 3, 1)));
		disk.Write(MakeWrite(4, 4, 1));
		disk.Write(MakeWrite(6, 2, 2));
		disk.Crash(CrashKind::PowerLoss, prng);
		auto last = disk.LastIndex();
		REQUIRE(last >= 3);
		REQUIRE(last <= 7);
		// Index 6 exists in both terms; 2 only when the whole first batch survived.
		if (last >= 6 && disk.TermAt(6).Value() == 2) {
			REQUIRE(disk.TermAt(5).Value() == 1);
		}
		lost_all = lost_all || last == 3;
		lost_some = lost_some || last > 3;
		torn = torn || (last > 3 && last < 7);
	}
	CHECK(lost_all);
	CHECK(lost_some);
	CHECK(torn);
}

TEST_CASE("a crash of the process alone loses nothing") {
	Prng prng(1);
	SimDisk disk {raft::SnapshotMeta()};
	disk.Write(MakeWrite(1, 3, 1));
	CHECK(disk.Crash(CrashKind::Process, prng) == 0);
	CHECK(disk.LastIndex() == 3);
}

TEST_CASE("entries are cut by bytes but never to nothing, and compacted ones are not found") {
	SimDisk disk {raft::SnapshotMeta()};
	disk.Write(MakeWrite(1, 5, 1));
	CHECK(disk.Entries(2, 6, 0).Value().size() == 1);
	CHECK(disk.Entries(2, 6, 2).Value().size() == 2);
	CHECK(disk.Entries(2, 6, 100).Value().size() == 4);
	LogWrite write;
	write.truncate_prefix = raft::SnapshotMeta();
	write.truncate_prefix->index = 3;
	write.truncate_prefix->term = 1;
	disk.Write(write);
	CHECK(disk.FirstIndex() == 4);
	CHECK(disk.TermAt(3).Value() == 1);
	CHECK(disk.TermAt(2).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(disk.Entries(3, 5, 100).GetStatus().Code() == ErrorCode::NotFound);
}

TEST_CASE("recovery resets a log that its checkpoint overtook, and lifts the term to it") {
	raft::Membership membership;
	membership.voters = {1};
	RegisterMachine machine(1, membership);
	for (const auto &entry : MakeWrite(1, 4, 3).entries) {
		raft::Entry no_op = entry;
		no_op.type = raft::EntryType::NoOp;
		machine.Apply(no_op);
	}
	SimDisk disk {raft::SnapshotMeta()};
	LogWrite old = MakeWrite(1, 2, 1);
	old.hard_state = raft::HardState();
	old.hard_state->term = 2;
	old.hard_state->voted_for = 7;
	disk.CompleteSync(disk.Write(old));
	disk.checkpoint = std::make_shared<const RegisterMachine>(machine);
	disk.Recover();
	CHECK(disk.FirstIndex() == 5);
	CHECK(disk.LastIndex() == 4);
	CHECK(disk.Written().base.membership == membership);
	CHECK(disk.Written().hard_state.term == 3);
	CHECK(disk.Written().hard_state.voted_for == raft::NO_NODE);
}
