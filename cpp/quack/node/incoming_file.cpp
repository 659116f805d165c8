#include "quack/node/incoming_file.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

#include "quack/common/crc32c.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

constexpr const char *FILE_PREFIX = "incoming-snapshot";
constexpr const char *RECORD_NAME = "incoming-snapshot.part";
//! What a crash costs at most: whichever comes first.
constexpr uint64_t SAVE_BYTES = 32 * 1024 * 1024;
constexpr MonotonicNs SAVE_INTERVAL = NS_PER_SECOND;
constexpr time_t AGE_MAX_SECONDS = 24 * 3600;

Status FileFailure(const char *action, const std::string &path, int error) {
	auto code = error == ENOSPC || error == EDQUOT ? ErrorCode::DiskFull : ErrorCode::IoError;
	return Status(code, std::string(action) + " of snapshot file '" + path + "': " + std::strerror(error));
}

Status WriteAt(int file, uint64_t offset, ByteView bytes, const std::string &path) {
	size_t done = 0;
	while (done < bytes.size()) {
		auto written = pwrite(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
		if (written < 0 && errno == EINTR) {
			continue;
		}
		if (written < 0) {
			return FileFailure("write", path, errno);
		}
		done += static_cast<size_t>(written);
	}
	return Status::Ok();
}

//! Written beside, then renamed: there is always the old record or the new one.
Status ReplaceFile(const std::string &path, ByteView bytes) {
	auto next = path + ".new";
	auto file = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (file < 0) {
		return FileFailure("open", next, errno);
	}
	auto status = WriteAt(file, 0, bytes, next);
	if (status.IsOk() && fdatasync(file) != 0) {
		status = FileFailure("sync", next, errno);
	}
	close(file);
	if (status.IsOk() && rename(next.c_str(), path.c_str()) != 0) {
		status = FileFailure("rename", next, errno);
	}
	return status;
}

//! Size 0 = read to the end.
Status ReadFile(const std::string &path, uint64_t size, const std::function<void(ByteView)> &take) {
	auto file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return Status(ErrorCode::NotFound, "'" + path + "': " + std::strerror(errno));
	}
	std::string buffer(1024 * 1024, '\0');
	Status status;
	uint64_t done = 0;
	while (size == 0 || done < size) {
		auto wanted = size == 0 ? buffer.size() : std::min<uint64_t>(buffer.size(), size - done);
		auto got = read(file, buffer.data(), wanted);
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got < 0) {
			status = FileFailure("read", path, errno);
		} else if (got == 0 && size != 0) {
			status = Status(ErrorCode::Corruption, "'" + path + "' ends at byte " + std::to_string(done));
		}
		if (got <= 0) {
			break;
		}
		take(ByteView(buffer).substr(0, static_cast<size_t>(got)));
		done += static_cast<uint64_t>(got);
	}
	close(file);
	return status;
}

bool IsOld(const std::string &path) {
	struct stat info {};
	return stat(path.c_str(), &info) != 0 || time(nullptr) - info.st_mtime > AGE_MAX_SECONDS;
}

} // namespace

IncomingFile::IncomingFile(std::string directory_p) : directory(std::move(directory_p)) {
}

IncomingFile::~IncomingFile() {
	Close();
}

std::string IncomingFile::RecordPath() const {
	return directory + "/" + RECORD_NAME;
}

std::string IncomingFile::Path(const SnapshotPart &part) const {
	return directory + "/" + FILE_PREFIX + "-" + std::to_string(part.image.image);
}

void IncomingFile::RemoveExcept(const std::string &kept_file, const std::string &kept_record) {
	if (kept_record.empty()) {
		known.reset();
	}
	std::error_code error;
	for (auto &entry : std::filesystem::directory_iterator(directory, error)) {
		auto name = entry.path().filename().string();
		auto is_kept = entry.path() == kept_file || entry.path() == kept_record;
		if (name.rfind(FILE_PREFIX, 0) == 0 && !is_kept) {
			std::filesystem::remove(entry.path(), error);
		}
	}
}

