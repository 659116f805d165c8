#include "quack/storage/log_scan.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace quack {
namespace storage {

namespace {

constexpr size_t SEQUENCE_DIGITS = 16;
constexpr char SEGMENT_PREFIX[] = "segment-";
constexpr char SEGMENT_SUFFIX[] = ".log";

//! First valid record of this segment at or behind `offset`, chained or not.
bool FindValidRecord(ByteView segment, const SegmentHeader &header, uint64_t offset, RecordView &record) {
	std::string magic;
	ByteWriter(magic).PutU32(RECORD_MAGIC);
	while (offset + RECORD_HEADER_BYTES <= segment.size()) {
		auto found = segment.find(magic, offset);
		if (found == ByteView::npos) {
			return false;
		}
		if (found % RECORD_ALIGNMENT == 0 && ParseRecord(segment, found, header, record)) {
			return true;
		}
		offset = found + 1;
	}
	return false;
}

} // namespace

std::string SegmentFileName(uint64_t sequence) {
	char digits[SEQUENCE_DIGITS + 1];
	std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(sequence));
	return std::string(SEGMENT_PREFIX) + digits + SEGMENT_SUFFIX;
}

std::optional<uint64_t> ParseSegmentFileName(const std::string &name) {
	const size_t prefix = sizeof(SEGMENT_PREFIX) - 1;
	if (name.size() != prefix + SEQUENCE_DIGITS + sizeof(SEGMENT_SUFFIX) - 1 ||
	    name.compare(0, prefix, SEGMENT_PREFIX) != 0 || name.substr(prefix + SEQUENCE_DIGITS) != SEGMENT_SUFFIX) {
		return std::nullopt;
	}
	uint64_t sequence = 0;
	for (auto digit : name.substr(prefix, SEQUENCE_DIGITS)) {
		if (digit >= '0' && digit <= '9') {
			sequence = sequence * 16 + static_cast<uint64_t>(digit - '0');
		} else if (digit >= 'a' && digit <= 'f') {
			sequence = sequence * 16 + static_cast<uint64_t>(digit - 'a' + 10);
		} else {
			return std::nullopt;
		}
	}
	return sequence == 0 ? std::nullopt : std::optional<uint64_t>(sequence);
}

bool RecordCursor::Next(RecordView &record) {
	if (found_end || !ParseRecord(segment, offset, header, record) || record.previous_crc != last_crc) {
		return false;
	}
	acknowledged_end = std::max(acknowledged_end, record.synced);
	if (record.fields.type == RecordType::End) {
		found_end = true;
		return false;
	}
	offset = record.End();
	last_crc = record.crc;
	return true;
}

TailReport InspectTail(ByteView segment, const SegmentHeader &header, const RecordCursor &cursor) {
	const auto end = cursor.Offset();
	TailReport report;
	report.acknowledged_end = std::max(cursor.AcknowledgedEnd(), header.head_end);
	uint64_t torn_end = end;
	if (!cursor.FoundEnd()) {
		RecordFields fields;
		uint64_t body_size = 0;
		auto header_bytes = segment.substr(std::min<uint64_t>(end, segment.size()), RECORD_HEADER_BYTES);
		if (PeekRecord(segment, end, fields, body_size) && body_size <= BATCH_BYTES_MAX) {
			torn_end = std::min<uint64_t>(end + RecordBytes(body_size), segment.size());
		} else {
			// Less than a header, or garbage in its place: count up to the last byte that is not zero.
			auto last = header_bytes.find_last_not_of('\0');
			torn_end = last == ByteView::npos ? end : end + last + 1;
		}
	}
	RecordView record;
	auto search = cursor.FoundEnd() ? end + RECORD_HEADER_BYTES : end + RECORD_ALIGNMENT;
	while (search < segment.size() && FindValidRecord(segment, header, search, record)) {
		report.acknowledged_end = std::max(report.acknowledged_end, record.synced);
		torn_end = std::max(torn_end, record.End());
		search = record.offset + RECORD_ALIGNMENT;
	}
	report.torn_bytes = torn_end - end;
	return report;
}

std::string DescribeDamage(ByteView segment, uint64_t offset, const RecordFields &last_good) {
	RecordFields claimed;
	uint64_t body_size = 0;
	std::string text = "the record at offset " + std::to_string(offset) + " is damaged (";
	if (PeekRecord(segment, offset, claimed, body_size)) {
		text += std::string("it claims to be ") + RecordTypeName(claimed.type) + " of group " +
		        std::to_string(claimed.group) + " index " + std::to_string(claimed.index) + "; ";
	} else {
		text += "no record header is there; ";
	}
	if (last_good.group == 0) {
		return text + "no good record precedes it in this segment)";
	}
	return text + "the last good one before it is " + RecordTypeName(last_good.type) + " of group " +
	       std::to_string(last_good.group) + " index " + std::to_string(last_good.index) + ")";
}

namespace {

//! ScanLog's state over all segments.
class Scanner {
public:
	Scanner(FileSystem &files_p, const std::function<bool(const ScannedRecord &)> &visit_p)
	    : files(files_p), visit(visit_p) {
	}

