#include "quack/storage/log_recovery.hpp"

#include <algorithm>

#include "quack/common/log.hpp"
#include "quack/storage/log_scan.hpp"

namespace quack {
namespace storage {

namespace {

constexpr uint64_t ZERO_CHUNK_BYTES = 1 << 20;

Status Damage(const std::string &path, const Status &cause) {
	return Status(cause.Code(), path + ": " + cause.Message());
}

class Recovery {
public:
	Recovery(FileSystem &files_p, const std::string &directory_p, const LogSabotage &sabotage_p)
	    : files(files_p), directory(directory_p), sabotage(sabotage_p) {
	}

	Status Run(const std::vector<uint64_t> &sequences) {
		auto first = FirstWithoutGap(sequences);
		for (auto i = first; i < sequences.size(); i++) {
			auto status = Replay(sequences[i], i + 1 == sequences.size());
			if (!status.IsOk()) {
				return status;
			}
		}
		auto status = log.table.CheckComplete();
		if (!status.IsOk()) {
			return Damage(directory, status);
		}
		return RemoveStale(sequences, first);
	}

	RecoveredLog log;

private:
	//! Removals go oldest first but may reach the disk in any order: what lies before a gap was on its way out.
	//! CheckComplete tells when it was not.
	static size_t FirstWithoutGap(const std::vector<uint64_t> &sequences) {
		auto first = sequences.size();
		while (first > 0 && (first == sequences.size() || sequences[first - 1] + 1 == sequences[first])) {
			first--;
		}
		return first;
	}

	Status Replay(uint64_t sequence, bool newest) {
		Segment segment;
		segment.path = JoinPath(directory, SegmentFileName(sequence));
		auto opened = files.Open(segment.path, newest ? OpenMode::ReadWrite : OpenMode::ReadOnly);
		if (!opened.IsOk()) {
			return opened.GetStatus();
		}
		segment.file = std::move(opened.Value());
		auto bytes = ReadWholeFile(*segment.file);
		if (!bytes.IsOk()) {
			return bytes.GetStatus();
		}
		segment.capacity = bytes.Value().size();
		auto status = CheckHeader(sequence, bytes.Value(), segment);
		if (!status.IsOk()) {
			return status;
		}
		RecordCursor cursor(bytes.Value(), segment.header);
		RecordFields last_good;
		status = ReplayRecords(segment, cursor, last_good);
		if (!status.IsOk()) {
			return status;
		}
		status = CheckEnd(segment, bytes.Value(), cursor, last_good);
		if (status.IsOk() && newest) {
			status = MendTail(segment, bytes.Value(), cursor);
		}
		previous_end = cursor.Offset();
		previous_crc = cursor.LastCrc();
		previous_bytes_path = segment.path;
		log.segments.push_back(std::move(segment));
		return status;
	}

	Status CheckHeader(uint64_t sequence, ByteView bytes, Segment &segment) {
		auto decoded = DecodeSegmentHeader(bytes);
		if (!decoded.IsOk()) {
			return Damage(segment.path,
			              Status(decoded.GetStatus().Code(), "offset 0: " + decoded.GetStatus().Message()));
		}
		auto &header = decoded.Value();
		if (header.sequence != sequence) {
			return Damage(segment.path, Status(ErrorCode::Corruption, "offset 0: the header says it is segment " +
			                                                              std::to_string(header.sequence)));
		}
		if (log.segments.empty()) {
			log.store_id = header.store_id;
		} else if (header.store_id != log.store_id) {
			return Damage(segment.path,
			              Status(ErrorCode::Corruption, "offset 0: the segment belongs to another log directory"));
		} else if (header.previous_end != previous_end || header.previous_crc != previous_crc) {
			return Damage(previous_bytes_path,
			              Status(ErrorCode::Corruption,
			                     "its good records end at offset " + std::to_string(previous_end) +
			                         " but it was closed at offset " + std::to_string(header.previous_end) + "; " +
			                         previous_damage));
		}
		segment.header = header;
		segment.header.skips_checksum = sabotage.skip_checksum;
		return Status::Ok();
	}

	Status ReplayRecords(const Segment &segment, RecordCursor &cursor, RecordFields &last_good) {
		RecordView record;
		while (cursor.Next(record)) {
			auto status = log.table.Apply(record.fields, record.body, static_cast<uint32_t>(segment.header.sequence),
			                              record.offset);
			if (!status.IsOk()) {
				return Damage(segment.path, Status(status.Code(), "offset " + std::to_string(record.offset) + ": " +
				                                                      status.Message()));
			}
			last_good = record.fields;
		}
		return Status::Ok();
	}

