#include "quack/storage/file_system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace quack {
namespace storage {

namespace {

Status OsError(const char *what, const std::string &path, int error) {
	auto message = std::string(what) + " " + path + ": " + std::strerror(error);
	if (error == ENOSPC || error == EDQUOT) {
		return Status(ErrorCode::DiskFull, message);
	}
	if (error == ENOENT) {
		return Status(ErrorCode::NotFound, message);
	}
	if (error == EEXIST) {
		return Status(ErrorCode::AlreadyExists, message);
	}
	return Status(ErrorCode::IoError, message);
}

class PosixFile final : public File {
public:
	PosixFile(int fd_p, std::string path_p) : fd(fd_p), path(std::move(path_p)) {
	}
	~PosixFile() override {
		::close(fd);
	}

	Result<size_t> ReadAt(uint64_t offset, char *out, size_t size) override {
		size_t done = 0;
		while (done < size) {
			auto count = ::pread(fd, out + done, size - done, static_cast<off_t>(offset + done));
			if (count < 0) {
				if (errno == EINTR) {
					continue;
				}
				return OsError("cannot read", path, errno);
			}
			if (count == 0) {
				break;
			}
			done += static_cast<size_t>(count);
		}
		return done;
	}

	Status WriteAt(uint64_t offset, const std::vector<ByteView> &pieces) override {
		std::vector<iovec> vectors;
		vectors.reserve(pieces.size());
		for (auto &piece : pieces) {
			if (!piece.empty()) {
				vectors.push_back({const_cast<char *>(piece.data()), piece.size()});
			}
		}
		size_t next = 0;
		while (next < vectors.size()) {
			auto count = static_cast<int>(std::min<size_t>(vectors.size() - next, IOV_MAX));
			auto written = ::pwritev(fd, &vectors[next], count, static_cast<off_t>(offset));
			if (written < 0) {
				if (errno == EINTR) {
					continue;
				}
				return OsError("cannot write", path, errno);
			}
			offset += static_cast<uint64_t>(written);
			next = Advance(vectors, next, static_cast<size_t>(written));
		}
		return Status::Ok();
	}

	Status DataSync() override {
		// No retry on any error: the kernel may have dropped the dirty pages.
		return ::fdatasync(fd) == 0 ? Status::Ok() : OsError("cannot fdatasync", path, errno);
	}

	Status Allocate(uint64_t size) override {
		if (::fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0) {
			return Status::Ok();
		}
		if (errno != EOPNOTSUPP) {
			return OsError("cannot allocate space for", path, errno);
		}
		auto current = Size();
		if (!current.IsOk()) {
			return current.GetStatus();
		}
		return current.Value() >= size ? Status::Ok() : Truncate(size);
	}

	Status Truncate(uint64_t size) override {
		return ::ftruncate(fd, static_cast<off_t>(size)) == 0 ? Status::Ok()
		                                                      : OsError("cannot set the size of", path, errno);
	}

	Result<uint64_t> Size() override {
		struct stat info;
		if (::fstat(fd, &info) != 0) {
			return OsError("cannot stat", path, errno);
		}
		return static_cast<uint64_t>(info.st_size);
	}

private:
	//! Skips `written` bytes; returns the first vector that still has bytes.
	static size_t Advance(std::vector<iovec> &vectors, size_t next, size_t written) {
		while (next < vectors.size() && written >= vectors[next].iov_len) {
			written -= vectors[next].iov_len;
			next++;
		}
		if (written > 0) {
			vectors[next].iov_base = static_cast<char *>(vectors[next].iov_base) + written;
			vectors[next].iov_len -= written;
		}
		return next;
	}

	const int fd;
	const std::string path;
};

class PosixLock final : public FileLock {
public:
	explicit PosixLock(int fd_p) : fd(fd_p) {
	}
	~PosixLock() override {
		::close(fd);
	}

private:
	const int fd;
};

} // namespace

Result<std::unique_ptr<File>> PosixFileSystem::Open(const std::string &path, OpenMode mode) {
	int flags = O_CLOEXEC | (mode == OpenMode::ReadOnly ? O_RDONLY : O_RDWR);
	if (mode == OpenMode::Create) {
		flags |= O_CREAT | O_EXCL;
	}
	auto fd = ::open(path.c_str(), flags, 0600);
	if (fd < 0) {
		return OsError("cannot open", path, errno);
	}
	return std::unique_ptr<File>(new PosixFile(fd, path));
}

Status PosixFileSystem::Rename(const std::string &from, const std::string &to) {
	return ::rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : OsError("cannot rename", from + " to " + to, errno);
}

Status PosixFileSystem::Remove(const std::string &path) {
	return ::unlink(path.c_str()) == 0 ? Status::Ok() : OsError("cannot remove", path, errno);
}

Result<std::vector<std::string>> PosixFileSystem::List(const std::string &directory) {
	auto handle = ::opendir(directory.c_str());
	if (!handle) {
		return OsError("cannot list", directory, errno);
	}
	std::vector<std::string> names;
	errno = 0;
	while (auto item = ::readdir(handle)) {
		struct stat info;
		if (::fstatat(::dirfd(handle), item->d_name, &info, 0) == 0 && S_ISREG(info.st_mode)) {
			names.emplace_back(item->d_name);
		}
		errno = 0;
	}
	auto error = errno;
	::closedir(handle);
	if (error != 0) {
		return OsError("cannot list", directory, error);
	}
	std::sort(names.begin(), names.end());
	return names;
}

Status PosixFileSystem::CreateDirectory(const std::string &directory) {
	struct stat info;
	if (::stat(directory.c_str(), &info) == 0) {
		return S_ISDIR(info.st_mode) ? Status::Ok() : OsError("cannot create directory", directory, ENOTDIR);
	}
	auto slash = directory.find_last_of('/');
	std::string parent = slash == std::string::npos ? "." : (slash == 0 ? "/" : directory.substr(0, slash));
	auto status = CreateDirectory(parent);
	if (!status.IsOk()) {
		return status;
	}
	if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
		return OsError("cannot create directory", directory, errno);
	}
	return SyncDirectory(parent);
}

Status PosixFileSystem::SyncDirectory(const std::string &directory) {
	auto fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return OsError("cannot open directory", directory, errno);
	}
	auto status = ::fsync(fd) == 0 ? Status::Ok() : OsError("cannot fsync directory", directory, errno);
	::close(fd);
	return status;
}

Result<std::unique_ptr<FileLock>> PosixFileSystem::Lock(const std::string &path) {
	auto fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		return OsError("cannot open lock file", path, errno);
	}
	if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
		auto error = errno;
		::close(fd);
		if (error == EWOULDBLOCK) {
			return Status(ErrorCode::Unavailable,
			              "another process holds " + path + "; stop it, or give this node a directory of its own");
		}
		return OsError("cannot lock", path, error);
	}
	return std::unique_ptr<FileLock>(new PosixLock(fd));
}

uint64_t PosixFileSystem::UniqueId() {
	uint64_t value = 0;
	while (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
	}
	return value;
}

Result<std::string> ReadWholeFile(File &file) {
	auto size = file.Size();
	if (!size.IsOk()) {
		return size.GetStatus();
	}
	std::string bytes(size.Value(), '\0');
	auto count = file.ReadAt(0, &bytes[0], bytes.size());
	if (!count.IsOk()) {
		return count.GetStatus();
	}
	bytes.resize(count.Value());
	return bytes;
}

std::string JoinPath(const std::string &directory, const std::string &name) {
	return !directory.empty() && directory.back() == '/' ? directory + name : directory + "/" + name;
}

} // namespace storage
} // namespace quack
