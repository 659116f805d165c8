#include "quack/catalog/sync_watch.hpp"

#include "duckdb/common/local_file_system.hpp"

namespace quack {
namespace catalog {
namespace {

//! The local file system for one database, its write-ahead log and whatever else is named after it.
class WatchedFileSystem final : public duckdb::LocalFileSystem {
public:
	WatchedFileSystem(std::string name_p, std::string path_p, std::shared_ptr<SyncWatch> watch_p)
	    : name(std::move(name_p)), path(std::move(path_p)), watch(std::move(watch_p)) {
	}
	bool CanHandleFile(const std::string &file) override {
		return file.compare(0, path.size(), path) == 0;
	}
	void FileSync(duckdb::FileHandle &handle) override {
		SyncWatch::Scope scope(*watch);
		duckdb::LocalFileSystem::FileSync(handle);
	}
	std::string GetName() const override {
		return name;
	}

private:
	const std::string name;
	const std::string path;
	const std::shared_ptr<SyncWatch> watch;
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
                std::shared_ptr<SyncWatch> watch) {
	instance.GetFileSystem().RegisterSubSystem(duckdb::make_uniq<WatchedFileSystem>(name, path, std::move(watch)));
}

void UnwatchFiles(duckdb::DatabaseInstance &instance, const std::string &name) {
	instance.GetFileSystem().UnregisterSubSystem(name);
}

} // namespace catalog
} // namespace quack
