#include "quack/storage/testing/fault_file_system.hpp"

#include <algorithm>
#include <cstring>

namespace quack {
namespace storage {

namespace {

constexpr uint64_t SECTOR_BYTES = 512;

Status Dead() {
	return Status(ErrorCode::IoError, "the file was opened before a restart");
}

Status PowerOff() {
	return Status(ErrorCode::IoError, "the power is off");
}

std::string ParentOf(const std::string &path) {
	auto slash = path.find_last_of('/');
	return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

} // namespace

class FaultFileSystem::OpenFile final : public File {
public:
	OpenFile(FaultFileSystem &files_p, std::shared_ptr<Inode> inode_p, uint64_t boot_p, bool is_writable_p)
	    : files(files_p), inode(std::move(inode_p)), boot(boot_p), is_writable(is_writable_p) {
	}

	Result<size_t> ReadAt(uint64_t offset, char *out, size_t size) override {
		files.RunBeforeRead();
		std::lock_guard<std::mutex> lock(files.mutex);
		if (boot != files.boot) {
			return Dead();
		}
		if (files.stopped) {
			return PowerOff();
		}
		if (offset >= inode->cached.size()) {
			return static_cast<size_t>(0);
		}
		auto count = std::min<size_t>(size, inode->cached.size() - offset);
		std::memcpy(out, inode->cached.data() + offset, count);
		return count;
	}

	Status WriteAt(uint64_t offset, const std::vector<ByteView> &pieces) override {
		std::lock_guard<std::mutex> lock(files.mutex);
		if (boot != files.boot || !is_writable) {
			return Dead();
		}
		return files.Write(*inode, offset, pieces);
	}

	Status DataSync() override {
		std::unique_lock<std::mutex> lock(files.mutex);
		return boot != files.boot ? Dead() : files.Sync(*inode, lock, boot);
	}

	Status Allocate(uint64_t size) override {
		std::lock_guard<std::mutex> lock(files.mutex);
		return boot != files.boot || !is_writable ? Dead() : files.Resize(*inode, size, true);
	}

	Status Truncate(uint64_t size) override {
		std::lock_guard<std::mutex> lock(files.mutex);
		return boot != files.boot || !is_writable ? Dead() : files.Resize(*inode, size, false);
	}