	//! False when the visitor stopped.
	bool ScanSegment(const std::string &path, bool newest) {
		summary.segment_count++;
		auto file = files.Open(path, OpenMode::ReadOnly);
		if (!file.IsOk()) {
			return AddDamage(file.GetStatus());
		}
		auto bytes = ReadWholeFile(*file.Value());
		if (!bytes.IsOk()) {
			return AddDamage(bytes.GetStatus());
		}
		auto decoded = DecodeSegmentHeader(bytes.Value());
		if (!decoded.IsOk()) {
			expected_end.reset();
			return AddDamage(Status(decoded.GetStatus().Code(), path + ": " + decoded.GetStatus().Message()));
		}
		CheckLink(path, decoded.Value());
		return ScanRecords(path, bytes.Value(), decoded.Value(), newest);
	}

	ScanSummary summary;

private:
	bool AddDamage(Status status) {
		summary.damage_count++;
		if (summary.first_damage.IsOk()) {
			summary.first_damage = std::move(status);
		}
		return true;
	}

	//! The header repeats where the segment before ended.
	void CheckLink(const std::string &path, const SegmentHeader &header) {
		if (!expected_end) {
			return;
		}
		if (header.sequence != expected_sequence) {
			AddDamage(Status(ErrorCode::Corruption,
			                 path + ": segment " + std::to_string(expected_sequence) + " before it is missing"));
		} else if (header.previous_end != *expected_end || header.previous_crc != expected_crc) {
			AddDamage(Status(ErrorCode::Corruption, path + ": the segment before it ends at " +
			                                            std::to_string(*expected_end) + ", expected " +
			                                            std::to_string(header.previous_end)));
		}
	}

	bool ScanRecords(const std::string &path, ByteView bytes, const SegmentHeader &header, bool newest) {
		RecordCursor cursor(bytes, header);
		RecordFields last_good;
		std::vector<RecordView> good;
		RecordView record;
		while (cursor.Next(record)) {
			good.push_back(record);
			last_good = record.fields;
		}
		auto tail = InspectTail(bytes, header, cursor);
		auto acknowledged_end = newest ? tail.acknowledged_end : bytes.size();
		for (auto &item : good) {
			if (!Visit(path, item, item.End() <= acknowledged_end)) {
				return false;
			}
		}
		expected_sequence = header.sequence + 1;
		expected_end = cursor.Offset();
		expected_crc = cursor.LastCrc();
		if (cursor.Offset() >= tail.acknowledged_end) {
			summary.torn_bytes += newest ? tail.torn_bytes : 0;
			return true;
		}
		AddDamage(Status(ErrorCode::Corruption, path + ": " + DescribeDamage(bytes, cursor.Offset(), last_good)));
		return VisitBehindDamage(path, bytes, header, cursor.Offset(), tail.acknowledged_end);
	}

	bool VisitBehindDamage(const std::string &path, ByteView bytes, const SegmentHeader &header, uint64_t offset,
	                       uint64_t acknowledged_end) {
		while (true) {
			RecordView next;
			auto found = FindValidRecord(bytes, header, offset, next);
			auto gap_end = found ? next.offset : acknowledged_end;
			if (gap_end > offset && !VisitDamage(path, bytes, offset, gap_end)) {
				return false;
			}
			if (!found || next.fields.type == RecordType::End) {
				return true;
			}
			if (!Visit(path, next, next.End() <= acknowledged_end)) {
				return false;
			}
			offset = next.End();
		}
	}

	bool VisitDamage(const std::string &path, ByteView bytes, uint64_t begin, uint64_t end) {
		ScannedRecord item;
		item.file = path;
		item.offset = begin;
		uint64_t body_size = 0;
		PeekRecord(bytes, begin, item.fields, body_size);
		item.size = end - begin;
		item.acknowledged = true;
		return visit(item);
	}

	bool Visit(const std::string &path, const RecordView &record, bool acknowledged) {
		summary.record_count++;
		summary.entry_count += record.fields.type == RecordType::Entry ? 1 : 0;
		ScannedRecord item;
		item.file = path;
		item.offset = record.offset;
		item.fields = record.fields;
		item.size = record.End() - record.offset;
		item.crc_ok = true;
		item.acknowledged = acknowledged;
		item.body = record.body;
		return visit(item);
	}

	FileSystem &files;
	const std::function<bool(const ScannedRecord &)> &visit;
	uint64_t expected_sequence = 0;
	std::optional<uint64_t> expected_end;
	uint32_t expected_crc = 0;
};

} // namespace

Result<ScanSummary> ScanLog(FileSystem &files, const std::string &directory,
                            const std::function<bool(const ScannedRecord &)> &visit) {
	auto names = files.List(directory);
	if (!names.IsOk()) {
		return names.GetStatus();
	}
	std::vector<std::string> segments;
	for (auto &name : names.Value()) {
		if (ParseSegmentFileName(name)) {
			segments.push_back(name);
		}
	}
	Scanner scanner(files, visit);
	for (size_t i = 0; i < segments.size(); i++) {
		if (!scanner.ScanSegment(JoinPath(directory, segments[i]), i + 1 == segments.size())) {
			break;
		}
	}
	return scanner.summary;
}

} // namespace storage
} // namespace quack
