//! The oracle beside the real log: it must accept every crash the file system can make, and notice what must not be.
#include "sim/disk.hpp"

#include <doctest/doctest.h>

using namespace quack;
using namespace quack::sim;

namespace {

LogWrite MakeWrite(raft::LogIndex first, size_t count, raft::Term term, size_t payload_bytes = 1) {
	LogWrite write;
	for (size_t i = 0; i < count; i++) {
		raft::Entry entry;
		entry.index = first + i;
		entry.term = term;
		entry.payload = MakeSharedBytes(std::string(payload_bytes, 'p'));
		write.entries.push_back(std::move(entry));
	}
	return write;
}

LogWrite WithTerm(LogWrite write, raft::Term term, raft::NodeId vote) {
	write.hard_state = raft::HardState {term, vote, 0};
	return write;
}

struct Fixture {
	explicit Fixture(uint64_t seed = 1, uint32_t recovery_crash_percent = 0)
	    : prng(seed), disk({seed, 0, 1, recovery_crash_percent, true, {}}, raft::SnapshotMeta(), sink) {
	}
	void SyncAll() {
		disk.Sync();
		disk.CompleteSync(disk.WrittenSeq());
	}

	Prng prng;
	ViolationSink sink;
	SimDisk disk;
};

} // namespace

TEST_CASE("a write is visible at once, durable after a sync, and known to be so when that is announced") {
	Fixture f;
	uint64_t first = f.disk.Write(MakeWrite(1, 2, 1));
	f.disk.Sync();
	f.disk.Write(MakeWrite(3, 1, 1));
	CHECK(f.disk.LastIndex() == 3);
	CHECK(f.disk.Synced().LastIndex() == 0);
	f.disk.CompleteSync(first);
	CHECK(f.disk.Synced().LastIndex() == 2);
	CHECK(f.disk.SyncedSeq() == first);
	CHECK(!f.sink.Any());
}

TEST_CASE("a power loss keeps every synced write and a prefix of the rest, whatever the dice say") {
	bool lost_all = false;
	bool lost_some = false;
	bool lost_none = false;
	uint64_t interrupted = 0;
	for (uint64_t seed = 0; seed < 500; seed++) {
		Fixture f(seed, 30);
		f.disk.Write(WithTerm(MakeWrite(1, 3, 1), 1, 7));
		f.SyncAll();
		f.disk.Write(MakeWrite(4, 4, 1, 400));
		f.disk.Write(WithTerm(MakeWrite(6, 2, 2), 2, 0));
		f.disk.Crash(CrashKind::PowerLoss, BitFlip::None, f.prng);
		REQUIRE_MESSAGE(!f.sink.Any(), f.sink.First().message);
		auto last = f.disk.LastIndex();
		REQUIRE(last >= 3);
		REQUIRE(last <= 7);
		// Index 6 exists in both terms; 2 only when the whole first batch survived.
		auto is_second = last >= 6 && f.disk.TermAt(6).Value() == 2;
		REQUIRE((!is_second || f.disk.Written().hard_state.term == 2));
		lost_all = lost_all || last == 3;
		lost_some = lost_some || (last > 3 && !is_second);
		lost_none = lost_none || (is_second && last == 7);
		interrupted += f.disk.Counters().recoveries_interrupted;
	}
	CHECK(lost_all);
	CHECK(lost_some);
	CHECK(lost_none);
	CHECK(interrupted > 0);
}

TEST_CASE("the power may go off inside any call: what was synced stays, what was not is a prefix") {
	uint64_t cuts = 0;
	uint64_t opened = 0;
	for (uint64_t seed = 0; seed < 300; seed++) {
		Fixture f(seed, 30);
		raft::LogIndex synced = 0;
		f.disk.CutPowerAfter(1 + seed % 60);
		for (raft::LogIndex index = 1; index <= 40; index++) {
			f.disk.Write(MakeWrite(index, 1, 1, 1500));
			if (f.disk.HasLostPower()) {
				break;
			}
			if (index % 3 == 0 && f.disk.Sync()) {
				synced = index;
			}
			if (f.disk.HasLostPower()) {
				break;
			}
		}
		cuts += f.disk.HasLostPower() ? 1 : 0;
		f.disk.Crash(CrashKind::PowerLoss, BitFlip::None, f.prng);
		REQUIRE_MESSAGE(!f.sink.Any(), f.sink.First().message);
		REQUIRE(f.disk.LastIndex() >= synced);
		opened += f.disk.Counters().segments_opened;
	}
	CHECK(cuts == 300);
	CHECK(opened > 500);
}

TEST_CASE("a sync that nobody was told of survives the power loss too") {
	for (uint64_t seed = 0; seed < 50; seed++) {
		Fixture f(seed);
		f.disk.Write(MakeWrite(1, 3, 1));
		f.disk.Sync();
		f.disk.Write(MakeWrite(4, 1, 1));
		f.disk.Crash(CrashKind::PowerLoss, BitFlip::None, f.prng);
		REQUIRE(!f.sink.Any());
		REQUIRE(f.disk.LastIndex() >= 3);
	}
}

TEST_CASE("a crash of the process alone loses nothing") {
	Fixture f;
	f.disk.Write(MakeWrite(1, 3, 1));
	CHECK(f.disk.Crash(CrashKind::Process, BitFlip::None, f.prng) == 0);
	CHECK(f.disk.LastIndex() == 3);
	CHECK(!f.sink.Any());
}

