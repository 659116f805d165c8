#include "quack/catalog/block_journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quack/catalog/file_calls.hpp"
#include "quack/common/crc32c.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr uint32_t JOURNAL_MAGIC = 0x4a424b51; // "QKBJ"
constexpr uint8_t JOURNAL_VERSION = 1;
//! DuckDB's headers: one for good, and two that checkpoints write by turns. Behind the checksum the counter of
//! checkpoints.
constexpr size_t HEADER_BYTES = 4096;
constexpr size_t HEADER_ITERATION_OFFSET = 8;
//! Of a journal, around its blocks.
constexpr uint64_t FRAME_BYTES_MAX = 64 * 1024;
constexpr uint64_t BLOCK_FRAME_BYTES_MAX = 32;

std::string JournalPath(const std::string &database) {
	return database + ".journal";
}

//! The journal is good as long as this lies in the file: a later checkpoint but one writes over it.
struct HeaderMark {
	std::string main; //! holds the file's identity
	uint64_t offset = 0;
	std::string newest;

	static HeaderMark Of(const BlockJournal::Reader &read) {
		HeaderMark mark;
		std::string headers(3 * HEADER_BYTES, '\0');
		read(headers.data(), headers.size(), 0);
		auto iteration = [&headers](size_t header) {
			return ByteReader(ByteView(headers).substr(header * HEADER_BYTES + HEADER_ITERATION_OFFSET)).GetU64();
		};
		mark.main = headers.substr(0, HEADER_BYTES);
		mark.offset = (iteration(1) > iteration(2) ? 1 : 2) * HEADER_BYTES;
		mark.newest = headers.substr(mark.offset, HEADER_BYTES);
		return mark;
	}
};

struct Journal {
	HeaderMark mark;
	std::map<uint64_t, std::string> blocks;
};

std::string Encode(const HeaderMark &mark, const std::map<uint64_t, std::string> &blocks) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU32(JOURNAL_MAGIC);
	writer.PutU8(JOURNAL_VERSION);
	writer.PutBytes(mark.main);
	writer.PutVarint(mark.offset);
	writer.PutBytes(mark.newest);
	writer.PutVarint(blocks.size());
	for (auto &block : blocks) {
		writer.PutVarint(block.first);
		writer.PutBytes(block.second);
	}
	writer.PutU32(Crc32c(out));
	return out;
}

//! False: none, or one whose writing was cut short.
bool Decode(ByteView bytes, Journal &journal) {
	ByteReader reader(bytes);
	if (reader.GetU32() != JOURNAL_MAGIC || reader.GetU8() != JOURNAL_VERSION) {
		return false;
	}
	journal.mark.main = std::string(reader.GetBytes());
	journal.mark.offset = reader.GetVarint();
	journal.mark.newest = std::string(reader.GetBytes());
	auto count = reader.GetVarint();
	for (uint64_t i = 0; i < count && !reader.Failed(); i++) {
		auto offset = reader.GetVarint();
		journal.blocks.emplace(offset, reader.GetBytes());
	}
	auto covered = bytes.size() - reader.Remaining();
	auto crc = reader.GetU32();
	return !reader.Failed() && crc == Crc32c(bytes.substr(0, covered));
}

//! What cannot be read is zeros: no journal, and no header that one was made under.
std::string ReadAll(int file, uint64_t offset, size_t size) {
	std::string bytes(size, '\0');
	static_cast<void>(ReadAt(file, bytes.data(), size, offset));
	return bytes;
}

bool ReadJournal(const std::string &path, Journal &journal) {
	auto file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return false;
	}
	struct stat info {};
	auto bytes = fstat(file, &info) == 0 ? ReadAll(file, 0, static_cast<size_t>(info.st_size)) : std::string();
	close(file);
	return Decode(bytes, journal);
}

//! A lock as DuckDB's, so that a process that has the file open is left alone.
bool TryLock(int file) {
	struct flock range {};
	range.l_type = F_WRLCK;
	range.l_whence = SEEK_SET;
	return fcntl(file, F_SETLK, &range) == 0;
}

} // namespace

BlockJournal::BlockJournal(const std::string &database) : path(JournalPath(database)) {
}

