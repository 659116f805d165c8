//! Segments, space, failing disks, readers beside the writer.
#include "log_fixture.hpp"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "quack/common/prng.hpp"

using namespace quack;
using testing::LogFixture;

namespace {

void CreateGroupOne(storage::LogStore &log) {
	QUACK_REQUIRE_OK(log.CreateGroup(1, conformance::MakeSnapshot(0, 0)));
	QUACK_REQUIRE_OK(log.Sync());
}

//! Appends, syncs and truncates over several segments until the end or the first failure.
struct Script {
	static constexpr raft::LogIndex ENTRIES = 60;
	bool is_created = false;
	raft::LogIndex attempted = 0;
	raft::LogIndex synced = 0;

	void Run(LogFixture &fixture) {
		if (!fixture.TryOpen().IsOk()) {
			return;
		}
		auto &log = *fixture.log;
		is_created = log.CreateGroup(1, conformance::MakeSnapshot(0, 0)).IsOk() && log.Sync().IsOk();
		auto is_running = is_created;
		while (is_running && attempted < ENTRIES) {
			attempted++;
			is_running = log.Append({conformance::MakeAppend(1, attempted, 1, 1, 900)}).IsOk();
			if (is_running && attempted % 10 == 0) {
				is_running = log.TruncatePrefix(1, conformance::MakeSnapshot(attempted - 5, 1)).IsOk();
			}
			is_running = is_running && log.Sync().IsOk();
			synced = is_running ? attempted : synced;
		}
	}
};

} // namespace

TEST_CASE("appending and truncating for a long time keeps the disk bounded and recycles files") {
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	for (raft::LogIndex index = 1; index <= 500; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, 1000)}));
		if (index > 20) {
			QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(index - 20, 1)));
		}
		QUACK_REQUIRE_OK(log.Sync());
		CHECK(log.GetStatus().disk_bytes <= 6 * fixture.options.segment_bytes);
	}
	CHECK(fixture.Segments().size() == log.GetStatus().segment_count);
	CHECK(fixture.FileNames().size() <= 7);
	auto &reopened = fixture.Open();
	CHECK(reopened.Reader(1).FirstIndex() == 481);
	CHECK(reopened.Reader(1).LastIndex() == 500);
	conformance::Describe(reopened, 1);
}

TEST_CASE("an idle group keeps its entries and its hard state while others turn the log over") {
	// The idle group's records lie in a segment that a long time of other traffic must not take away, and its state
	// must be found in the head of every later segment.
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	QUACK_REQUIRE_OK(log.CreateGroup(2, conformance::MakeSnapshot(3, 1)));
	QUACK_REQUIRE_OK(log.Append({conformance::MakeVote(2, 6, 3, 3), conformance::MakeAppend(2, 4, 2, 5)}));
	for (raft::LogIndex index = 1; index <= 100; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, 1000)}));
	}
	QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(99, 1)));
	QUACK_REQUIRE_OK(log.Sync());
	CHECK(fixture.Open().Reader(2).Entries(4, 6, SIZE_MAX).Value().size() == 2);
	QUACK_REQUIRE_OK(fixture.log->TruncatePrefix(2, conformance::MakeSnapshot(5, 5)));
	QUACK_REQUIRE_OK(fixture.log->Sync());
	CHECK(fixture.Segments().size() <= 2);
	auto groups = fixture.Open().Recovered();
	REQUIRE(groups.size() == 2);
	CHECK(groups[1].hard_state == raft::HardState {6, 3, 5});
	CHECK(groups[1].snapshot.membership.voters.size() == 3);
}

