//! Cuts, flips, zeros and missing files: what is cut, what is refused, and what the refusal says.
#include "log_fixture.hpp"

#include "quack/common/crc32c.hpp"

using namespace quack;
using testing::LogFixture;

namespace {

//! The record that covers a byte of a file; null when none does.
const storage::ScannedRecord *RecordAt(const std::vector<storage::ScannedRecord> &records, const std::string &file,
                                       uint64_t offset) {
	for (auto &record : records) {
		if (record.file == file && record.offset <= offset && offset < record.offset + record.size) {
			return &record;
		}
	}
	return nullptr;
}

uint64_t EndOf(const std::vector<storage::ScannedRecord> &records, const std::string &file) {
	uint64_t end = 0;
	for (auto &record : records) {
		if (record.file == file) {
			end = std::max(end, record.offset + record.size);
		}
	}
	return end;
}

void FlipBit(LogFixture &fixture, const std::string &path, uint64_t offset, int bit) {
	QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) {
		bytes[offset] = static_cast<char>(bytes[offset] ^ (1 << bit));
	}));
}

} // namespace

TEST_CASE("the newest segment cut at every byte opens with a prefix, or is refused inside its head") {
	// Goal: no cut crashes recovery, invents a record or leaves a state that was never written. The file is cut after
	// each byte; the opened state must be one of those the log went through, and the log must go on working.
	LogFixture fixture;
	auto &log = fixture.Open();
	QUACK_REQUIRE_OK(log.CreateGroup(1, conformance::MakeSnapshot(0, 0)));
	std::vector<raft::LogIndex> lasts = {0};
	for (raft::LogIndex index = 1; index <= 12; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, index * 7)}));
		QUACK_REQUIRE_OK(log.Sync());
	}
	auto path = fixture.Segments().back();
	auto records = fixture.Scan();
	auto end = EndOf(records, path);
	auto image = fixture.TakeImage();
	raft::LogIndex previous_last = 0;
	for (uint64_t size = 0; size <= end + 100; size++) {
		CAPTURE(size);
		fixture.RestoreImage(image);
		QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) { bytes.resize(size); }));
		auto status = fixture.TryOpen();
		if (size < storage::SEGMENT_HEADER_BYTES) {
			CHECK(status.Code() == ErrorCode::Corruption);
			CHECK(status.Message().find(path + ": offset 0") != std::string::npos);
			continue;
		}
		REQUIRE_MESSAGE(status.IsOk(), status.ToString());
		auto last = fixture.log->Reader(1).LastIndex();
		CHECK(last >= previous_last);
		CHECK(last <= previous_last + 1);
		previous_last = last;
		auto covering = RecordAt(records, path, size);
		auto expected_torn = covering ? size - covering->offset : 0;
		// Zeros at the cut, and padding, cannot be told from a clean end.
		CHECK((size > end || fixture.log->GetStatus().torn_bytes <= expected_torn));
		if (expected_torn > 48 && size + 8 < covering->offset + covering->size) {
			CHECK(fixture.log->GetStatus().torn_bytes > 24);
		}
		if (fixture.log->Recovered().empty()) {
			continue;
		}
		QUACK_REQUIRE_OK(fixture.log->Append({conformance::MakeAppend(1, last + 1, 1, 2)}));
		QUACK_REQUIRE_OK(fixture.log->Sync());
		fixture.Open();
		CHECK(fixture.log->Reader(1).LastIndex() == last + 1);
		CHECK(fixture.log->Reader(1).TermAt(last + 1).Value() == 2);
	}
	CHECK(previous_last == 12);
}

