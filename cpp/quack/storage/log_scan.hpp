//! Reading segments: file names, the walk over valid records, and the verdict on where a segment ends. Shared by
//! recovery and by the tools that dump or verify a log.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quack/storage/file_system.hpp"
#include "quack/storage/log_format.hpp"

namespace quack {
namespace storage {

//! "segment-<16 hex digits>.log"; names sort like sequences.
std::string SegmentFileName(uint64_t sequence);
//! Nothing when `name` is no segment's name.
std::optional<uint64_t> ParseSegmentFileName(const std::string &name);

//! Preallocated and durable, but without a place in the log yet.
constexpr const char *SPARE_PREFIX = "spare-";
//! Half-made spares; removed at open.
constexpr const char *TEMPORARY_PREFIX = "temporary-";
constexpr const char *LOCK_FILE_NAME = "LOCK";

//! Walks the valid, chained records of one segment from its head on. Stops at the End record, or at the first bytes
//! that are no valid successor.
class RecordCursor {
public:
	RecordCursor(ByteView segment_p, const SegmentHeader &header_p)
	    : segment(segment_p), header(header_p), offset(SEGMENT_HEADER_BYTES), last_crc(header_p.crc) {
	}

	//! False at the end; then Offset() and LastCrc() tell where the next record would go.
	bool Next(RecordView &record);

	uint64_t Offset() const {
		return offset;
	}
	uint32_t LastCrc() const {
		return last_crc;
	}
	//! Highest synced position that any record so far, also a closing End, vouches for.
	uint64_t AcknowledgedEnd() const {
		return acknowledged_end;
	}
	//! True when the walk ended at a valid End record.
	bool FoundEnd() const {
		return found_end;
	}

private:
	const ByteView segment;
	const SegmentHeader &header;
	uint64_t offset;
	uint32_t last_crc;
	uint64_t acknowledged_end = 0;
	bool found_end = false;
};

//! What lies behind the last good record of the newest segment.
struct TailReport {
	//! Highest position that any valid record of this segment, before or behind the gap, says was durable.
	uint64_t acknowledged_end = 0;
	//! Bytes behind the gap that a crash in the middle of a write explains; 0 = a clean end.
	uint64_t torn_bytes = 0;
};

//! `cursor` must have ended.
TailReport InspectTail(ByteView segment, const SegmentHeader &header, const RecordCursor &cursor);

//! One sentence about the bytes at `offset` that should be a record: what they claim to be and what came before.
std::string DescribeDamage(ByteView segment, uint64_t offset, const RecordFields &last_good);

//! One record as a tool shows it. The views live during the callback only.
struct ScannedRecord {
	std::string file; //! path
	uint64_t offset = 0;
	RecordFields fields;
	//! Header, body and padding.
	uint64_t size = 0;
	//! False for damage: then `fields` holds what the bytes claim, `size` how far until the next valid record.
	bool crc_ok = false;
	//! The record lies before a position that the log knows durable.
	bool acknowledged = false;
	ByteView body;
};

struct ScanSummary {
	uint64_t segment_count = 0;
	uint64_t record_count = 0;
	uint64_t entry_count = 0;
	//! Damage before the acknowledged end, missing segments, unreadable headers: recovery would refuse this log.
	uint64_t damage_count = 0;
	//! What recovery would cut from the newest segment.
	uint64_t torn_bytes = 0;
	//! The first damage in words; Ok when there is none.
	Status first_damage;
};

//! Reads every record of a log directory in order, without a lock and without changing anything; go on after damage.
//! The visitor returns false to stop early. Fails only when the directory cannot be read.
Result<ScanSummary> ScanLog(FileSystem &files, const std::string &directory,
                            const std::function<bool(const ScannedRecord &)> &visit);

} // namespace storage
} // namespace quack