TEST_CASE("a bounded tail is one of the whole log, so a quiet group does not keep what others have written since") {
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	QUACK_REQUIRE_OK(log.CreateGroup(2, conformance::MakeSnapshot(3, 1)));
	QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(2, 4, 2, 5)}));
	CHECK(log.TailStart(2, 5, 1) == 4);
	CHECK(log.TailStart(2, 5, 100000) == 3);
	for (raft::LogIndex index = 1; index <= 100; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, 1000)}));
	}
	QUACK_REQUIRE_OK(log.Sync());
	CHECK(log.TailStart(3, 5, 1) == 0);
	CHECK(log.TailStart(1, 100, 200000) == 0);
	// Behind a cut lies at least what was asked for, and little more.
	for (uint64_t bytes : {1, 3000, 20000, 70000}) {
		auto cut = fixture.log->TailStart(1, 100, bytes);
		CHECK((100 - cut) * 1100 >= bytes);
		CHECK((100 - cut) * 1000 <= bytes + 2000);
		CHECK(fixture.log->TailStart(1, cut - 1, bytes) == cut - 1);
	}
	CHECK(fixture.log->TailStart(2, 5, 70000) == 5);
	CHECK(fixture.log->TailStart(2, 4, 70000) == 4);
	auto before = fixture.Segments().size();
	QUACK_REQUIRE_OK(fixture.log->TruncatePrefix(1, conformance::MakeSnapshot(90, 1)));
	QUACK_REQUIRE_OK(fixture.log->Sync());
	CHECK(fixture.Segments().size() == before);
	QUACK_REQUIRE_OK(fixture.log->TruncatePrefix(2, conformance::MakeSnapshot(5, 5)));
	QUACK_REQUIRE_OK(fixture.log->Sync());
	CHECK(fixture.Segments().size() < before);
	CHECK(fixture.Open().TailStart(1, 100, 3000) > 95);
}

TEST_CASE("a batch larger than a segment gets a segment of its own") {
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, 1, 3, 1, 50000)}));
	QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, 4, 1, 1)}));
	QUACK_REQUIRE_OK(log.Sync());
	CHECK(fixture.Open().Reader(1).Entries(1, 5, SIZE_MAX).Value()[2].payload->size() == 50000);
}

TEST_CASE("the cache stays within its bytes and entries behind it come from disk") {
	LogFixture fixture;
	fixture.options.cache_bytes = 10000;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	for (raft::LogIndex index = 1; index <= 200; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, 500)}));
		CHECK(log.GetStatus().cached_bytes <= 10000);
	}
	CHECK(log.GetStatus().cached_bytes > 5000);
	conformance::Describe(log, 1);
	QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(200, 1)));
	CHECK(log.GetStatus().cached_bytes == 0);
}

TEST_CASE("a full disk refuses, leaves the log as it was, and heals by itself") {
	LogFixture fixture;
	fixture.options.spare_segments_max = 0;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	fixture.files.SetCapacity(2 * fixture.options.segment_bytes);
	raft::LogIndex last = 0;
	Status status;
	while ((status = log.Append({conformance::MakeAppend(1, last + 1, 1, 1, 1000)})).IsOk()) {
		last++;
		QUACK_REQUIRE_OK(log.Sync());
		REQUIRE(last < 100);
	}
	CHECK(status.Code() == ErrorCode::DiskFull);
	CHECK(status.Message().find("/log") != std::string::npos);
	CHECK(log.GetStatus().health.Code() == ErrorCode::DiskFull);
	CHECK(log.Reader(1).LastIndex() == last);
	CHECK(log.TryHeal().Code() == ErrorCode::DiskFull);
	SUBCASE("a vote still fits, and a restart finds everything") {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeVote(1, 5, 2, last)}));
		QUACK_REQUIRE_OK(log.Sync());
		auto groups = fixture.Open().Recovered();
		CHECK(groups[0].last_index == last);
		CHECK(groups[0].hard_state == raft::HardState {5, 2, last});
	}
	SUBCASE("truncation on the full disk makes room") {
		fixture.options.spare_segments_max = 2;
		QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(last, 1)));
		QUACK_REQUIRE_OK(log.Sync());
		for (int i = 0; i < 40; i++) {
			last++;
			QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, last, 1, 1, 1000)}));
			QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(last, 1)));
			QUACK_REQUIRE_OK(log.Sync());
		}
		CHECK(log.GetStatus().health.IsOk());
	}
	SUBCASE("space returns") {
		fixture.files.SetCapacity(UINT64_MAX);
		QUACK_REQUIRE_OK(log.TryHeal());
		CHECK(log.GetStatus().health.IsOk());
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, last + 1, 1, 1, 1000)}));
		QUACK_REQUIRE_OK(log.Sync());
		CHECK(fixture.Open().Reader(1).LastIndex() == last + 1);
	}
	SUBCASE("space returns and the next append just works") {
		fixture.files.SetCapacity(UINT64_MAX);
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, last + 1, 1, 1, 1000)}));
		CHECK(log.GetStatus().health.IsOk());
	}
}

