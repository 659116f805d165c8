//! A disk that loses what was not synced, under a real process: preloaded (LD_PRELOAD), it counts every call that
//! changes a file below one directory, and ends the process right after the N-th.
//!
//! Mode "kill": the process dies, what it wrote stays. Mode "power": the machine dies as well. Each 512-byte sector
//! written since the last sync of its file is then old or new, each on its own; a size that was not synced is old or
//! new; of the changes of names (create, rename, unlink) that no sync of their directory covers only the first few,
//! in order, are kept. Synced bytes and names never change. Drawn from one seed.
//!
//! Environment: QUACK_CUT_DIR (absolute), QUACK_CUT_AFTER (0 = never), QUACK_CUT_MODE, QUACK_CUT_SEED, QUACK_CUT_COUNT
//! (file that holds the number of calls so far, as 8 bytes), QUACK_CUT_ASIDE (directory on the same file system, for
//! names that may have to come back), QUACK_CUT_HANG and QUACK_CUT_FAIL (files). A sync of a file whose path holds the
//! text in QUACK_CUT_HANG does not end while that file exists; one whose path holds the text in QUACK_CUT_FAIL fails
//! with EIO, once: it takes the file away. Each such
//! sync, and each later one of that file, adds a line to QUACK_CUT_FAIL with ".log". Not covered: files that are mapped
//! and written, hard links, directories.
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace {

constexpr uint64_t SECTOR = 512;

template <class F>
F Real(const char *name) {
	return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

using Key = std::pair<dev_t, ino_t>;

struct Inode {
	int file = -1; //! our own descriptor
	off_t durable_size = 0;
	bool is_size_dirty = false;
	std::map<uint64_t, std::string> sectors; //! durable bytes of what was overwritten
};

//! One change of a name, and how it is taken back.
struct NameChange {
	enum class Kind : uint8_t { Create, Rename, Unlink };
	Kind kind = Kind::Create;
	std::string from;
	std::string to;
	std::string aside; //! a link to what lost its name; empty = nothing did
};

class Disk {
public:
	Disk() {
		auto text = getenv("QUACK_CUT_DIR");
		directory = text ? text : "";
		text = getenv("QUACK_CUT_AFTER");
		after = text ? strtoull(text, nullptr, 10) : 0;
		text = getenv("QUACK_CUT_SEED");
		random = text ? strtoull(text, nullptr, 10) * 2 + 1 : 1;
		text = getenv("QUACK_CUT_MODE");
		loses_power = text && strcmp(text, "power") == 0;
		text = getenv("QUACK_CUT_ASIDE");
		aside = text ? text : "";
		text = getenv("QUACK_CUT_HANG");
		hang = text ? text : "";
		text = getenv("QUACK_CUT_FAIL");
		fail = text ? text : "";
		text = getenv("QUACK_CUT_COUNT");
		// Not our own: it needs this object.
		auto open_real = Real<int (*)(const char *, int, ...)>("open");
		auto file = text ? open_real(text, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
		if (file >= 0 && Real<int (*)(int, off_t)>("ftruncate")(file, sizeof(uint64_t)) == 0) {
			auto memory = mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
			shown = memory == MAP_FAILED ? nullptr : static_cast<uint64_t *>(memory);
		}
	}

	bool Covers(const char *path) const {
		return !directory.empty() && strncmp(path, directory.c_str(), directory.size()) == 0 &&
		       path[directory.size()] == '/';
	}
	bool CoversFile(int file, std::string *path = nullptr) const {
		if (directory.empty()) {
			return false;
		}
		char link[64];
		char target[4096];
		snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
		auto size = readlink(link, target, sizeof(target) - 1);
		if (size <= 0) {
			return false;
		}
		target[size] = 0;
		if (path) {
			*path = target;
		}
		return Covers(target) || directory == target;
	}

	//! Without the lock: only who syncs waits.
	void WaitWhileHung(const std::string &path) const {
		while (Names(hang, path)) {
			usleep(10000);
		}
	}
	//! With the lock held. Whether this sync fails instead of being made.
	bool FailsSync(const std::string &path) {
		auto has_failed = !failed.empty() && path.find(failed) != std::string::npos;
		auto fails = Names(fail, path);
		if (fails) {
			failed = path;
			Real<int (*)(const char *)>("unlink")(fail.c_str());
		}
		if (fails || has_failed) {
			Note((fails ? "failed " : "again ") + path + "\n");
		}
		return fails;
	}

	//! With the lock held, before the call.
	void BeforeWrite(int file, off_t offset, size_t size) {
		auto inode = Find(file);
		if (inode == nullptr || !loses_power) {
			return;
		}
		auto end = static_cast<uint64_t>(offset) + size;
		for (auto sector = static_cast<uint64_t>(offset) / SECTOR; sector * SECTOR < end; sector++) {
			if (inode->sectors.count(sector) == 0) {
				std::string bytes(SECTOR, '\0');
				(void)!pread(inode->file, &bytes[0], SECTOR, static_cast<off_t>(sector * SECTOR));
				inode->sectors[sector] = bytes;
			}
		}
		inode->is_size_dirty = true;
	}
	void BeforeResize(int file, off_t size) {
		struct stat info {};
		if (fstat(file, &info) == 0 && size < info.st_size) {
			BeforeWrite(file, size, static_cast<size_t>(info.st_size - size));
		} else {
			BeforeWrite(file, size, 0);
		}
	}
	void AfterSync(int file) {
		std::string path;
		struct stat info {};
		CoversFile(file, &path);
		if (fstat(file, &info) != 0) {
			return;
		}
		if (S_ISDIR(info.st_mode)) {
			for (auto change = names.begin(); change != names.end();) {
				change = ParentOf(change->to.empty() ? change->from : change->to) == path ? names.erase(change)
				                                                                          : std::next(change);
			}
			return;
		}
		auto inode = inodes.find(Key(info.st_dev, info.st_ino));
		if (inode != inodes.end()) {
			inode->second.sectors.clear();
			inode->second.durable_size = info.st_size;
			inode->second.is_size_dirty = false;
		}
	}
	//! Gives what a name stands for a second one, so that it can come back.
	std::string SetAside(const char *path) {
		if (!loses_power) {
			return "";
		}
		auto name = aside + "/" + std::to_string(++aside_count);
		return link(path, name.c_str()) == 0 ? name : "";
	}
	void AfterName(NameChange change) {
		if (loses_power) {
			names.push_back(std::move(change));
		}
	}

	//! With the lock held, after the call: counts it, and ends the process when it was the last.
	void Count() {
		count++;
		if (shown) {
			*shown = count;
		}
		if (after == 0 || count < after) {
			return;
		}
		if (loses_power) {
			Lose();
		}
		kill(getpid(), SIGKILL);
		while (true) {
			pause();
		}
	}

	std::mutex lock;

private:
	static std::string ParentOf(const std::string &path) {
		return path.substr(0, path.find_last_of('/'));
	}
	uint64_t Draw() {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		return random;
	}

	Inode *Find(int file) {
		struct stat info {};
		if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
			return nullptr;
		}
		auto entry = inodes.emplace(Key(info.st_dev, info.st_ino), Inode());
		auto &inode = entry.first->second;
		if (entry.second) {
			char link[64];
			snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
			inode.file = open(link, O_RDWR | O_CLOEXEC);
			inode.durable_size = info.st_size;
		}
		return &inode;
	}

	void Lose() {
		for (uint64_t i = 0; i < 8; i++) {
			Draw();
		}
		for (auto &entry : inodes) {
			auto &inode = entry.second;
			for (auto &sector : inode.sectors) {
				if (Draw() % 2 == 0) {
					auto place = static_cast<off_t>(sector.first * SECTOR);
					(void)!Real<ssize_t (*)(int, const void *, size_t, off_t)>(
					    "pwrite")(inode.file, sector.second.data(), SECTOR, place);
				}
			}
			struct stat info {};
			if (inode.is_size_dirty && fstat(inode.file, &info) == 0) {
				// Bringing an unwritten sector back may have made the file longer than it ever was.
				auto size = Draw() % 2 == 0 ? inode.durable_size : std::max(inode.durable_size, RealSize(inode));
				(void)!Real<int (*)(int, off_t)>("ftruncate")(inode.file, size);
			}
		}
		auto kept = names.empty() ? 0 : Draw() % (names.size() + 1);
		while (names.size() > kept) {
			TakeBack(names.back());
			names.pop_back();
		}
	}
	//! Whether the file `name` exists and holds a piece of `path`.
	static bool Names(const std::string &name, const std::string &path) {
		char text[256];
		auto file =
		    name.empty() ? -1 : Real<int (*)(const char *, int, ...)>("open")(name.c_str(), O_RDONLY | O_CLOEXEC);
		if (file < 0) {
			return false;
		}
		auto size = pread(file, text, sizeof(text), 0);
		close(file);
		return size >= 0 && path.find(std::string(text, static_cast<size_t>(size))) != std::string::npos;
	}
	void Note(const std::string &line) const {
		auto flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
		auto file = Real<int (*)(const char *, int, ...)>("open")((fail + ".log").c_str(), flags, 0600);
		(void)!Real<ssize_t (*)(int, const void *, size_t)>("write")(file, line.data(), line.size());
		close(file);
	}
	static off_t RealSize(const Inode &inode) {
		struct stat info {};
		return fstat(inode.file, &info) == 0 ? info.st_size : 0;
	}
	static void TakeBack(const NameChange &change) {
		auto unlink_real = Real<int (*)(const char *)>("unlink");
		auto rename_real = Real<int (*)(const char *, const char *)>("rename");
		switch (change.kind) {
		case NameChange::Kind::Create:
			unlink_real(change.to.c_str());
			break;
		case NameChange::Kind::Rename:
			rename_real(change.to.c_str(), change.from.c_str());
			if (!change.aside.empty()) {
				rename_real(change.aside.c_str(), change.to.c_str());
			}
			break;
		case NameChange::Kind::Unlink:
			if (!change.aside.empty()) {
				rename_real(change.aside.c_str(), change.from.c_str());
			}
			break;
		}
	}

	std::string directory;
	std::string aside;
	std::string hang;   //! a file's name; empty = never hangs
	std::string fail;   //! a file's name; empty = never fails
	std::string failed; //! path of the file whose sync failed
	uint64_t after = 0;
	uint64_t random = 1;
	bool loses_power = false;
	uint64_t *shown = nullptr;
	uint64_t count = 0;
	uint64_t aside_count = 0;
	std::map<Key, Inode> inodes;
	std::deque<NameChange> names;
};

Disk &TheDisk() {
	static auto disk = new Disk(); // outlives every thread of the process
	return *disk;
}

template <class Call>
auto Change(int file, Call call, off_t offset, size_t size) -> decltype(call()) {
	auto &disk = TheDisk();
	if (!disk.CoversFile(file)) {
		return call();
	}
	std::lock_guard<std::mutex> guard(disk.lock);
	disk.BeforeWrite(file, offset, size);
	auto result = call();
	disk.Count();
	return result;
}

template <class Call>
int Resize(int file, Call call, off_t size) {
	auto &disk = TheDisk();
	if (!disk.CoversFile(file)) {
		return call();
	}
	std::lock_guard<std::mutex> guard(disk.lock);
	disk.BeforeResize(file, size);
	auto result = call();
	disk.Count();
	return result;
}

int SyncWith(const char *name, int file) {
	auto call = Real<int (*)(int)>(name);
	auto &disk = TheDisk();
	std::string path;
	if (!disk.CoversFile(file, &path)) {
		return call(file);
	}
	disk.WaitWhileHung(path);
	std::lock_guard<std::mutex> guard(disk.lock);
	if (disk.FailsSync(path)) {
		errno = EIO;
		return -1;
	}
	auto result = call(file);
	if (result == 0) {
		disk.AfterSync(file);
	}
	disk.Count();
	return result;
}

int OpenWith(const char *name, const char *path, int flags, mode_t mode) {
	auto call = Real<int (*)(const char *, int, ...)>(name);
	auto &disk = TheDisk();
	if ((flags & O_CREAT) == 0 || !disk.Covers(path) || access(path, F_OK) == 0) {
		return call(path, flags, mode);
	}
	std::lock_guard<std::mutex> guard(disk.lock);
	auto result = call(path, flags, mode);
	if (result >= 0) {
		NameChange change;
		change.to = path;
		disk.AfterName(change);
		disk.Count();
	}
	return result;
}

int UnlinkWith(const char *name, const char *path) {
	auto call = Real<int (*)(const char *)>(name);
	auto &disk = TheDisk();
	if (!disk.Covers(path)) {
		return call(path);
	}
	std::lock_guard<std::mutex> guard(disk.lock);
	NameChange change;
	change.kind = NameChange::Kind::Unlink;
	change.from = path;
	change.aside = disk.SetAside(path);
	auto result = call(path);
	if (result == 0) {
		disk.AfterName(change);
		disk.Count();
	}
	return result;
}

off_t PlaceOf(int file) {
	return lseek(file, 0, SEEK_CUR);
}

size_t SizeOf(const struct iovec *pieces, int count) {
	size_t size = 0;
	for (int i = 0; i < count; i++) {
		size += pieces[i].iov_len;
	}
	return size;
}

} // namespace

extern "C" {

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
	static auto call = Real<ssize_t (*)(int, const void *, size_t, off_t)>("pwrite");
	return Change(file, [&] { return call(file, data, size, offset); }, offset, size);
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset) {
	return pwrite(file, data, size, offset);
}
ssize_t pwritev(int file, const struct iovec *pieces, int count, off_t offset) {
	static auto call = Real<ssize_t (*)(int, const struct iovec *, int, off_t)>("pwritev");
	return Change(file, [&] { return call(file, pieces, count, offset); }, offset, SizeOf(pieces, count));
}
ssize_t pwritev64(int file, const struct iovec *pieces, int count, off_t offset) {
	return pwritev(file, pieces, count, offset);
}
ssize_t write(int file, const void *data, size_t size) {
	static auto call = Real<ssize_t (*)(int, const void *, size_t)>("write");
	return Change(file, [&] { return call(file, data, size); }, PlaceOf(file), size);
}
ssize_t copy_file_range(int from, off_t *from_offset, int to, off_t *to_offset, size_t size, unsigned flags) {
	static auto call = Real<ssize_t (*)(int, off_t *, int, off_t *, size_t, unsigned)>("copy_file_range");
	auto place = to_offset ? *to_offset : PlaceOf(to);
	return Change(to, [&] { return call(from, from_offset, to, to_offset, size, flags); }, place, size);
}
int fallocate(int file, int mode, off_t offset, off_t size) {
	static auto call = Real<int (*)(int, int, off_t, off_t)>("fallocate");
	// Punched holes change bytes; reserved blocks only the size.
	return Change(
	    file, [&] { return call(file, mode, offset, size); }, offset, mode == 0 ? 0 : static_cast<size_t>(size));
}
int fallocate64(int file, int mode, off_t offset, off_t size) {
	return fallocate(file, mode, offset, size);
}
int posix_fallocate(int file, off_t offset, off_t size) {
	static auto call = Real<int (*)(int, off_t, off_t)>("posix_fallocate");
	return Change(file, [&] { return call(file, offset, size); }, offset, 0);
}
int posix_fallocate64(int file, off_t offset, off_t size) {
	return posix_fallocate(file, offset, size);
}
int ftruncate(int file, off_t size) {
	static auto call = Real<int (*)(int, off_t)>("ftruncate");
	return Resize(file, [&] { return call(file, size); }, size);
}
int ftruncate64(int file, off_t size) {
	return ftruncate(file, size);
}
int fsync(int file) {
	return SyncWith("fsync", file);
}
int fdatasync(int file) {
	return SyncWith("fdatasync", file);
}
int open(const char *path, int flags, ...) {
	va_list arguments;
	va_start(arguments, flags);
	auto mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return OpenWith("open", path, flags, mode);
}
int open64(const char *path, int flags, ...) {
	va_list arguments;
	va_start(arguments, flags);
	auto mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return OpenWith("open64", path, flags, mode);
}
int rename(const char *from, const char *to) {
	static auto call = Real<int (*)(const char *, const char *)>("rename");
	auto &disk = TheDisk();
	if (!disk.Covers(to)) {
		return call(from, to);
	}
	std::lock_guard<std::mutex> guard(disk.lock);
	NameChange change;
	change.kind = NameChange::Kind::Rename;
	change.from = from;
	change.to = to;
	struct stat info {};
	change.aside = lstat(to, &info) == 0 && S_ISREG(info.st_mode) ? disk.SetAside(to) : "";
	auto result = call(from, to);
	if (result == 0) {
		disk.AfterName(change);
		disk.Count();
	}
	return result;
}
int unlink(const char *path) {
	return UnlinkWith("unlink", path);
}
int remove(const char *path) {
	return UnlinkWith("remove", path);
}
}