TEST_CASE("segments are opened when they are full and released behind a synced truncation") {
	Fixture f;
	for (raft::LogIndex index = 1; index <= 40; index++) {
		f.disk.Write(MakeWrite(index, 1, 1, 2000));
	}
	auto opened = f.disk.Counters().segments_opened;
	CHECK(opened > 3);
	CHECK(f.disk.Counters().segments_released == 0);
	LogWrite write;
	write.truncate_prefix = raft::SnapshotMeta {35, 1, {}};
	f.disk.Write(write);
	f.SyncAll();
	CHECK(f.disk.Counters().segments_released > 2);
	f.disk.Crash(CrashKind::PowerLoss, BitFlip::None, f.prng);
	CHECK(f.disk.FirstIndex() == 36);
	CHECK(f.disk.LastIndex() == 40);
	CHECK(f.disk.Entries(36, 41, SIZE_MAX).Value().size() == 5);
	CHECK(f.disk.TermAt(34).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(f.disk.Entries(35, 41, 100).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(!f.sink.Any());
}

TEST_CASE("a flipped bit in an unsynced entry is cut like a torn one") {
	uint64_t flips = 0;
	for (uint64_t seed = 0; seed < 300; seed++) {
		Fixture f(seed, 30);
		f.disk.Write(MakeWrite(1, 3, 1));
		f.SyncAll();
		f.disk.Write(MakeWrite(4, 4, 1));
		f.disk.Crash(CrashKind::PowerLoss, BitFlip::Unsynced, f.prng);
		REQUIRE_MESSAGE(!f.sink.Any(), f.sink.First().message);
		REQUIRE(!f.disk.IsDamaged());
		REQUIRE(f.disk.LastIndex() >= 3);
		flips += f.disk.Counters().unsynced_flips;
	}
	CHECK(flips > 50);
}

TEST_CASE("a flipped bit before the acknowledged end is answered by Corruption at the next start") {
	for (uint64_t seed = 0; seed < 300; seed++) {
		Fixture f(seed);
		f.disk.Write(WithTerm(MakeWrite(1, 3, 1), 1, 7));
		f.SyncAll();
		f.disk.Write(MakeWrite(4, 2, 1));
		f.SyncAll();
		bool is_open = seed % 2 == 0;
		REQUIRE((!is_open || f.disk.Rot(f.prng)));
		auto flip = is_open ? BitFlip::None : BitFlip::Acknowledged;
		f.disk.Crash(seed % 3 == 0 ? CrashKind::Process : CrashKind::PowerLoss, flip, f.prng);
		REQUIRE_MESSAGE(!f.sink.Any(), f.sink.First().message);
		REQUIRE(f.disk.IsDamaged());
		REQUIRE(f.disk.Synced().LastIndex() == 5);
	}
}

TEST_CASE("the reader answers Corruption when it meets a flipped bit") {
	Fixture f;
	f.disk.Write(MakeWrite(1, 1, 1));
	f.SyncAll();
	f.disk.Write(MakeWrite(2, 1, 1));
	f.SyncAll();
	REQUIRE(f.disk.Rot(f.prng));
	CHECK(f.disk.Entries(1, 2, SIZE_MAX).GetStatus().Code() == ErrorCode::Corruption);
	CHECK(f.disk.HasReaderFoundRot());
	CHECK(f.disk.Entries(2, 3, SIZE_MAX).IsOk());
	CHECK(!f.sink.Any());
}

TEST_CASE("the oracle notices a log that skips its checksums, and a driver that skips the sync") {
	for (bool skips_checksum : {true, false}) {
		bool noticed = false;
		for (uint64_t seed = 0; seed < 50 && !noticed; seed++) {
			DiskOptions options {seed, 0, 1, 0, true, {}};
			options.sabotage.skip_checksum = skips_checksum;
			options.sabotage.skip_log_sync = !skips_checksum;
			ViolationSink sink;
			Prng prng(seed);
			SimDisk disk(options, raft::SnapshotMeta(), sink);
			disk.Write(MakeWrite(1, 3, 1));
			disk.Sync();
			disk.CompleteSync(1);
			disk.Write(MakeWrite(4, 3, 1));
			disk.Crash(CrashKind::PowerLoss, BitFlip::Acknowledged, prng);
			noticed = sink.Any();
		}
		CHECK(noticed);
	}
}

TEST_CASE("a write that the log refuses is reported: a real node would stop") {
	Fixture f;
	f.disk.Write(WithTerm(LogWrite(), 3, 1));
	f.disk.Write(WithTerm(LogWrite(), 3, 2));
	REQUIRE(f.sink.Any());
	CHECK(f.sink.First().checker == "log");
	CHECK(f.sink.First().message.find("a second vote in term 3") != std::string::npos);
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
	Fixture f;
	f.disk.Write(WithTerm(MakeWrite(1, 2, 1), 2, 7));
	f.SyncAll();
	f.disk.checkpoint = std::make_shared<const RegisterMachine>(machine);
	f.disk.Recover();
	CHECK(f.disk.FirstIndex() == 5);
	CHECK(f.disk.LastIndex() == 4);
	CHECK(f.disk.Written().base.membership == membership);
	CHECK(f.disk.Written().hard_state.term == 3);
	CHECK(f.disk.Written().hard_state.voted_for == raft::NO_NODE);
	f.disk.Crash(CrashKind::PowerLoss, BitFlip::None, f.prng);
	CHECK(f.disk.FirstIndex() == 5);
	CHECK(!f.sink.Any());
}