TEST_CASE("a write refused in the middle of a segment leaves nothing behind") {
	// A disk may be full even for an overwrite. The refused batch must be gone after a sync, a crash and a restart.
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, 1, 2, 1)}));
	QUACK_REQUIRE_OK(log.Sync());
	for (int i = 0; i < 50; i++) {
		fixture.files.FailWrites(1, ErrorCode::DiskFull);
		CHECK(log.Append({conformance::MakeAppend(1, 3, 5, 1)}).Code() == ErrorCode::DiskFull);
		CHECK(log.Reader(1).LastIndex() == 2);
		QUACK_REQUIRE_OK(log.Sync());
	}
	fixture.files.PowerCut();
	CHECK(fixture.Open().Reader(1).LastIndex() == 2);
}

TEST_CASE("a failed sync latches for good and is never tried again") {
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, 1, 1, 1)}));
	fixture.files.FailSyncs(1);
	CHECK(log.Sync().Code() == ErrorCode::IoError);
	auto operations = fixture.files.OperationCount();
	CHECK(log.Sync().Code() == ErrorCode::IoError);
	CHECK(log.Append({conformance::MakeAppend(1, 2, 1, 1)}).Code() == ErrorCode::IoError);
	CHECK(log.TruncatePrefix(1, conformance::MakeSnapshot(1, 1)).Code() == ErrorCode::IoError);
	CHECK(log.TryHeal().Code() == ErrorCode::IoError);
	CHECK(log.GetStatus().health.Code() == ErrorCode::IoError);
	CHECK(fixture.files.OperationCount() == operations);
	CHECK(log.Reader(1).LastIndex() == 1);
	SUBCASE("after a power cut the unsynced entry may be gone, the log is whole") {
		fixture.files.PowerCut();
		CHECK(fixture.Open().Reader(1).LastIndex() <= 1);
	}
	SUBCASE("after a process restart, what recovery shows is durable although the kernel thinks it is clean") {
		fixture.EndProcess();
		REQUIRE(fixture.Open().Reader(1).LastIndex() == 1);
		fixture.files.PowerCut();
		CHECK(fixture.Open().Reader(1).LastIndex() == 1);
	}
}

TEST_CASE("recovered records are durable before anybody can build on them") {
	// A process dies between Append and Sync; the next one finds the entry in the page cache. Then the power goes.
	LogFixture fixture;
	CreateGroupOne(fixture.Open());
	for (raft::LogIndex index = 1; index <= 30; index++) {
		QUACK_REQUIRE_OK(fixture.log->Append({conformance::MakeAppend(1, index, 1, 1, 100)}));
		fixture.EndProcess();
		REQUIRE(fixture.Open().Reader(1).LastIndex() == index);
		fixture.files.PowerCut();
		REQUIRE(fixture.Open().Reader(1).LastIndex() == index);
	}
}

