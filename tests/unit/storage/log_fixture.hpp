//! A segmented log on a faulty disk in memory, and whole-disk images to start many trials from one state.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/log_store_suite.hpp"
#include "log_model.hpp"
#include "quack/common/log.hpp"
#include "quack/storage/log_scan.hpp"
#include "quack/storage/segmented_log.hpp"
#include "quack/storage/testing/fault_file_system.hpp"

namespace quack {
namespace testing {

constexpr const char *LOG_DIRECTORY = "/log";

//! Paths and bytes of all files.
using DiskImage = std::map<std::string, std::string>;

class LogFixture {
public:
	explicit LogFixture(uint64_t segment_bytes = 16 << 10) : files(1) {
		SetLogSink([](LogLevel, const std::string &) {}, LogLevel::Error);
		options.directory = LOG_DIRECTORY;
		options.segment_bytes = segment_bytes;
		options.prepare_in_background = false;
		options.cache_bytes = 0;
	}

	storage::LogStore &Open() {
		auto opened = TryOpen();
		REQUIRE_MESSAGE(opened.IsOk(), opened.ToString());
		return *log;
	}

	Status TryOpen() {
		log.reset();
		auto opened = storage::OpenSegmentedLog(files, options);
		if (!opened.IsOk()) {
			return opened.GetStatus();
		}
		log = std::move(opened.Value());
		return Status::Ok();
	}

	void EndProcess() {
		files.EndProcess();
		log.reset();
	}

	std::vector<std::string> FileNames() {
		auto names = files.List(LOG_DIRECTORY);
		REQUIRE(names.IsOk());
		return names.Value();
	}

	//! Paths of the segments, oldest first.
	std::vector<std::string> Segments() {
		std::vector<std::string> paths;
		for (auto &name : FileNames()) {
			if (storage::ParseSegmentFileName(name)) {
				paths.push_back(storage::JoinPath(LOG_DIRECTORY, name));
			}
		}
		return paths;
	}

	DiskImage TakeImage() {
		DiskImage image;
		for (auto &name : FileNames()) {
			auto path = storage::JoinPath(LOG_DIRECTORY, name);
			image[path] = files.Contents(path);
		}
		return image;
	}

	//! The disk holds exactly `image`, all of it durable.
	void RestoreImage(const DiskImage &image) {
		EndProcess();
		for (auto &name : FileNames()) {
			auto path = storage::JoinPath(LOG_DIRECTORY, name);
			if (image.count(path) == 0) {
				QUACK_REQUIRE_OK(files.Remove(path));
			}
		}
		for (auto &item : image) {
			if (!files.EditFile(item.first, [&](std::string &bytes) { bytes = item.second; }).IsOk()) {
				REQUIRE(files.Open(item.first, storage::OpenMode::Create).IsOk());
				QUACK_REQUIRE_OK(files.EditFile(item.first, [&](std::string &bytes) { bytes = item.second; }));
			}
		}
		QUACK_REQUIRE_OK(files.SyncDirectory(LOG_DIRECTORY));
	}

	//! All records that a tool would see.
	std::vector<storage::ScannedRecord> Scan(storage::ScanSummary *summary = nullptr) {
		std::vector<storage::ScannedRecord> records;
		auto scanned = storage::ScanLog(files, LOG_DIRECTORY, [&](const storage::ScannedRecord &record) {
			records.push_back(record);
			records.back().body = ByteView();
			return true;
		});
		REQUIRE(scanned.IsOk());
		if (summary) {
			*summary = scanned.Value();
		}
		return records;
	}

	storage::FaultFileSystem files;
	storage::LogOptions options;
	std::unique_ptr<storage::LogStore> log;
};

//! A log of two groups with every kind of record, spread over a closed and an open segment, all synced.
inline void WriteEveryKind(LogFixture &fixture) {
	auto &log = fixture.Open();
	QUACK_REQUIRE_OK(log.CreateGroup(1, conformance::MakeSnapshot(0, 0)));
	QUACK_REQUIRE_OK(log.CreateGroup(2, conformance::MakeSnapshot(5, 1)));
	for (int half = 0; half < 2; half++) {
		auto first = log.Reader(1).LastIndex() + 1;
		raft::Term term = 1 + half;
		QUACK_REQUIRE_OK(
		    log.Append({conformance::MakeVote(1, term, 2, first - 1), conformance::MakeAppend(1, first, 4, term, 50),
			            conformance::MakeAppend(2, log.Reader(2).LastIndex() + 1, 2, term)}));
		QUACK_REQUIRE_OK(log.Sync());
		QUACK_REQUIRE_OK(log.TruncatePrefix(1, conformance::MakeSnapshot(first, term)));
		QUACK_REQUIRE_OK(log.Reset(2, conformance::MakeSnapshot(10 + 10 * half, term)));
		QUACK_REQUIRE_OK(log.CreateGroup(9, conformance::MakeSnapshot(0, 0)));
		QUACK_REQUIRE_OK(log.RemoveGroup(9));
		QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(2, 11 + 10 * half, 2, term)}));
		QUACK_REQUIRE_OK(log.Sync());
		if (half == 0) { // does not fit any more: opens the second segment
			QUACK_REQUIRE_OK(log.Append({conformance::MakeAppend(1, log.Reader(1).LastIndex() + 1, 1, term, 13000)}));
			QUACK_REQUIRE_OK(log.Sync());
		}
	}
	REQUIRE(fixture.Segments().size() == 2);
}

} // namespace testing
} // namespace quack
