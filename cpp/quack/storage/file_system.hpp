//! The disk seam: everything the log asks of the operating system. PosixFileSystem is the real one;
//! testing/fault_file_system.hpp keeps files in memory and breaks on purpose.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace storage {

//! Failures of every call: DiskFull (ENOSPC, EDQUOT), NotFound (ENOENT), IoError (all else); the message names the
//! path.

//! One open file. Reads may run beside writes from another thread; everything else belongs to one thread.
class File {
public:
	virtual ~File() = default;

	//! Reads up to `size` bytes; fewer only at the end of the file. Returns the count.
	virtual Result<size_t> ReadAt(uint64_t offset, char *out, size_t size) = 0;

	//! Writes all pieces back to back from `offset` on. After a failure any part of the range may have changed.
	virtual Status WriteAt(uint64_t offset, const std::vector<ByteView> &pieces) = 0;

	//! Durable data, and the size when it grew (fdatasync). After a failure nothing is known about earlier writes:
	//! never call it again on this file to find out.
	virtual Status DataSync() = 0;

	//! Reserves blocks so that the file has at least `size` bytes; the new ones read as zero.
	virtual Status Allocate(uint64_t size) = 0;

	virtual Status Truncate(uint64_t size) = 0;

	virtual Result<uint64_t> Size() = 0;
};

//! Held while it lives (flock); another process, or another holder in this one, is refused.
class FileLock {
public:
	virtual ~FileLock() = default;
};

enum class OpenMode : uint8_t {
	ReadOnly = 0,
	ReadWrite = 1,
	Create = 2, //! read and write; AlreadyExists when the file is there
};

//! Thread-safe.
class FileSystem {
public:
	virtual ~FileSystem() = default;

	virtual Result<std::unique_ptr<File>> Open(const std::string &path, OpenMode mode) = 0;

	//! Atomic; replaces `to`. Durable after SyncDirectory.
	virtual Status Rename(const std::string &from, const std::string &to) = 0;

	//! Durable after SyncDirectory.
	virtual Status Remove(const std::string &path) = 0;

	//! Names (not paths) of the plain files in `directory`, sorted.
	virtual Result<std::vector<std::string>> List(const std::string &directory) = 0;

	//! Creates the directory and its missing parents, durably. Ok when it is there.
	virtual Status CreateDirectory(const std::string &directory) = 0;

	//! Makes creations, renames and removals in `directory` durable.
	virtual Status SyncDirectory(const std::string &directory) = 0;

	//! Creates and locks `path`. Unavailable when somebody holds it.
	virtual Result<std::unique_ptr<FileLock>> Lock(const std::string &path) = 0;

	//! A number no other log has; not secret.
	virtual uint64_t UniqueId() = 0;
};

//! The operating system's files. One object may serve everybody.
class PosixFileSystem final : public FileSystem {
public:
	Result<std::unique_ptr<File>> Open(const std::string &path, OpenMode mode) override;
	Status Rename(const std::string &from, const std::string &to) override;
	Status Remove(const std::string &path) override;
	Result<std::vector<std::string>> List(const std::string &directory) override;
	Status CreateDirectory(const std::string &directory) override;
	Status SyncDirectory(const std::string &directory) override;
	Result<std::unique_ptr<FileLock>> Lock(const std::string &path) override;
	uint64_t UniqueId() override;
};

//! Reads a whole file.
Result<std::string> ReadWholeFile(File &file);

//! `directory` + '/' + `name`.
std::string JoinPath(const std::string &directory, const std::string &name);

} // namespace storage
} // namespace quack