TEST_CASE("a segment whose head is cut is refused") {
	// The head was durable before the segment got its name, so its damage is no torn tail.
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	auto path = fixture.Segments().back();
	auto header = storage::DecodeSegmentHeader(fixture.files.Contents(path));
	REQUIRE(header.IsOk());
	REQUIRE(header.Value().head_end > storage::SEGMENT_HEADER_BYTES);
	auto image = fixture.TakeImage();
	for (uint64_t size = 0; size < header.Value().head_end - 7; size++) {
		CAPTURE(size);
		fixture.RestoreImage(image);
		QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) { bytes.resize(size); }));
		auto status = fixture.TryOpen();
		CHECK(status.Code() == ErrorCode::Corruption);
		CHECK(status.Message().find(path) != std::string::npos);
	}
}

TEST_CASE("zeros or garbage behind the end are cut, counted and harmless") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	auto expected = [&] {
		fixture.Open();
		return testing::Fingerprint(*fixture.log);
	}();
	auto path = fixture.Segments().back();
	auto end = EndOf(fixture.Scan(), path);
	auto image = fixture.TakeImage();
	SUBCASE("zeros over the end record") {
		QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) { bytes.replace(end, 500, 500, '\0'); }));
		fixture.Open();
		CHECK(fixture.log->GetStatus().torn_bytes == 0);
	}
	SUBCASE("zeros appended to the file") {
		QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) { bytes.append(10000, '\0'); }));
		fixture.Open();
		CHECK(fixture.log->GetStatus().torn_bytes == 0);
	}
	SUBCASE("garbage over the end record") {
		QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) { bytes.replace(end, 500, 500, 'x'); }));
		fixture.Open();
		CHECK(fixture.log->GetStatus().torn_bytes > 0);
	}
	CHECK(testing::Fingerprint(*fixture.log) == expected);
	fixture.Open();
	CHECK(fixture.log->GetStatus().torn_bytes == 0);
	CHECK(testing::Fingerprint(*fixture.log) == expected);
}

TEST_CASE("one flipped bit in any synced record of any kind is refused by file, offset, group and index") {
	// Goal: an acknowledged record is never dropped and never believed when damaged, whether it is in the middle or the
	// very last. Every byte of every record is flipped once; only padding may be changed without notice.
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	auto records = fixture.Scan();
	auto image = fixture.TakeImage();
	fixture.Open();
	auto expected = testing::Fingerprint(*fixture.log);
	std::set<storage::RecordType> kinds;
	size_t refused = 0;
	for (auto &path : fixture.Segments()) {
		auto end = EndOf(records, path) + storage::RECORD_HEADER_BYTES;
		for (uint64_t offset = 0; offset < end; offset++) {
			CAPTURE(path);
			CAPTURE(offset);
			auto record = RecordAt(records, path, offset);
			if (record && record->size > 10000 && offset % 97 != 0) {
				continue; // the one big record: a sample is enough
			}
			fixture.RestoreImage(image);
			FlipBit(fixture, path, offset, static_cast<int>(offset % 8));
			auto status = fixture.TryOpen();
			if (status.IsOk()) {
				CHECK(testing::Fingerprint(*fixture.log) == expected);
				auto is_padding = record && offset + 8 >= record->offset + record->size;
				auto is_end_record = !record && offset >= storage::SEGMENT_HEADER_BYTES;
				CHECK((is_padding || is_end_record));
				continue;
			}
			refused++;
			auto is_version = status.Code() == ErrorCode::Incompatible;
			CHECK((status.Code() == ErrorCode::Corruption || is_version));
			CHECK(status.Message().find(path) != std::string::npos);
			if (!record) {
				CHECK(status.Message().find("offset 0") != std::string::npos);
				continue;
			}
			kinds.insert(record->fields.type);
			CHECK(status.Message().find("offset " + std::to_string(record->offset)) != std::string::npos);
			CHECK(status.Message().find("group") != std::string::npos);
		}
	}
	CHECK(kinds.size() == 7);
	MESSAGE("refused flips: " << refused);
}

