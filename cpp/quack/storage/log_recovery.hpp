//! Rebuilds the log's memory side from its segments and mends the tail. The rules are in segmented_log.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/storage/file_system.hpp"
#include "quack/storage/log_format.hpp"
#include "quack/storage/log_table.hpp"

namespace quack {
namespace storage {

//! A segment in use.
struct Segment {
	std::string path;
	std::shared_ptr<File> file;
	SegmentHeader header;
	//! Size of the file; may be less than header.capacity after a cut.
	uint64_t capacity = 0;
};

//! Where the next record goes: the end of the newest segment.
struct LogTail {
	uint64_t offset = 0;
	uint32_t last_crc = 0;
	//! Everything before it is durable.
	uint64_t synced = 0;
};

struct RecoveredLog {
	uint64_t store_id = 0;
	//! Oldest first, no gaps; empty for a new log.
	std::vector<Segment> segments;
	LogTable table;
	LogTail tail;
	uint64_t torn_bytes = 0;
};

//! `names` are the files of the directory. Corruption names the file and, for a record, offset, group and index.
//! On success the tail is clean and durable, and segment files from before a gap are removed.
Result<RecoveredLog> RecoverLog(FileSystem &files, const std::string &directory, const std::vector<std::string> &names,
                                const LogSabotage &sabotage);

} // namespace storage
} // namespace quack