	Result<uint64_t> Size() override {
		std::lock_guard<std::mutex> lock(files.mutex);
		if (boot != files.boot) {
			return Dead();
		}
		return static_cast<uint64_t>(inode->cached.size());
	}

private:
	FaultFileSystem &files;
	const std::shared_ptr<Inode> inode;
	const uint64_t boot;
	const bool is_writable;
};

class FaultFileSystem::HeldLock final : public FileLock {
public:
	HeldLock(FaultFileSystem &files_p, std::string path_p, uint64_t boot_p)
	    : files(files_p), path(std::move(path_p)), boot(boot_p) {
	}
	~HeldLock() override {
		std::lock_guard<std::mutex> lock(files.mutex);
		if (boot == files.boot) {
			files.locked.erase(path);
		}
	}

private:
	FaultFileSystem &files;
	const std::string path;
	const uint64_t boot;
};

FaultFileSystem::FaultFileSystem(uint64_t seed) : prng(seed) {
}

FaultFileSystem::~FaultFileSystem() = default;

// ---- the seam ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<File>> FaultFileSystem::Open(const std::string &path, OpenMode mode) {
	std::lock_guard<std::mutex> lock(mutex);
	if (stopped) {
		return PowerOff();
	}
	auto found = names.find(path);
	if (mode != OpenMode::Create) {
		if (found == names.end()) {
			return Status(ErrorCode::NotFound, "cannot open " + path + ": no such file");
		}
		auto writable = mode == OpenMode::ReadWrite;
		return std::unique_ptr<File>(new OpenFile(*this, found->second, boot, writable));
	}
	if (found != names.end()) {
		return Status(ErrorCode::AlreadyExists, "cannot create " + path + ": it exists");
	}
	auto inode = std::make_shared<Inode>();
	auto status = ChangeName({"", path, inode});
	if (!status.IsOk()) {
		return status;
	}
	return std::unique_ptr<File>(new OpenFile(*this, inode, boot, true));
}

Status FaultFileSystem::Rename(const std::string &from, const std::string &to) {
	std::lock_guard<std::mutex> lock(mutex);
	auto found = names.find(from);
	if (found == names.end()) {
		return stopped ? PowerOff() : Status(ErrorCode::NotFound, "cannot rename " + from + ": no such file");
	}
	return ChangeName({from, to, found->second});
}

Status FaultFileSystem::Remove(const std::string &path) {
	std::lock_guard<std::mutex> lock(mutex);
	if (names.count(path) == 0) {
		return stopped ? PowerOff() : Status(ErrorCode::NotFound, "cannot remove " + path + ": no such file");
	}
	return ChangeName({path, "", nullptr});
}

Status FaultFileSystem::ChangeName(NameChange change) {
	bool last = false;
	auto status = Begin(last);
	if (!status.IsOk()) {
		return status;
	}
	if (!last || prng.Chance(1, 2)) {
		if (!change.from.empty()) {
			names.erase(change.from);
		}
		if (!change.to.empty()) {
			names[change.to] = change.inode;
		}
		pending.push_back(std::move(change));
	}
	return last ? PowerOff() : Status::Ok();
}

Result<std::vector<std::string>> FaultFileSystem::List(const std::string &directory) {
	std::lock_guard<std::mutex> lock(mutex);
	if (stopped) {
		return PowerOff();
	}
	if (directories.count(directory) == 0) {
		return Status(ErrorCode::NotFound, "cannot list " + directory + ": no such directory");
	}
	std::vector<std::string> result;
	for (auto &item : names) {
		if (ParentOf(item.first) == directory) {
			result.push_back(item.first.substr(directory.size() + 1));
		}
	}
	return result;
}

Status FaultFileSystem::CreateDirectory(const std::string &directory) {
	std::lock_guard<std::mutex> lock(mutex);
	if (stopped) {
		return PowerOff();
	}
	directories.insert(directory);
	return Status::Ok();
}

Status FaultFileSystem::SyncDirectory(const std::string &directory) {
	std::lock_guard<std::mutex> lock(mutex);
	bool last = false;
	auto status = Begin(last);
	if (!status.IsOk() || (last && prng.Chance(1, 2))) {
		return PowerOff();
	}
	std::vector<NameChange> others;
	for (auto &change : pending) {
		if (ParentOf(change.from.empty() ? change.to : change.from) != directory) {
			others.push_back(change);
			continue;
		}
		if (!change.from.empty()) {
			durable_names.erase(change.from);
		}
		if (!change.to.empty()) {
			durable_names[change.to] = change.inode;
		}
	}
	pending = std::move(others);
	return last ? PowerOff() : Status::Ok();
}

Result<std::unique_ptr<FileLock>> FaultFileSystem::Lock(const std::string &path) {
	std::lock_guard<std::mutex> lock(mutex);
	if (stopped) {
		return PowerOff();
	}
	if (!locked.insert(path).second) {
		return Status(ErrorCode::Unavailable, "another process holds " + path);
	}
	return std::unique_ptr<FileLock>(new HeldLock(*this, path, boot));
}

uint64_t FaultFileSystem::UniqueId() {
	std::lock_guard<std::mutex> lock(mutex);
	return prng.Next();
}

// ---- file contents, with the mutex held ----------------------------------------------------------------------------

Status FaultFileSystem::Begin(bool &last) {
	if (stopped) {
		return PowerOff();
	}
	operation_count++;
	last = stop_at != 0 && operation_count == stop_at;
	stopped = last;
	return Status::Ok();
}

void FaultFileSystem::Store(Inode &inode, uint64_t offset, ByteView bytes) {
	if (bytes.empty()) {
		return;
	}
	if (inode.cached.size() < offset + bytes.size()) {
		inode.cached.resize(offset + bytes.size());
	}
	inode.cached.replace(offset, bytes.size(), bytes);
	for (auto sector = offset / SECTOR_BYTES; sector <= (offset + bytes.size() - 1) / SECTOR_BYTES; sector++) {
		inode.dirty.insert(sector);
	}
}

Status FaultFileSystem::Write(Inode &inode, uint64_t offset, const std::vector<ByteView> &pieces) {
	bool last = false;
	auto status = Begin(last);
	if (!status.IsOk()) {
		return status;
	}
	std::string bytes;
	for (auto &piece : pieces) {
		bytes.append(piece);
	}
	if (last) {
		Store(inode, offset, ByteView(bytes).substr(0, prng.Below(bytes.size() + 1)));
		return PowerOff();
	}
	if (failing_writes > 0) {
		failing_writes--;
		Store(inode, offset, ByteView(bytes).substr(0, prng.Below(bytes.size() + 1)));
		return Status(write_failure, "the write failed on purpose");
	}
	auto end = offset + bytes.size();
	auto growth = end > inode.cached.size() ? end - inode.cached.size() : 0;
	auto used = UsedBytes();
	if (growth > 0 && used + growth > capacity) {
		auto room = used < capacity ? capacity - used : 0;
		auto fits = inode.cached.size() > offset ? inode.cached.size() - offset + room : room;
		Store(inode, offset, ByteView(bytes).substr(0, std::min<uint64_t>(fits, bytes.size())));
		return Status(ErrorCode::DiskFull, "no space left on the device");
	}
	Store(inode, offset, bytes);
	return Status::Ok();
}

Status FaultFileSystem::Sync(Inode &inode, std::unique_lock<std::mutex> &lock, uint64_t boot_of_handle) {
	hung_count++;
	released.notify_all();
	released.wait(lock, [this] { return !hanging; });
	hung_count--;
	if (boot_of_handle != boot) {
		return Dead();
	}
	bool last = false;
	auto status = Begin(last);
	if (!status.IsOk() || (last && prng.Chance(1, 2))) {
		return PowerOff();
	}
	if (failing_syncs > 0) {
		failing_syncs--;
		inode.dirty.clear();
		return Status(ErrorCode::IoError, "the sync failed on purpose");
	}
	inode.durable.resize(inode.cached.size());
	for (auto sector : inode.dirty) {
		auto offset = sector * SECTOR_BYTES;
		if (offset < inode.cached.size()) {
			inode.durable.replace(offset, SECTOR_BYTES, inode.cached, offset, SECTOR_BYTES);
		}
	}
	inode.durable.resize(inode.cached.size());
	inode.dirty.clear();
	return last ? PowerOff() : Status::Ok();
}

Status FaultFileSystem::Resize(Inode &inode, uint64_t size, bool only_grow) {
	bool last = false;
	auto status = Begin(last);
	if (!status.IsOk()) {
		return status;
	}
	auto before = inode.cached.size();
	if (only_grow && size <= before) {
		return last ? PowerOff() : Status::Ok();
	}
	if (size > before && UsedBytes() + (size - before) > capacity) {
		return Status(ErrorCode::DiskFull, "no space left on the device");
	}
	inode.cached.resize(size);
	return last ? PowerOff() : Status::Ok();
}

uint64_t FaultFileSystem::UsedBytes() const {
	uint64_t bytes = 0;
	for (auto &item : names) {
		bytes += item.second->cached.size();
	}
	return bytes;
}

// ---- faults --------------------------------------------------------------------------------------------------------

void FaultFileSystem::LoseUnsynced(Inode &inode) {
	if (!inode.dirty.empty() && prng.Chance(1, 3)) {
		// The kernel had written nothing back yet.
		inode.dirty.clear();
	}
	if (inode.cached.size() != inode.durable.size() && prng.Chance(1, 2)) {
		inode.durable.resize(inode.cached.size());
	}
	for (auto sector : inode.dirty) {
		auto offset = sector * SECTOR_BYTES;
		if (offset >= inode.cached.size() || offset >= inode.durable.size() || prng.Chance(1, 3)) {
			continue;
		}
		auto size = std::min({SECTOR_BYTES, inode.cached.size() - offset, inode.durable.size() - offset});
		if (prng.Chance(1, 4)) {
			size = prng.Below(size + 1);
		}
		inode.durable.replace(offset, size, inode.cached, offset, size);
	}
	inode.cached = inode.durable;
	inode.dirty.clear();
}

void FaultFileSystem::PowerCut() {
	{
		std::lock_guard<std::mutex> lock(mutex);
		for (auto &change : pending) {
			if (prng.Chance(1, 2)) {
				continue;
			}
			if (!change.from.empty()) {
				durable_names.erase(change.from);
			}
			if (!change.to.empty()) {
				durable_names[change.to] = change.inode;
			}
		}
		pending.clear();
		names = durable_names;
		std::set<Inode *> done; // a lost rename may leave one file under two names
		for (auto &item : names) {
			if (done.insert(item.second.get()).second) {
				LoseUnsynced(*item.second);
			}
		}
		stopped = false;
		stop_at = 0;
	}
	EndProcess();
}

void FaultFileSystem::EndProcess() {
	std::lock_guard<std::mutex> lock(mutex);
	boot++;
	locked.clear();
	hanging = false;
	released.notify_all();
}

void FaultFileSystem::StopAfter(uint64_t count) {
	std::lock_guard<std::mutex> lock(mutex);
	stop_at = count == 0 ? 0 : operation_count + count;
}

bool FaultFileSystem::IsStopped() const {
	std::lock_guard<std::mutex> lock(mutex);
	return stopped;
}

uint64_t FaultFileSystem::OperationCount() const {
	std::lock_guard<std::mutex> lock(mutex);
	return operation_count;
}

void FaultFileSystem::SetCapacity(uint64_t bytes) {
	std::lock_guard<std::mutex> lock(mutex);
	capacity = bytes;
}

void FaultFileSystem::FailSyncs(uint64_t count) {
	std::lock_guard<std::mutex> lock(mutex);
	failing_syncs = count;
}

void FaultFileSystem::FailWrites(uint64_t count, ErrorCode code) {
	std::lock_guard<std::mutex> lock(mutex);
	failing_writes = count;
	write_failure = code;
}

void FaultFileSystem::HangSyncs(bool hang) {
	std::lock_guard<std::mutex> lock(mutex);
	hanging = hang;
	released.notify_all();
}

size_t FaultFileSystem::HungCount() const {
	std::lock_guard<std::mutex> lock(mutex);
	return hanging ? hung_count : 0;
}

void FaultFileSystem::BeforeNextRead(std::function<void()> action) {
	std::lock_guard<std::mutex> lock(mutex);
	before_read = std::move(action);
}

void FaultFileSystem::RunBeforeRead() {
	std::function<void()> action;
	{
		std::lock_guard<std::mutex> lock(mutex);
		action.swap(before_read);
	}
	if (action) {
		action();
	}
}

Status FaultFileSystem::FlipBit(const std::string &path, uint64_t offset, unsigned bit) {
	std::lock_guard<std::mutex> lock(mutex);
	auto found = names.find(path);
	if (found == names.end()) {
		return Status(ErrorCode::NotFound, "cannot flip a bit of " + path + ": no such file");
	}
	auto &inode = *found->second;
	for (auto bytes : {&inode.cached, &inode.durable}) {
		if (offset < bytes->size()) {
			(*bytes)[offset] = static_cast<char>((*bytes)[offset] ^ (1 << bit));
		}
	}
	return Status::Ok();
}

Status FaultFileSystem::EditFile(const std::string &path, const std::function<void(std::string &)> &edit) {
	std::lock_guard<std::mutex> lock(mutex);
	auto found = names.find(path);
	if (found == names.end()) {
		return Status(ErrorCode::NotFound, "cannot edit " + path + ": no such file");
	}
	auto &inode = *found->second;
	edit(inode.cached);
	inode.durable = inode.cached;
	inode.dirty.clear();
	durable_names[path] = found->second;
	return Status::Ok();
}

std::string FaultFileSystem::Contents(const std::string &path) const {
	std::lock_guard<std::mutex> lock(mutex);
	auto found = names.find(path);
	return found == names.end() ? std::string() : found->second->cached;
}

} // namespace storage
} // namespace quack