TEST_CASE("the power going off at every single operation of a script is survived") {
	// Goal: rolling, recycling, truncating and opening have no unsafe step. The script runs once per operation.
	auto total = [] {
		LogFixture fixture;
		Script script;
		script.Run(fixture);
		CHECK(script.synced == Script::ENTRIES);
		return fixture.files.OperationCount();
	}();
	CHECK(total > 200);
	for (uint64_t stop = 1; stop <= total; stop++) {
		for (uint64_t variant = 0; variant < 3; variant++) {
			CAPTURE(stop);
			CAPTURE(variant);
			LogFixture fixture;
			for (uint64_t draws = 0; draws < variant * 5; draws++) {
				fixture.files.UniqueId(); // draws from the disk's generator: other sectors are lost
			}
			fixture.files.StopAfter(stop);
			Script script;
			script.Run(fixture);
			CHECK(fixture.files.IsStopped());
			fixture.files.PowerCut();
			auto status = fixture.TryOpen();
			REQUIRE_MESSAGE(status.IsOk(), status.ToString());
			auto last = fixture.log->Reader(1).LastIndex();
			CHECK(last >= script.synced);
			CHECK(last <= script.attempted);
			CHECK((!script.is_created || fixture.log->Recovered().size() == 1));
			if (!fixture.log->Recovered().empty()) {
				conformance::Describe(*fixture.log, 1);
			}
		}
	}
}

TEST_CASE("a hanging sync blocks neither readers nor status") {
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, 1, 3, 1)}));
	fixture.files.HangSyncs(true);
	std::atomic<bool> is_done {false};
	std::thread writer([&] {
		CHECK(log.Sync().IsOk());
		is_done = true;
	});
	while (fixture.files.HungCount() == 0) {
		std::this_thread::yield();
	}
	CHECK(log.Reader(1).Entries(1, 4, SIZE_MAX).Value().size() == 3);
	CHECK(log.GetStatus().health.IsOk());
	CHECK_FALSE(is_done);
	fixture.files.HangSyncs(false);
	writer.join();
	CHECK(is_done);
}

TEST_CASE("a reader beside a writer that appends, replaces, truncates and recycles sees only whole, fitting entries") {
	// On a real disk, with the helper thread and without a cache, so that every read races with recycling.
	auto pattern = (std::filesystem::temp_directory_path() / "quack-log-XXXXXX").string();
	REQUIRE(::mkdtemp(&pattern[0]) != nullptr);
	storage::PosixFileSystem files;
	storage::LogOptions options;
	options.directory = pattern;
	options.segment_bytes = 64 << 10;
	SUBCASE("no cache") {
		options.cache_bytes = 0;
	}
	SUBCASE("small cache") {
		options.cache_bytes = 20000;
	}
	{
		auto opened = storage::OpenSegmentedLog(files, options);
		REQUIRE(opened.IsOk());
		auto &log = *opened.Value();
		CreateGroupOne(log);
		std::atomic<bool> is_done {false};
		std::atomic<uint64_t> read_count {0};
		std::thread reading([&] {
			Prng prng(7);
			auto &reader = log.Reader(1);
			while (!is_done || read_count == 0) {
				auto first = reader.FirstIndex();
				auto last = reader.LastIndex();
				auto begin = first + prng.Below(last + 2 - first);
				auto entries = reader.Entries(begin, begin + 20, 50000);
				if (!entries.IsOk()) {
					CHECK_MESSAGE(entries.GetStatus().Code() == ErrorCode::NotFound, entries.GetStatus().ToString());
					continue;
				}
				for (auto &entry : entries.Value()) {
					auto text = "entry " + std::to_string(entry.index) + " of term " + std::to_string(entry.term);
					CHECK(entry.payload->compare(0, text.size(), text) == 0);
					CHECK(entry.index == begin++);
					read_count++;
				}
				auto term = reader.TermAt(last);
				CHECK((term.IsOk() || term.GetStatus().Code() == ErrorCode::NotFound));
				(void)log.GetStatus();
			}
		});
		raft::LogIndex last = 0;
		for (raft::Term round = 1; round <= 600; round++) {
			auto first = last > 5 && round % 7 == 0 ? last - 2 : last + 1;
			QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, first, 5, round, 700)}));
			last = first + 4;
			if (last > 60 && round % 5 == 0) {
				auto cut = last - 50;
				QUACK_REQUIRE_OK(
				    log.TruncatePrefix(1, conformance::MakeSnapshot(cut, log.Reader(1).TermAt(cut).Value())));
			}
			QUACK_REQUIRE_OK(log.Sync());
		}
		is_done = true;
		reading.join();
		CHECK(read_count > 0);
	}
	std::filesystem::remove_all(pattern);
}

