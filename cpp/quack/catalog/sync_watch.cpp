#include "quack/catalog/sync_watch.hpp"

#include <cerrno>

#include "duckdb/common/local_file_system.hpp"

namespace quack {
namespace catalog {
namespace {

//! The local file system for one database, its write-ahead log and whatever else is named after it.
class WatchedFileSystem final : public duckdb::LocalFileSystem {
public:
	WatchedFileSystem(std::string name_p, std::string path_p, std::shared_ptr<SyncWatch> watch_p,
	                  std::shared_ptr<BlockJournal> journal_p)
	    : name(std::move(name_p)), path(std::move(path_p)), watch(std::move(watch_p)), journal(std::move(journal_p)) {
	}
	bool CanHandleFile(const std::string &file) override {
		return file.compare(0, path.size(), path) == 0;
	}
	void Read(duckdb::FileHandle &handle, void *buffer, int64_t size, duckdb::idx_t location) override {
		duckdb::LocalFileSystem::Read(handle, buffer, size, location);
		if (journal->IsHolding() && handle.GetPath() == path) {
			journal->Overlay(static_cast<char *>(buffer), static_cast<size_t>(size), location);
		}
	}
	void Write(duckdb::FileHandle &handle, void *buffer, int64_t size, duckdb::idx_t location) override {
		auto bytes = ByteView(static_cast<const char *>(buffer), static_cast<size_t>(size));
		if (handle.GetPath() != path || !journal->Hold(bytes, location)) {
			duckdb::LocalFileSystem::Write(handle, buffer, size, location);
		}
	}
	//! DuckDB's own log: a checkpoint writes a mark into it and nothing else does (RECOVERY_MODE no_wal_writes). The
	//! mark is of no use, and a full disk must not stop the checkpoint that has its space reserved.
	int64_t Write(duckdb::FileHandle &handle, void *buffer, int64_t size) override {
		return IsOwnLog(handle) ? size : duckdb::LocalFileSystem::Write(handle, buffer, size);
	}
	void FileSync(duckdb::FileHandle &handle) override {
		if (IsOwnLog(handle)) {
			return;
		}
		SyncWatch::Scope scope(*watch);
		if (handle.GetPath() == path) {
			FlushJournal(handle);
		}
		duckdb::LocalFileSystem::FileSync(handle);
	}
	std::string GetName() const override {
		return name;
	}

private:
	bool IsOwnLog(duckdb::FileHandle &handle) const {
		auto file = handle.GetPath();
		return file.size() > path.size() && file.compare(path.size(), std::string::npos, ".wal") == 0;
	}
	void FlushJournal(duckdb::FileHandle &handle) {
		auto read = [&](void *bytes, size_t size, uint64_t offset) {
			duckdb::LocalFileSystem::Read(handle, bytes, static_cast<int64_t>(size), offset);
		};
		auto write = [&](const std::string &bytes, uint64_t offset) {
			auto *data = const_cast<char *>(bytes.data());
			duckdb::LocalFileSystem::Write(handle, data, static_cast<int64_t>(bytes.size()), offset);
		};
		auto status = journal->Flush(read, write);
		if (!status.IsOk()) { // `errno` is that of the failure
			throw duckdb::IOException({{"errno", std::to_string(errno)}}, status.Message());
		}
	}

	const std::string name;
	const std::string path;
	const std::shared_ptr<SyncWatch> watch;
	const std::shared_ptr<BlockJournal> journal;
};

} // namespace

MonotonicNs SyncWatch::Since() const {
	std::lock_guard<std::mutex> guard(lock);
	return running.empty() ? 0 : *running.begin();
}

SyncWatch::Scope::Scope(SyncWatch &watch_p) : watch(watch_p) {
	auto now = SystemClock().Now();
	std::lock_guard<std::mutex> guard(watch.lock);
	entry = watch.running.insert(now);
}

SyncWatch::Scope::~Scope() {
	std::lock_guard<std::mutex> guard(watch.lock);
	watch.running.erase(entry);
}

void WatchFiles(duckdb::DatabaseInstance &instance, const std::string &name, const std::string &path,
                std::shared_ptr<SyncWatch> watch, std::shared_ptr<BlockJournal> journal) {
	instance.GetFileSystem().RegisterSubSystem(
	    duckdb::make_uniq<WatchedFileSystem>(name, path, std::move(watch), std::move(journal)));
}

void UnwatchFiles(duckdb::DatabaseInstance &instance, const std::string &name) {
	instance.GetFileSystem().UnregisterSubSystem(name);
}

} // namespace catalog
} // namespace quack