TEST_CASE("a flipped bit in a record that was never synced is a torn tail") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	auto path = fixture.Segments().back();
	auto synced_end = EndOf(fixture.Scan(), path);
	auto last = fixture.log->Reader(1).LastIndex();
	QUACK_REQUIRE_OK(fixture.log->Append({conformance::MakeAppend(1, last + 1, 3, 2)}));
	fixture.EndProcess();
	FlipBit(fixture, path, synced_end + storage::RECORD_HEADER_BYTES + 3, 1);
	fixture.Open();
	CHECK(fixture.log->Reader(1).LastIndex() == last);
	CHECK(fixture.log->GetStatus().torn_bytes > 0);
	// The two whole records behind the damaged one must not come back when a record of its size takes its place.
	QUACK_REQUIRE_OK(fixture.log->Append({conformance::MakeAppend(1, last + 1, 1, 2)}));
	QUACK_REQUIRE_OK(fixture.log->Sync());
	fixture.Open();
	CHECK(fixture.log->Reader(1).LastIndex() == last + 1);
}

TEST_CASE("a record that is whole but follows another than the one before it ends the log") {
	// A lost write can bring back an older record with a right checksum in the right place. The chain tells.
	storage::SegmentHeader header;
	header.sequence = 1;
	header.capacity = 4096;
	header.head_end = storage::SEGMENT_HEADER_BYTES;
	auto bytes = storage::EncodeSegmentHeader(header);
	auto append = [&](uint32_t previous_crc) {
		storage::BatchEncoder encoder(header, bytes.size(), bytes.size(), previous_crc);
		encoder.Add({{storage::RecordType::Entry, 0, 1, 1, 1}, "payload", nullptr});
		for (auto &piece : encoder.Pieces()) {
			bytes += piece;
		}
		return encoder.LastCrc();
	};
	auto first = append(header.crc);
	auto end = bytes.size();
	append(first + 1);
	storage::RecordCursor cursor(bytes, header);
	storage::RecordView record;
	CHECK(cursor.Next(record));
	CHECK_FALSE(cursor.Next(record));
	CHECK(cursor.Offset() == end);
	CHECK(storage::InspectTail(bytes, header, cursor).torn_bytes == bytes.size() - end);
}

TEST_CASE("a missing segment is refused only when something live was in it") {
	LogFixture fixture;
	auto &log = fixture.Open();
	QUACK_REQUIRE_OK(log.CreateGroup(1, conformance::MakeSnapshot(0, 0)));
	for (raft::LogIndex index = 1; index <= 60; index++) {
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, index, 1, 1, 1000)}));
	}
	QUACK_REQUIRE_OK(log.Sync());
	auto segments = fixture.Segments();
	REQUIRE(segments.size() >= 4);
	fixture.EndProcess();
	auto image = fixture.TakeImage();
	SUBCASE("middle") {
		QUACK_REQUIRE_OK(fixture.files.Remove(segments[1]));
		auto status = fixture.TryOpen();
		CHECK(status.Code() == ErrorCode::Corruption);
		CHECK(status.Message().find("entry 1 of group 1") != std::string::npos);
		CHECK(fixture.Segments().size() == segments.size() - 1);
	}
	SUBCASE("oldest") {
		QUACK_REQUIRE_OK(fixture.files.Remove(segments[0]));
		CHECK(fixture.TryOpen().Code() == ErrorCode::Corruption);
	}
	SUBCASE("one that a truncation had freed, while an older one is still there") {
		fixture.options.spare_segments_max = 0;
		fixture.Open();
		QUACK_REQUIRE_OK(fixture.log->TruncatePrefix(1, conformance::MakeSnapshot(55, 1)));
		QUACK_REQUIRE_OK(fixture.log->Sync());
		REQUIRE(fixture.Segments().size() < segments.size());
		auto truncated = fixture.TakeImage();
		truncated[segments[0]] = image[segments[0]];
		fixture.RestoreImage(truncated);
		fixture.Open();
		CHECK(fixture.log->Reader(1).FirstIndex() == 56);
		CHECK(fixture.log->Reader(1).LastIndex() == 60);
		CHECK(fixture.Segments().front() != segments[0]);
	}
	SUBCASE("a segment of another log in between") {
		LogFixture other;
		other.files.UniqueId(); // another store id
		auto &foreign = other.Open();
		QUACK_REQUIRE_OK(foreign.CreateGroup(1, conformance::MakeSnapshot(0, 0)));
		for (raft::LogIndex index = 1; index <= 60; index++) {
			QUACK_REQUIRE_OK(foreign.Append({conformance::MakeAppend(1, index, 1, 1, 1000)}));
		}
		auto foreign_bytes = other.files.Contents(segments[1]);
		QUACK_REQUIRE_OK(fixture.files.EditFile(segments[1], [&](std::string &bytes) { bytes = foreign_bytes; }));
		auto status = fixture.TryOpen();
		CHECK(status.Code() == ErrorCode::Corruption);
		CHECK(status.Message().find("another log") != std::string::npos);
	}
}