TEST_CASE("a read that is overtaken by truncation and reuse of its file says compacted, not corrupt") {
	// The whole race in one thread: between the plan of a read and its read of the file, the writer truncates, the file
	// becomes a spare and then a new segment with other bytes in it.
	LogFixture fixture;
	auto &log = fixture.Open();
	CreateGroupOne(log);
	for (raft::LogIndex index = 1; index <= 30; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, 1000)}));
	}
	QUACK_REQUIRE_OK(log.Sync());
	auto overtake = [&] {
		QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(29, 1)));
		QUACK_REQUIRE_OK(log.Sync());
		for (raft::LogIndex index = 31; index <= 90; index++) {
			QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 2, 1111)}));
		}
		QUACK_REQUIRE_OK(log.Sync());
	};
	fixture.files.BeforeNextRead(overtake);
	CHECK(log.Reader(1).Entries(1, 5, SIZE_MAX).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(log.Reader(1).LastIndex() == 90);
	// Replaced while being read: the new entries come back.
	auto last = log.Reader(1).LastIndex();
	fixture.files.BeforeNextRead([&] {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, last - 1, 2, 3)}));
		QUACK_REQUIRE_OK(log.Sync());
	});
	auto read = log.Reader(1).Entries(last - 1, last + 1, SIZE_MAX);
	REQUIRE(read.IsOk());
	CHECK(read.Value().size() == 2);
}

TEST_CASE("options out of range are refused by name") {
	storage::FaultFileSystem files(1);
	storage::LogOptions options;
	options.directory = "/log";
	options.segment_bytes = 100;
	auto status = storage::OpenSegmentedLog(files, options).GetStatus();
	CHECK(status.Code() == ErrorCode::InvalidArgument);
	CHECK(status.Message().find("segment_bytes") != std::string::npos);
}

TEST_CASE("the bytes on disk are those of format version 1") {
	// Golden bytes: a change here is a change of the format and needs a new version.
	auto to_hex = [](ByteView bytes) {
		std::string text;
		for (auto byte : bytes) {
			char digits[3];
			std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
			text += digits;
		}
		return text;
	};
	storage::SegmentHeader header;
	header.store_id = 0x1122334455667788;
	header.sequence = 2;
	header.capacity = 65536;
	header.head_end = 64;
	header.previous_end = 4096;
	header.previous_crc = 0xdeadbeef;
	header.nonce = 7;
	CHECK(to_hex(storage::EncodeSegmentHeader(header)) ==
	      "515541434b4c4f47010000002ea2f1638877665544332211020000000000000000000100000000004000000000000000001000000000"
	      "0000efbeadde07000000");
	storage::BatchEncoder encoder(header, 64, 64, header.crc);
	encoder.Add({{storage::RecordType::Entry, 2, 5, 6, 7}, "payload", nullptr});
	std::string bytes;
	for (auto &piece : encoder.Pieces()) {
		bytes += piece;
	}
	CHECK(to_hex(bytes) == "5155434b93af393c2ea2f1630700000002000000080000000402000008000000050000000000000006000000000"
	                       "0000007000000000000007061796c6f616400");
	storage::GroupHead head;
	head.hard_state = {1, 2, 3};
	head.snapshot = conformance::MakeSnapshot(4, 1);
	head.snapshot.membership.learners = {9};
	head.last_index = 6;
	CHECK(to_hex(storage::EncodeGroupHead(head)) ==
	      "010000000000000002000000000000000300000000000000040000000000000001000000000000000600000000000000030100000000"
	      "00000002000000000000000300000000000000000109000000000000000001");
}
