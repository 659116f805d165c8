#include "quack/catalog/file_calls.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace quack {
namespace catalog {
namespace {

Status SyncAndClose(int handle, const std::string &what, const std::string &path) {
	auto status = fsync(handle) == 0 ? Status::Ok() : SystemError(what, path);
	auto number = errno;
	close(handle);
	errno = number;
	return status;
}

} // namespace

Status SystemError(const std::string &what, const std::string &path) {
	auto code = errno == ENOSPC || errno == EDQUOT ? ErrorCode::DiskFull : ErrorCode::IoError;
	return Status(code, what + " '" + path + "' failed: " + strerror(errno));
}

Status WriteAt(int file, ByteView bytes, uint64_t offset, const std::string &path) {
	while (!bytes.empty()) {
		auto done = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
		if (done < 0 && errno == EINTR) {
			continue;
		}
		if (done < 0) {
			return SystemError("writing", path);
		}
		bytes.remove_prefix(static_cast<size_t>(done));
		offset += static_cast<uint64_t>(done);
	}
	return Status::Ok();
}

ssize_t ReadAt(int file, char *bytes, size_t size, uint64_t offset) {
	size_t done = 0;
	while (done < size) {
		auto got = pread(file, bytes + done, size - done, static_cast<off_t>(offset + done));
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got < 0) {
			return -1;
		}
		if (got == 0) {
			break;
		}
		done += static_cast<size_t>(got);
	}
	return static_cast<ssize_t>(done);
}

Status SyncFile(const std::string &path) {
	auto handle = open(path.c_str(), O_RDWR | O_CLOEXEC);
	return handle < 0 ? SystemError("opening", path) : SyncAndClose(handle, "syncing", path);
}

Status SyncDirectoryOf(const std::string &path) {
	auto slash = path.find_last_of('/');
	auto directory = slash == std::string::npos ? std::string(".") : path.substr(0, slash + 1);
	auto handle = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return handle < 0 ? SystemError("opening directory", directory)
	                  : SyncAndClose(handle, "syncing directory", directory);
}

} // namespace catalog
} // namespace quack
