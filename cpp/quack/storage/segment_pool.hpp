//! Ready-made segment files: preallocated and written over once with zeros, so that a later fdatasync finds nothing to
//! do but the data itself; old segments come back here. A helper thread may make the next one ahead of need.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quack/storage/file_system.hpp"

namespace quack {
namespace storage {

//! A file of `capacity` bytes, all durable; contents are zeros or an older segment's.
struct SpareSegment {
	std::string path;
	std::shared_ptr<File> file;
	uint64_t capacity = 0;
};

//! Thread-safe. Take, GiveBack and Recycle are called by the log's writer thread.
class SegmentPool {
public:
	SegmentPool(FileSystem &files, std::string directory, uint64_t segment_bytes, size_t spare_count_max,
	            bool in_background);
	~SegmentPool();
	SegmentPool(const SegmentPool &) = delete;
	SegmentPool &operator=(const SegmentPool &) = delete;

	//! Takes over the spares among `names` and removes half-made ones. Call once, first.
	Status Adopt(const std::vector<std::string> &names);

	//! A file of at least `bytes_min`; as big as a segment when the disk allows. DiskFull when not even bytes_min fit.
	Result<SpareSegment> Take(uint64_t bytes_min);

	//! Back unused.
	void GiveBack(SpareSegment spare);

	//! Renames or removes the file of a segment that is no longer needed. The caller syncs the directory before the
	//! next Take: else a crash could find new contents under the old name.
	Status Recycle(const std::string &path, uint64_t capacity);

	//! Makes a spare ahead of need when there is none: in the background, or not at all.
	void Prepare();

	//! One spare is at hand, made now when there is none. DiskFull, IoError.
	Status EnsureSpare();

	uint64_t SpareBytes() const;

private:
	std::string NextPath(const char *prefix);
	Result<SpareSegment> Make(uint64_t capacity);
	Status Fill(File &file, uint64_t capacity);
	void RunHelper();

	FileSystem &files;
	const std::string directory;
	const uint64_t segment_bytes;
	const size_t spare_count_max;

	//! Guards what follows. Not held across file calls that write data.
	mutable std::mutex mutex;
	std::condition_variable changed;
	std::vector<SpareSegment> spares;
	uint64_t next_number = 1;
	bool wanted = false;
	bool stopping = false;

	std::thread helper;
};

} // namespace storage
} // namespace quack