	//! The newest segment must be good up to its acknowledged end. A closed one is judged by its successor's header.
	Status CheckEnd(const Segment &segment, ByteView bytes, const RecordCursor &cursor, const RecordFields &last_good) {
		previous_damage = DescribeDamage(bytes, cursor.Offset(), last_good);
		tail_report = InspectTail(bytes, segment.header, cursor);
		if (tail_report.acknowledged_end > cursor.Offset()) {
			return Damage(segment.path,
			              Status(ErrorCode::Corruption, previous_damage + ", and the log was durable up to offset " +
			                                                std::to_string(tail_report.acknowledged_end)));
		}
		return Status::Ok();
	}

	Status MendTail(Segment &segment, ByteView bytes, const RecordCursor &cursor) {
		log.torn_bytes = tail_report.torn_bytes;
		auto end = cursor.Offset();
		if (log.torn_bytes > 0) {
			Log(LogLevel::Warn, "storage", "torn_tail_cut",
			    {{"file", segment.path}, {"offset", std::to_string(end)}, {"bytes", std::to_string(log.torn_bytes)}});
		}
		if (segment.capacity < segment.header.capacity) {
			Log(LogLevel::Warn, "storage", "segment_is_short",
			    {{"file", segment.path},
			     {"bytes", std::to_string(segment.capacity)},
			     {"expected_bytes", std::to_string(segment.header.capacity)}});
			// On a full disk the segment stays short and the next batch opens another one.
			auto status = segment.file->Allocate(segment.header.capacity);
			if (status.IsOk()) {
				segment.capacity = segment.header.capacity;
			} else if (status.Code() != ErrorCode::DiskFull) {
				return status;
			}
		}
		auto status = ZeroTail(segment, end);
		if (status.IsOk()) {
			status = RewriteUnproven(segment, bytes, end);
		}
		if (!status.IsOk()) {
			return status;
		}
		// Records that survived only in the page cache become durable before anybody builds on them.
		status = segment.file->DataSync();
		if (!status.IsOk()) {
			return status;
		}
		log.tail = {end, cursor.LastCrc(), end};
		if (end + RECORD_HEADER_BYTES > segment.capacity) {
			return Status::Ok();
		}
		BatchEncoder marker(segment.header, end, end, cursor.LastCrc());
		marker.AddEnd();
		return segment.file->WriteAt(end, marker.Pieces());
	}

	//! Torn records must not come back when later records happen to end where they start.
	Status ZeroTail(Segment &segment, uint64_t end) {
		auto torn_end = std::min(end + tail_report.torn_bytes, segment.capacity);
		std::string zeros(std::min(tail_report.torn_bytes, ZERO_CHUNK_BYTES), '\0');
		for (auto offset = end; offset < torn_end; offset += zeros.size()) {
			auto size = std::min<uint64_t>(zeros.size(), torn_end - offset);
			auto status = segment.file->WriteAt(offset, {ByteView(zeros).substr(0, size)});
			if (!status.IsOk()) {
				return status;
			}
		}
		return Status::Ok();
	}

	//! After a failed fsync the page cache may show bytes, marked clean, that the disk never got. Writing them again
	//! makes the coming sync cover them.
	Status RewriteUnproven(Segment &segment, ByteView bytes, uint64_t end) {
		auto proven = tail_report.acknowledged_end;
		if (proven >= end) {
			return Status::Ok();
		}
		return segment.file->WriteAt(proven, {bytes.substr(proven, end - proven)});
	}

	Status RemoveStale(const std::vector<uint64_t> &sequences, size_t first) {
		for (size_t i = 0; i < first; i++) {
			auto status = files.Remove(JoinPath(directory, SegmentFileName(sequences[i])));
			if (!status.IsOk()) {
				return status;
			}
		}
		return first > 0 ? files.SyncDirectory(directory) : Status::Ok();
	}

	FileSystem &files;
	const std::string &directory;
	const LogSabotage &sabotage;
	uint64_t previous_end = 0;
	uint32_t previous_crc = 0;
	std::string previous_bytes_path;
	std::string previous_damage;
	TailReport tail_report;
};

} // namespace

Result<RecoveredLog> RecoverLog(FileSystem &files, const std::string &directory, const std::vector<std::string> &names,
                                const LogSabotage &sabotage) {
	std::vector<uint64_t> sequences;
	for (auto &name : names) {
		if (auto sequence = ParseSegmentFileName(name)) {
			sequences.push_back(*sequence);
		}
	}
	std::sort(sequences.begin(), sequences.end());
	Recovery recovery(files, directory, sabotage);
	if (!sequences.empty()) {
		auto status = recovery.Run(sequences);
		if (!status.IsOk()) {
			return status;
		}
	}
	return std::move(recovery.log);
}

} // namespace storage
} // namespace quack
