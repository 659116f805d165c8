#include "quack/storage/segment_pool.hpp"

#include <algorithm>

#include "quack/common/log.hpp"
#include "quack/storage/log_scan.hpp"

namespace quack {
namespace storage {

namespace {

constexpr uint64_t BLOCK_BYTES = 4096;
constexpr uint64_t FILL_CHUNK_BYTES = 1 << 20;
//! On a nearly full disk segments shrink down to this share before the log gives up.
constexpr uint64_t SMALLEST_SHARE = 16;

bool HasPrefix(const std::string &name, const char *prefix) {
	return name.rfind(prefix, 0) == 0;
}

} // namespace

SegmentPool::SegmentPool(FileSystem &files_p, std::string directory_p, uint64_t segment_bytes_p,
                         size_t spare_count_max_p, bool in_background)
    : files(files_p), directory(std::move(directory_p)), segment_bytes(segment_bytes_p),
      spare_count_max(spare_count_max_p) {
	if (in_background) {
		helper = std::thread([this] { RunHelper(); });
	}
}

SegmentPool::~SegmentPool() {
	if (helper.joinable()) {
		{
			std::lock_guard<std::mutex> lock(mutex);
			stopping = true;
		}
		changed.notify_all();
		helper.join();
	}
}

Status SegmentPool::Adopt(const std::vector<std::string> &names) {
	for (auto &name : names) {
		auto path = JoinPath(directory, name);
		if (HasPrefix(name, TEMPORARY_PREFIX)) {
			auto status = files.Remove(path);
			if (!status.IsOk()) {
				return status;
			}
			continue;
		}
		if (!HasPrefix(name, SPARE_PREFIX)) {
			continue;
		}
		auto file = files.Open(path, OpenMode::ReadWrite);
		if (!file.IsOk()) {
			return file.GetStatus();
		}
		auto size = file.Value()->Size();
		if (!size.IsOk()) {
			return size.GetStatus();
		}
		std::lock_guard<std::mutex> lock(mutex);
		if (size.Value() != segment_bytes || spares.size() >= spare_count_max) {
			auto status = files.Remove(path);
			if (!status.IsOk()) {
				return status;
			}
			continue;
		}
		spares.push_back({path, std::move(file.Value()), size.Value()});
	}
	return Status::Ok();
}

std::string SegmentPool::NextPath(const char *prefix) {
	std::lock_guard<std::mutex> lock(mutex);
	auto taken = [this](const std::string &path) {
		return std::any_of(spares.begin(), spares.end(), [&](const SpareSegment &spare) { return spare.path == path; });
	};
	std::string path;
	do {
		path = JoinPath(directory, prefix + std::to_string(next_number++));
	} while (taken(path));
	return path;
}

Result<SpareSegment> SegmentPool::Take(uint64_t bytes_min) {
	{
		std::lock_guard<std::mutex> lock(mutex);
		for (auto spare = spares.begin(); spare != spares.end(); ++spare) {
			if (spare->capacity >= bytes_min) {
				auto taken = *spare;
				spares.erase(spare);
				return taken;
			}
		}
	}
	auto smallest = (std::max(bytes_min, segment_bytes / SMALLEST_SHARE) + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
	auto capacity = std::max(segment_bytes, smallest);
	while (true) {
		auto made = Make(capacity);
		if (made.IsOk() || made.GetStatus().Code() != ErrorCode::DiskFull || capacity <= smallest) {
			return made;
		}
		capacity = std::max(smallest, capacity / 2 / BLOCK_BYTES * BLOCK_BYTES);
	}
}

Result<SpareSegment> SegmentPool::Make(uint64_t capacity) {
	auto temporary = NextPath(TEMPORARY_PREFIX);
	auto opened = files.Open(temporary, OpenMode::Create);
	if (!opened.IsOk()) {
		return opened.GetStatus();
	}
	SpareSegment spare {NextPath(SPARE_PREFIX), std::move(opened.Value()), capacity};
	auto status = Fill(*spare.file, capacity);
	if (status.IsOk()) {
		status = files.Rename(temporary, spare.path);
	}
	if (!status.IsOk()) {
		spare.file.reset();
		auto removed = files.Remove(temporary);
		if (!removed.IsOk()) {
			Log(LogLevel::Warn, "storage", "cannot_remove_half_made_segment", {{"reason", removed.Message()}});
		}
		return status;
	}
	return spare;
}

Status SegmentPool::Fill(File &file, uint64_t capacity) {
	auto status = file.Allocate(capacity);
	if (!status.IsOk()) {
		return status;
	}
	// Without this write, the first sync of each block would also have to convert its extent.
	std::string zeros(std::min(capacity, FILL_CHUNK_BYTES), '\0');
	for (uint64_t offset = 0; offset < capacity; offset += zeros.size()) {
		auto size = std::min<uint64_t>(zeros.size(), capacity - offset);
		status = file.WriteAt(offset, {ByteView(zeros).substr(0, size)});
		if (!status.IsOk()) {
			return status;
		}
	}
	return file.DataSync();
}

void SegmentPool::GiveBack(SpareSegment spare) {
	std::lock_guard<std::mutex> lock(mutex);
	spares.push_back(std::move(spare));
}

Status SegmentPool::Recycle(const std::string &path, uint64_t capacity) {
	bool keep = false;
	{
		std::lock_guard<std::mutex> lock(mutex);
		keep = capacity == segment_bytes && spares.size() < spare_count_max;
	}
	if (!keep) {
		return files.Remove(path);
	}
	// A handle of its own: readers of the old segment keep theirs, and notice by the records' segment number.
	auto file = files.Open(path, OpenMode::ReadWrite);
	if (!file.IsOk()) {
		return file.GetStatus();
	}
	SpareSegment spare {NextPath(SPARE_PREFIX), std::move(file.Value()), capacity};
	auto status = files.Rename(path, spare.path);
	if (status.IsOk()) {
		GiveBack(std::move(spare));
	}
	return status;
}

void SegmentPool::Prepare() {
	if (!helper.joinable()) {
		return;
	}
	{
		std::lock_guard<std::mutex> lock(mutex);
		if (!spares.empty()) {
			return;
		}
		wanted = true;
	}
	changed.notify_all();
}

Status SegmentPool::EnsureSpare() {
	auto spare = Take(1);
	if (!spare.IsOk()) {
		return spare.GetStatus();
	}
	GiveBack(std::move(spare.Value()));
	return Status::Ok();
}

uint64_t SegmentPool::SpareBytes() const {
	std::lock_guard<std::mutex> lock(mutex);
	uint64_t bytes = 0;
	for (auto &spare : spares) {
		bytes += spare.capacity;
	}
	return bytes;
}

void SegmentPool::RunHelper() {
	std::unique_lock<std::mutex> lock(mutex);
	while (true) {
		changed.wait(lock, [this] { return wanted || stopping; });
		if (stopping) {
			return;
		}
		wanted = false;
		lock.unlock();
		// A failure here is not reported: the writer meets the same one when it takes a segment.
		auto made = Make(segment_bytes);
		if (made.IsOk()) {
			GiveBack(std::move(made.Value()));
		}
		lock.lock();
	}
}

} // namespace storage
} // namespace quack