Result<SnapshotPart> IncomingFile::ReadRecord() const {
	std::string bytes;
	auto status = ReadFile(RecordPath(), 0, [&bytes](ByteView piece) { bytes += piece; });
	return status.IsOk() ? DecodeSnapshotPart(bytes) : Result<SnapshotPart>(status);
}

Status IncomingFile::Sweep() {
	std::error_code error;
	std::filesystem::create_directories(directory, error);
	if (error) {
		return Status(ErrorCode::IoError, "directory '" + directory + "' for incoming snapshots: " + error.message() +
		                                      "; make it writable");
	}
	auto part = ReadRecord();
	auto is_usable = part.IsOk() && !IsOld(RecordPath()) && !IsOld(Path(part.Value()));
	RemoveExcept(is_usable ? Path(part.Value()) : "", is_usable ? RecordPath() : "");
	return Status::Ok();
}

Status IncomingFile::CheckBytes(const SnapshotPart &part) const {
	uint32_t crc = 0;
	auto status = part.offset == 0
	                  ? Status::Ok()
	                  : ReadFile(Path(part), part.offset, [&crc](ByteView piece) { crc = Crc32c(piece, crc); });
	if (status.IsOk() && crc != part.crc32c) {
		status = Status(ErrorCode::Corruption, "the first " + std::to_string(part.offset) + " bytes of '" + Path(part) +
		                                           "' are not those that were received");
	}
	return status;
}

std::optional<SnapshotPart> IncomingFile::Load() {
	std::error_code error;
	if (known && std::filesystem::exists(Path(*known), error)) {
		return known;
	}
	auto part = ReadRecord();
	if (!part.IsOk() && part.GetStatus().Code() == ErrorCode::NotFound) {
		return std::nullopt;
	}
	auto status = part.IsOk() ? CheckBytes(part.Value()) : part.GetStatus();
	if (status.IsOk()) {
		known = std::move(part.Value());
		return known;
	}
	RemoveExcept("", "");
	if (status.Code() != ErrorCode::NotFound) { // else the image was installed
		Log(LogLevel::Warn, "node", "snapshot_part_unusable",
		    {{"message", status.Message() + "; the transfer begins anew"}});
	}
	return std::nullopt;
}

Status IncomingFile::Begin(const SnapshotPart &part) {
	Close();
	path = Path(part);
	RemoveExcept(part.offset == 0 ? "" : path, part.offset == 0 ? "" : RecordPath());
	file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0) {
		return FileFailure("open", path, errno);
	}
	if (ftruncate(file, static_cast<off_t>(part.offset)) != 0) {
		return FileFailure("truncate", path, errno);
	}
	saved_offset = part.offset;
	saved_at = 0;
	return Status::Ok();
}

Status IncomingFile::Write(ByteView bytes, const SnapshotPart &part, MonotonicNs now) {
	auto offset = part.offset - bytes.size();
	auto status = WriteAt(file, offset, bytes, path);
	if (!status.IsOk()) {
		return status;
	}
	// Written back bit by bit: a heap of dirty pages would make everybody's next sync wait.
	static_cast<void>(
	    sync_file_range(file, static_cast<off64_t>(offset), static_cast<off64_t>(bytes.size()), SYNC_FILE_RANGE_WRITE));
	saved_at = saved_at == 0 ? now : saved_at;
	if (part.offset - saved_offset >= SAVE_BYTES || now - saved_at >= SAVE_INTERVAL) {
		return Save(part, now);
	}
	return Status::Ok();
}

Status IncomingFile::Save(const SnapshotPart &part, MonotonicNs now) {
	if (fdatasync(file) != 0) {
		return FileFailure("sync", path, errno);
	}
	saved_offset = part.offset;
	saved_at = now;
	auto status = ReplaceFile(RecordPath(), Encode(part));
	known = status.IsOk() ? std::optional<SnapshotPart>(part) : known;
	return status;
}

void IncomingFile::Close() {
	if (file >= 0) {
		close(file);
		file = -1;
	}
}

void IncomingFile::Remove() {
	Close();
	RemoveExcept("", "");
}

} // namespace node
} // namespace quack