TEST_CASE("a log of another format version is refused as incompatible") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	fixture.EndProcess();
	auto path = fixture.Segments().front();
	QUACK_REQUIRE_OK(fixture.files.EditFile(path, [&](std::string &bytes) {
		bytes[8] = 9;
		bytes.replace(12, 4, 4, '\0');
		std::string crc;
		ByteWriter(crc).PutU32(Crc32c(ByteView(bytes).substr(0, storage::SEGMENT_HEADER_BYTES)));
		bytes.replace(12, 4, crc);
	}));
	auto status = fixture.TryOpen();
	CHECK(status.Code() == ErrorCode::Incompatible);
	CHECK(status.Message().find("version 9") != std::string::npos);
}

TEST_CASE("damage that appears while the log is open is reported by the reader") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	auto records = fixture.Scan();
	auto &reader = fixture.log->Reader(1);
	auto index = reader.LastIndex();
	for (auto &record : records) {
		if (record.fields.type == storage::RecordType::Entry && record.fields.group == 1 &&
		    record.fields.index == index) {
			FlipBit(fixture, record.file, record.offset + storage::RECORD_HEADER_BYTES, 3);
		}
	}
	auto read = reader.Entries(index, index + 1, SIZE_MAX);
	CHECK(read.GetStatus().Code() == ErrorCode::Corruption);
	CHECK(read.GetStatus().Message().find("entry " + std::to_string(index) + " of group 1") != std::string::npos);
}

TEST_CASE("scan shows every record, goes on behind damage and says what recovery would say") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	storage::ScanSummary summary;
	auto clean = fixture.Scan(&summary);
	CHECK(summary.damage_count == 0);
	CHECK(summary.torn_bytes == 0);
	CHECK(summary.segment_count == 2);
	CHECK(clean.size() == summary.record_count);
	uint64_t entry_count = 0;
	for (auto &record : clean) {
		entry_count += record.fields.type == storage::RecordType::Entry ? 1 : 0;
		CHECK(record.crc_ok);
		CHECK(record.acknowledged);
	}
	CHECK(entry_count > 0);
	CHECK(summary.entry_count == entry_count);
	auto &victim = clean[clean.size() / 2];
	FlipBit(fixture, victim.file, victim.offset + 20, 2);
	auto damaged = fixture.Scan(&summary);
	CHECK(summary.damage_count >= 1);
	CHECK(summary.first_damage.Message().find("offset " + std::to_string(victim.offset)) != std::string::npos);
	CHECK(summary.record_count == clean.size() - 1);
	size_t bad = 0;
	for (auto &record : damaged) {
		if (!record.crc_ok) {
			bad++;
			CHECK(record.offset == victim.offset);
			CHECK(record.size == victim.size);
			CHECK(record.fields.index == victim.fields.index);
		}
	}
	CHECK(bad == 1);
	CHECK(storage::ScanLog(fixture.files, "/nowhere", [](const storage::ScannedRecord &) { return true; })
	          .GetStatus()
	          .Code() == ErrorCode::NotFound);
}
