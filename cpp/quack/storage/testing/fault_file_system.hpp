//! Files in memory that break on purpose, for tests and the simulator. Deterministic: one seed, no clock, no thread.
//!
//! Which faults it makes, and so what the code above must survive:
//!  - Power cut: each 512-byte sector written since the last DataSync of its file is old, new, or new up to some byte;
//!    sizes and directory changes since the last sync are kept or lost each on its own. Synced bytes never change.
//!  - Process end: everything written stays.
//!  - DataSync fails with EIO and, as on Linux, the pages count as clean afterwards: later syncs do not write them.
//!  - EIO on write, ENOSPC on growth and on overwrites, both with part of the bytes written.
//!  - A sync that hangs until released (the only thing here that waits).
//!  - Bit flips and cuts by the test itself (FlipBit, EditFile).
//! It never makes: silent loss of synced bytes, garbage that nobody wrote.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/storage/file_system.hpp"

namespace quack {
namespace storage {

class FaultFileSystem final : public FileSystem {
public:
	explicit FaultFileSystem(uint64_t seed);
	~FaultFileSystem() override;

	Result<std::unique_ptr<File>> Open(const std::string &path, OpenMode mode) override;
	Status Rename(const std::string &from, const std::string &to) override;
	Status Remove(const std::string &path) override;
	Result<std::vector<std::string>> List(const std::string &directory) override;
	Status CreateDirectory(const std::string &directory) override;
	Status SyncDirectory(const std::string &directory) override;
	Result<std::unique_ptr<FileLock>> Lock(const std::string &path) override;
	uint64_t UniqueId() override;

	//! The machine loses power and comes back: unsynced bytes are lost at random, handles are dead, locks are free.
	void PowerCut();
	//! The process ends: handles are dead, locks are free, written bytes stay.
	void EndProcess();
	//! The power goes off in the middle of the `count`-th changing call from now (1 = the next); it and all later calls
	//! fail until PowerCut. 0 = never.
	void StopAfter(uint64_t count);
	bool IsStopped() const;
	//! Changing calls so far.
	uint64_t OperationCount() const;

	//! Sum of all file sizes that fits; more is ENOSPC.
	void SetCapacity(uint64_t bytes);
	//! The next `count` data syncs fail with EIO.
	void FailSyncs(uint64_t count);
	//! The next `count` writes fail with this code (IoError or DiskFull) after part of the bytes.
	void FailWrites(uint64_t count, ErrorCode code);
	//! While set, data syncs wait.
	void HangSyncs(bool hang);
	//! How many syncs wait right now.
	size_t HungCount() const;

	//! Runs `action` right before the next read, on the reading thread, without a lock held: another thread's work in
	//! the worst moment.
	void BeforeNextRead(std::function<void()> action);

	//! One bit changes on the medium and in the page cache; what is unsynced stays so. NotFound.
	Status FlipBit(const std::string &path, uint64_t offset, unsigned bit);
	//! Changes a file behind everybody's back, durably. NotFound.
	Status EditFile(const std::string &path, const std::function<void(std::string &)> &edit);
	//! What a reader sees now; empty when missing.
	std::string Contents(const std::string &path) const;

private:
	class OpenFile;
	class HeldLock;
	struct Inode {
		std::string cached;
		std::string durable;
		//! Numbers of sectors whose cached bytes differ, or may differ, from the durable ones.
		std::set<uint64_t> dirty;
	};
	//! A change of names that is not durable yet: `from` goes, `to` comes; either may be empty.
	struct NameChange {
		std::string from;
		std::string to;
		std::shared_ptr<Inode> inode;
	};
	using Names = std::map<std::string, std::shared_ptr<Inode>>;

	void RunBeforeRead();
	//! With the mutex held. Ok, or the power is off; `last` = the power goes off during this very call.
	Status Begin(bool &last);
	Status Write(Inode &inode, uint64_t offset, const std::vector<ByteView> &pieces);
	void Store(Inode &inode, uint64_t offset, ByteView bytes);
	Status Sync(Inode &inode, std::unique_lock<std::mutex> &lock, uint64_t boot_of_handle);
	Status Resize(Inode &inode, uint64_t size, bool only_grow);
	Status ChangeName(NameChange change);
	void LoseUnsynced(Inode &inode);
	uint64_t UsedBytes() const;

	mutable std::mutex mutex;
	std::condition_variable released;
	Prng prng;
	Names names;
	Names durable_names;
	std::vector<NameChange> pending;
	std::set<std::string> directories;
	std::set<std::string> locked;
	//! Goes up at each power cut and process end; handles of earlier boots are dead.
	uint64_t boot = 1;
	uint64_t operation_count = 0;
	uint64_t stop_at = 0;
	bool stopped = false;
	uint64_t capacity = UINT64_MAX;
	uint64_t failing_syncs = 0;
	uint64_t failing_writes = 0;
	ErrorCode write_failure = ErrorCode::IoError;
	bool hanging = false;
	size_t hung_count = 0;
	std::function<void()> before_read;
};

} // namespace storage
} // namespace quack
