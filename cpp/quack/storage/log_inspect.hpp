//! What recovery would make of a log directory, told without a lock and without changing anything.
#pragma once

#include <functional>
#include <vector>

#include "quack/storage/log_scan.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace storage {

struct LogInspection {
	ScanSummary summary;
	//! Every group as the good records before the first damage leave it.
	std::vector<RecoveredGroup> groups;
};

//! Reads every record once, in order; `visit` may be empty. A contradiction between good records counts as damage. The
//! log of a running node may be read too: its last records are in motion then. NotFound when the directory holds no
//! segments, else as ScanLog.
Result<LogInspection> InspectLog(FileSystem &files, const std::string &directory,
                                 const std::function<void(const ScannedRecord &)> &visit);

//! What a good record says beyond its header, for people: a vote, a membership, how many bytes.
std::string DescribeRecord(const ScannedRecord &record);

} // namespace storage
} // namespace quack
