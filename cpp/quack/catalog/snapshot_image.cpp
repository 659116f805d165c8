#include "quack/catalog/snapshot_image.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quack/catalog/file_calls.hpp"
#include "quack/common/crc32c.hpp"
#include "quack/common/log.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace catalog {
namespace {

using SnapshotImage = node::StateMachine::SnapshotImage;

constexpr const char *INFIX = ".snapshot.";
constexpr const char *RECORD_SUFFIX = ".kept";
constexpr const char *BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id";
constexpr uint32_t RECORD_MAGIC = 0x494b5151; // "QQKI"
constexpr uint8_t RECORD_VERSION = 1;
constexpr time_t AGE_MAX_SECONDS = 24 * 3600;
//! Copied and handed to the disk in such steps, two at most on the way: a heap of dirty pages would make the next sync
//! of the log wait for all of them.
constexpr uint64_t COPY_STEP = 8 * 1024 * 1024;

std::string ReadWhole(const std::string &path) {
	std::ifstream file(path, std::ios::binary);
	std::stringstream text;
	text << file.rdbuf();
	return text.str();
}

//! 63 bits: at most 19 digits, as clients of a backup hand it around.
Result<uint64_t> DrawId() {
	uint64_t id = 0;
	while (id == 0) {
		auto got = getrandom(&id, sizeof(id), 0);
		if (got < 0 && errno != EINTR) {
			return Status(ErrorCode::IoError, std::string("drawing a random number: ") + strerror(errno));
		}
		id = got == static_cast<ssize_t>(sizeof(id)) ? id >> 1 : 0;
	}
	return id;
}

std::string ImagePath(const std::string &catalog_path, uint64_t id) {
	std::ostringstream text;
	text << catalog_path << INFIX << std::hex << id;
	return text.str();
}

struct ImageRecord {
	std::string boot_id; //! the machine's life in which it was written
	wire::SnapshotOpenAnswer image;
};

std::string EncodeRecord(const ImageRecord &record) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU32(RECORD_MAGIC);
	writer.PutU8(RECORD_VERSION);
	writer.PutBytes(record.boot_id);
	writer.PutBytes(wire::Encode(record.image));
	SealRecord(out);
	return out;
}

Result<ImageRecord> DecodeRecord(ByteView bytes) {
	Status damaged(ErrorCode::Corruption, "not the record of an image");
	auto body = UnsealRecord(bytes);
	if (!body) {
		return damaged;
	}
	ByteReader reader(*body);
	if (reader.GetU32() != RECORD_MAGIC || reader.GetU8() != RECORD_VERSION) {
		return damaged;
	}
	ImageRecord record;
	record.boot_id = std::string(reader.GetBytes());
	auto image = wire::DecodeSnapshotOpenAnswer(reader.GetBytes());
	if (!reader.Done() || !image.IsOk()) {
		return damaged;
	}
	record.image = std::move(image.Value());
	return record;
}

class FileImage final : public SnapshotImage {
public:
	FileImage(ImageOrigin origin_p, uint64_t id_p, int file_p, uint64_t bytes_p,
	          std::vector<node::AppliedPosition> positions_p)
	    : origin(std::move(origin_p)), id(id_p), path(ImagePath(origin.catalog_path, id)), file(file_p), bytes(bytes_p),
	      positions(std::move(positions_p)) {
	}
	~FileImage() override {
		close(file);
		if (!is_retained) {
			unlink(path.c_str());
		}
	}
	uint64_t Id() const override {
		return id;
	}
	const std::vector<node::AppliedPosition> &Positions() const override {
		return positions;
	}
	uint64_t Bytes() const override {
		return bytes;
	}
	Result<std::string> Read(uint64_t offset, size_t size) override {
		std::string out(offset < bytes ? std::min<uint64_t>(size, bytes - offset) : 0, '\0');
		if (ReadAt(file, out.data(), out.size(), offset) != static_cast<ssize_t>(out.size())) {
			return SystemError("reading snapshot", path);
		}
		return out;
	}
	Status Retain(bool keep) override {
		auto record_path = path + RECORD_SUFFIX;
		if (!keep) {
			is_retained = false;
			unlink(record_path.c_str());
			return Status::Ok();
		}
		ImageRecord record;
		record.boot_id = ReadWhole(BOOT_ID_FILE);
		if (record.boot_id.empty()) {
			return Status(ErrorCode::NotSupported,
			              std::string("'") + BOOT_ID_FILE + "' cannot be read: images do not outlive the process");
		}
		record.image.cluster_id = origin.cluster_id;
		record.image.image = id;
		record.image.bytes = bytes;
		for (auto &position : positions) {
			record.image.positions.push_back({position.group, {position.index, position.term, position.membership}});
		}
		// Not synced, as the image is not: the record counts within one life of the machine.
		std::ofstream out(record_path, std::ios::binary | std::ios::trunc);
		out << EncodeRecord(record);
		out.close();
		if (!out) {
			unlink(record_path.c_str());
			return Status(ErrorCode::IoError, "writing '" + record_path + "' failed");
		}
		is_retained = true;
		return Status::Ok();
	}
	void MarkRetained() {
		is_retained = true;
	}

private:
	const ImageOrigin origin;
	const uint64_t id;
	const std::string path;
	const int file;
	const uint64_t bytes;
	const std::vector<node::AppliedPosition> positions;
	bool is_retained = false;
};