BlockJournal::~BlockJournal() {
	if (file >= 0) {
		close(file);
	}
}

Status BlockJournal::Open() {
	struct stat named {};
	struct stat opened {};
	if (file >= 0 && (stat(path.c_str(), &named) != 0 || fstat(file, &opened) != 0 || named.st_ino != opened.st_ino)) {
		close(file); // it was moved aside with the file that it belonged to
		file = -1;
	}
	if (file >= 0) {
		return Status::Ok();
	}
	file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return file < 0 ? SystemError("opening", path) : SyncDirectoryOf(path);
}

Status BlockJournal::Begin(std::set<uint64_t> offsets_p, uint64_t block_bytes) {
	std::lock_guard<std::mutex> guard(lock);
	held.clear();
	is_holding = false;
	offsets.clear();
	auto status = Open();
	if (!status.IsOk()) {
		return status;
	}
	auto bytes = FRAME_BYTES_MAX + offsets_p.size() * (block_bytes + BLOCK_FRAME_BYTES_MAX);
	int failure = EINTR;
	while (failure == EINTR) {
		failure = fallocate(file, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
	}
	if (failure != 0 && failure != EOPNOTSUPP) {
		errno = failure;
		return SystemError("reserving space in", path);
	}
	offsets = std::move(offsets_p);
	return Status::Ok();
}

bool BlockJournal::Hold(ByteView bytes, uint64_t offset) {
	std::lock_guard<std::mutex> guard(lock);
	if (offsets.count(offset) == 0) {
		return false;
	}
	held[offset] = std::string(bytes);
	is_holding = true;
	return true;
}

void BlockJournal::Overlay(char *bytes, size_t size, uint64_t offset) {
	std::lock_guard<std::mutex> guard(lock);
	for (auto &block : held) {
		auto from = std::max(block.first, offset);
		auto to = std::min(block.first + block.second.size(), offset + size);
		if (from < to) {
			memcpy(bytes + (from - offset), block.second.data() + (from - block.first), to - from);
		}
	}
}

Status BlockJournal::Flush(const Reader &read, const Writer &write) {
	if (!is_holding) {
		return Status::Ok();
	}
	std::lock_guard<std::mutex> guard(lock);
	auto status = WriteAt(file, Encode(HeaderMark::Of(read), held), 0, path);
	if (status.IsOk() && fdatasync(file) != 0) {
		status = SystemError("syncing", path);
	}
	if (!status.IsOk()) {
		return status;
	}
	for (auto &block : held) {
		write(block.second, block.first);
	}
	held.clear();
	is_holding = false;
	// From here on the journal has to stay as it is until the checkpoint has ended.
	offsets.clear();
	return Status::Ok();
}

Status BlockJournal::Recover(const std::string &database) {
	Journal journal;
	if (!ReadJournal(JournalPath(database), journal)) {
		return Status::Ok();
	}
	auto file = open(database.c_str(), O_RDWR | O_CLOEXEC);
	if (file < 0) {
		return errno == ENOENT ? Status::Ok() : SystemError("opening", database);
	}
	auto is_mine = TryLock(file) && ReadAll(file, 0, HEADER_BYTES) == journal.mark.main &&
	               ReadAll(file, journal.mark.offset, HEADER_BYTES) == journal.mark.newest;
	Status status;
	uint64_t torn = 0;
	for (auto &block : journal.blocks) {
		if (is_mine && status.IsOk() && ReadAll(file, block.first, block.second.size()) != block.second) {
			torn++;
			status = WriteAt(file, block.second, block.first, database);
		}
	}
	if (torn != 0 && status.IsOk() && fdatasync(file) != 0) {
		status = SystemError("syncing", database);
	}
	close(file);
	if (torn != 0 && status.IsOk()) {
		Log(LogLevel::Warn, "catalog", "checkpoint_blocks_restored",
		    {{"path", database}, {"blocks", std::to_string(torn)}});
	}
	return status;
}

void BlockJournal::Remove(const std::string &database) {
	(void)unlink(JournalPath(database).c_str());
}

} // namespace catalog
} // namespace quack
