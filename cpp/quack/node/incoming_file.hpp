//! The image that a node is receiving: its bytes on disk, and beside them the record of what is surely there.
#pragma once

#include <optional>
#include <string>

#include "quack/common/clock.hpp"
#include "quack/node/snapshot_part.hpp"

namespace quack {
namespace node {

//! `<directory>/incoming-snapshot-<image>` and `<directory>/incoming-snapshot.part`. Write appends; every so often the
//! bytes are made durable and then the record that counts them, so the record never promises what is not there. After a
//! crash the bytes that the record counts are read once and compared with its checksum. One thread.
class IncomingFile {
public:
	explicit IncomingFile(std::string directory);
	~IncomingFile();
	IncomingFile(const IncomingFile &) = delete;
	IncomingFile &operator=(const IncomingFile &) = delete;

	//! Makes the directory, and removes what no usable record counts there: leftovers, and what is older than a day.
	//! IoError: the directory cannot be made.
	Status Sweep();
	//! What is there of an image, its bytes checked. Nothing when there is nothing, or nothing usable: then it is
	//! removed, and the log says why.
	std::optional<SnapshotPart> Load();
	//! Opens the file of the part's image for writing behind part.offset; of any other image nothing stays.
	Status Begin(const SnapshotPart &part);
	//! Behind what was written; `part` counts it.
	Status Write(ByteView bytes, const SnapshotPart &part, MonotonicNs now);
	//! Makes all of it durable, and the record too.
	Status Save(const SnapshotPart &part, MonotonicNs now);
	//! Closes the file, which stays, with its record.
	void Close();
	//! Nothing stays.
	void Remove();
	//! Of the image at hand.
	std::string Path(const SnapshotPart &part) const;

private:
	std::string RecordPath() const;
	//! Removes every file of ours but the two.
	void RemoveExcept(const std::string &kept_file, const std::string &kept_record);
	Result<SnapshotPart> ReadRecord() const;
	Status CheckBytes(const SnapshotPart &part) const;

	const std::string directory;
	int file = -1;
	//! The record, when it was written or checked in this life.
	std::optional<SnapshotPart> known;
	std::string path; //! of the open file
	uint64_t saved_offset = 0;
	MonotonicNs saved_at = 0;
};

} // namespace node
} // namespace quack