//! One step, at most `bytes`; how many, or -1.
ssize_t CopySome(int from, int to, off_t offset, uint64_t bytes, std::string &buffer) {
	auto from_offset = offset;
	auto to_offset = offset;
	auto copied = copy_file_range(from, &from_offset, to, &to_offset, bytes, 0);
	if (copied > 0 || (copied < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS)) {
		return copied;
	}
	// No in-kernel copy on this file system.
	buffer.resize(1024 * 1024);
	auto got = pread(from, &buffer[0], std::min<uint64_t>(buffer.size(), bytes), offset);
	return got <= 0 ? got : pwrite(to, buffer.data(), size_t(got), offset);
}

Status CopyBytes(int from, int to, uint64_t bytes, const std::string &path) {
	off_t offset = 0;
	std::string buffer;
	while (uint64_t(offset) < bytes) {
		auto copied = CopySome(from, to, offset, std::min(COPY_STEP, bytes - uint64_t(offset)), buffer);
		if (copied < 0 && errno == EINTR) {
			continue;
		}
		if (copied <= 0) {
			return SystemError("copying to snapshot", path);
		}
		// What the disk does not say here it says to a later sync of this file.
		static_cast<void>(sync_file_range(to, offset, copied, SYNC_FILE_RANGE_WRITE));
		if (uint64_t(offset) >= COPY_STEP) {
			auto before = offset - off_t(COPY_STEP);
			static_cast<void>(
			    sync_file_range(to, before, off_t(COPY_STEP),
				                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
		}
		offset += copied;
	}
	return Status::Ok();
}

bool IsOld(const std::string &path) {
	struct stat info {};
	return stat(path.c_str(), &info) != 0 || time(nullptr) - info.st_mtime > AGE_MAX_SECONDS;
}

//! Null when the record is of no use, or the file is not what it says.
std::unique_ptr<SnapshotImage> OpenRetained(const ImageOrigin &origin, const std::string &record_path) {
	auto record = DecodeRecord(ReadWhole(record_path));
	if (!record.IsOk() || IsOld(record_path) || record.Value().boot_id != ReadWhole(BOOT_ID_FILE) ||
	    record.Value().image.cluster_id != origin.cluster_id) {
		return nullptr;
	}
	auto &offered = record.Value().image;
	auto path = ImagePath(origin.catalog_path, offered.image);
	auto file = open(path.c_str(), O_RDWR | O_CLOEXEC);
	if (file < 0) {
		return nullptr;
	}
	std::vector<node::AppliedPosition> positions;
	for (auto &position : offered.positions) {
		positions.push_back({position.group, position.meta.index, position.meta.term, position.meta.membership});
	}
	auto image = std::make_unique<FileImage>(origin, offered.image, file, offered.bytes, std::move(positions));
	struct stat info {};
	if (fstat(file, &info) != 0 || uint64_t(info.st_size) != offered.bytes) {
		return nullptr; // and the file goes
	}
	image->MarkRetained();
	return image;
}

} // namespace

Result<std::unique_ptr<SnapshotImage>> CopyToImage(const ImageOrigin &origin, int from, uint64_t bytes,
                                                   std::vector<node::AppliedPosition> positions) {
	auto id = DrawId();
	if (!id.IsOk()) {
		return id.GetStatus();
	}
	auto path = ImagePath(origin.catalog_path, id.Value());
	auto copy = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (copy < 0) {
		return SystemError("creating snapshot", path);
	}
	auto image = std::make_unique<FileImage>(origin, id.Value(), copy, bytes, std::move(positions));
	auto status = CopyBytes(from, copy, bytes, path);
	if (!status.IsOk()) {
		return status;
	}
	return std::unique_ptr<SnapshotImage>(std::move(image));
}

std::vector<std::unique_ptr<SnapshotImage>> FindRetainedImages(const ImageOrigin &origin) {
	namespace fs = std::filesystem;
	fs::path catalog(origin.catalog_path);
	auto prefix = catalog.filename().string() + INFIX;
	auto ends_with_suffix = [](const std::string &name) {
		std::string suffix(RECORD_SUFFIX);
		return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
	};
	std::vector<std::string> names;
	std::error_code error;
	auto directory = catalog.has_parent_path() ? catalog.parent_path() : fs::path(".");
	for (auto &entry : fs::directory_iterator(directory, error)) {
		auto name = entry.path().filename().string();
		if (name.compare(0, prefix.size(), prefix) == 0) {
			names.push_back((directory / name).string());
		}
	}
	std::vector<std::unique_ptr<SnapshotImage>> images;
	std::vector<std::string> kept;
	for (auto &name : names) {
		auto image = ends_with_suffix(name) ? OpenRetained(origin, name) : nullptr;
		if (image) {
			kept.push_back(name);
			kept.push_back(name.substr(0, name.size() - std::string(RECORD_SUFFIX).size()));
			images.push_back(std::move(image));
		}
	}
	for (auto &name : names) {
		if (std::find(kept.begin(), kept.end(), name) == kept.end() && fs::remove(name, error)) {
			Log(LogLevel::Info, "catalog", "image_removed", {{"file", name}});
		}
	}
	return images;
}

} // namespace catalog
} // namespace quack
