//! Benchmark of the durable log on a real disk: prints one JSON object. It compares with what the disk itself can do
//! (fdatasync of the same sizes on one preallocated file).
//! Use: log_bench <folder> [seconds per measurement]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "quack/common/clock.hpp"
#include "quack/storage/segmented_log.hpp"

using namespace quack;

namespace {

[[noreturn]] void Fail(const Status &status) {
	std::fprintf(stderr, "log_bench: %s\n", status.ToString().c_str());
	std::exit(1);
}

void Require(const Status &status) {
	if (!status.IsOk()) {
		Fail(status);
	}
}

//! Rates and latencies of one measurement.
struct Measurement {
	const char *name = "";
	double seconds = 0;
	std::vector<MonotonicNs> latencies;
	uint64_t bytes = 0;
	uint64_t entries = 0;

	std::string Json() {
		std::sort(latencies.begin(), latencies.end());
		auto at = [this](double share) {
			return static_cast<double>(
			           latencies[static_cast<size_t>(share * static_cast<double>(latencies.size() - 1))]) /
			       1000.0;
		};
		char text[512];
		std::snprintf(text, sizeof(text),
		              "\"%s\": {\"syncs_per_second\": %.0f, \"entries_per_second\": %.0f, \"mb_per_second\": %.1f, "
		              "\"p50_us\": %.0f, \"p99_us\": %.0f, \"max_us\": %.0f}",
		              name, static_cast<double>(latencies.size()) / seconds, static_cast<double>(entries) / seconds,
		              static_cast<double>(bytes) / seconds / 1e6, at(0.5), at(0.99), at(1.0));
		return text;
	}
};

Measurement MeasureDisk(const char *name, const std::string &folder, size_t bytes, double seconds) {
	storage::PosixFileSystem files;
	auto opened = files.Open(folder + "/raw", storage::OpenMode::Create);
	Require(opened.GetStatus());
	auto &file = *opened.Value();
	constexpr uint64_t SIZE = 64 << 20;
	std::string block(1 << 20, '\0');
	for (uint64_t offset = 0; offset < SIZE; offset += block.size()) {
		Require(file.WriteAt(offset, {block}));
	}
	Require(file.DataSync());
	SystemClock clock;
	Measurement result;
	result.name = name;
	block.resize(bytes, 'x');
	uint64_t offset = 0;
	auto start = clock.Now();
	while (clock.Now() - start < seconds * NS_PER_SECOND) {
		auto before = clock.Now();
		Require(file.WriteAt(offset, {block}));
		Require(file.DataSync());
		result.latencies.push_back(clock.Now() - before);
		result.bytes += bytes;
		offset = offset + 2 * bytes > SIZE ? 0 : offset + bytes;
	}
	result.seconds = static_cast<double>(clock.Now() - start) / NS_PER_SECOND;
	result.entries = result.latencies.size();
	Require(files.Remove(folder + "/raw"));
	return result;
}

Measurement MeasureLog(const char *name, const std::string &folder, size_t payload_bytes, size_t entries_per_batch,
                       bool sync_each, double seconds) {
	storage::PosixFileSystem files;
	storage::LogOptions options;
	options.directory = folder + "/log";
	auto opened = storage::OpenSegmentedLog(files, options);
	Require(opened.GetStatus());
	auto &log = *opened.Value();
	raft::SnapshotMeta position;
	position.membership.voters = {1, 2, 3};
	Require(log.CreateGroup(1, position));
	Require(log.Sync());
	auto payload = MakeSharedBytes(std::string(payload_bytes, 'x'));
	SystemClock clock;
	Measurement result;
	result.name = name;
	raft::LogIndex last = 0;
	auto start = clock.Now();
	while (clock.Now() - start < seconds * NS_PER_SECOND) {
		storage::GroupAppend batch;
		for (size_t i = 0; i < entries_per_batch; i++) {
			batch.entries.push_back({1, ++last, raft::EntryType::Normal, payload});
		}
		auto before = clock.Now();
		Require(log.Append({batch}));
		if (sync_each) {
			Require(log.Sync());
		}
		result.latencies.push_back(clock.Now() - before);
		result.bytes += payload_bytes * entries_per_batch;
		result.entries += entries_per_batch;
		// A checkpoint now and then, so that segments are recycled as in life.
		if (result.latencies.size() % 256 == 0) {
			position.index = log.TailStart(1, last, 128 << 20);
			position.term = position.index > 0 ? 1 : 0;
			Require(log.TruncatePrefix(1, position));
		}
	}
	Require(log.Sync());
	result.seconds = static_cast<double>(clock.Now() - start) / NS_PER_SECOND;
	opened.Value().reset();
	std::filesystem::remove_all(options.directory);
	return result;
}

std::string MeasureRecovery(const std::string &folder) {
	storage::PosixFileSystem files;
	storage::LogOptions options;
	options.directory = folder + "/log";
	raft::LogIndex last = 0;
	auto payload = MakeSharedBytes(std::string(200, 'x'));
	{
		auto opened = storage::OpenSegmentedLog(files, options);
		Require(opened.GetStatus());
		Require(opened.Value()->CreateGroup(1, raft::SnapshotMeta()));
		for (int batch_number = 0; batch_number < 1000; batch_number++) {
			storage::GroupAppend batch;
			for (int i = 0; i < 1000; i++) {
				batch.entries.push_back({1, ++last, raft::EntryType::Normal, payload});
			}
			Require(opened.Value()->Append({batch}));
		}
		Require(opened.Value()->Sync());
	}
	SystemClock clock;
	auto start = clock.Now();
	auto reopened = storage::OpenSegmentedLog(files, options);
	Require(reopened.GetStatus());
	auto seconds = static_cast<double>(clock.Now() - start) / NS_PER_SECOND;
	auto bytes = reopened.Value()->GetStatus().disk_bytes;
	reopened.Value().reset();
	std::filesystem::remove_all(options.directory);
	char text[256];
	std::snprintf(text, sizeof(text), "\"recovery\": {\"entries\": %llu, \"disk_mb\": %.0f, \"seconds\": %.3f}",
	              static_cast<unsigned long long>(last), static_cast<double>(bytes) / 1e6, seconds);
	return text;
}

} // namespace

int main(int argc, char **argv) {
	if (argc < 2) {
		std::fprintf(stderr, "use: log_bench <folder on the disk to measure> [seconds per measurement]\n");
		return 2;
	}
	std::string folder = argv[1];
	auto seconds = argc > 2 ? std::atof(argv[2]) : 2.0;
	std::filesystem::create_directories(folder);
	std::string json = "{\"ok\": true";
	for (auto &&measurement :
	     {MeasureDisk("disk_4k", folder, 4096, seconds), MeasureDisk("disk_64k", folder, 65536, seconds),
	      MeasureLog("log_1x200_synced", folder, 200, 1, true, seconds),
	      MeasureLog("log_1x4000_synced", folder, 4000, 1, true, seconds),
	      MeasureLog("log_64x200_synced", folder, 200, 64, true, seconds),
	      MeasureLog("log_16x64k_synced", folder, 65536, 16, true, seconds),
	      MeasureLog("log_64x200_unsynced", folder, 200, 64, false, seconds)}) {
		auto copy = measurement;
		json += ", " + copy.Json();
	}
	std::printf("%s, %s}\n", json.c_str(), MeasureRecovery(folder).c_str());
	return 0;
}
