#include "quack/catalog/file_sync.hpp"

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
