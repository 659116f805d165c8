#include "quack/catalog/spool_file.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "quack/catalog/file_calls.hpp"
#include "quack/common/crc32c.hpp"

namespace quack {
namespace catalog {
namespace {

int OpenWithoutName(const std::string &directory) {
	auto file = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
		return file;
	}
	// Not every file system knows files without names.
	auto path = directory + "/spool.XXXXXX";
	file = mkostemp(&path[0], O_CLOEXEC);
	if (file >= 0) {
		unlink(path.c_str());
	}
	return file;
}

} // namespace

SpoolFile::~SpoolFile() {
	if (file >= 0) {
		close(file);
	}
}

Status SpoolFile::Failure(const char *what) const {
	auto number = errno;
	auto code = number == ENOSPC || number == EDQUOT ? ErrorCode::DiskFull : ErrorCode::IoError;
	return Status(code, std::string("the effects of a large transaction could not be ") + what + " a file in '" +
	                        directory + "': " + std::strerror(number));
}

Status SpoolFile::Append(ByteView data) {
	if (file < 0) {
		file = OpenWithoutName(directory);
		if (file < 0) {
			return Failure("written to");
		}
	}
	for (size_t done = 0; done < data.size();) {
		auto written = write(file, data.data() + done, data.size() - done);
		if (written < 0 && errno != EINTR) {
			return Failure("written to");
		}
		done += written > 0 ? size_t(written) : 0;
	}
	bytes += data.size();
	crc = Crc32c(data, crc);
	return Status::Ok();
}

Result<std::string> SpoolFile::Read(uint64_t offset, size_t size) const {
	std::string data(size, '\0');
	auto count = ReadAt(file, data.data(), size, offset);
	if (count < 0) {
		return Failure("read from");
	}
	data.resize(static_cast<size_t>(count));
	return data;
}

} // namespace catalog
} // namespace quack
