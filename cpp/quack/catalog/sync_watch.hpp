//! Since when syncs of the catalog's files are under way: DuckDB calls them deep inside a checkpoint, and a disk that
//! hangs shows nowhere else.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "duckdb/main/database.hpp"
#include "quack/catalog/block_journal.hpp"
#include "quack/common/clock.hpp"

namespace quack {
namespace catalog {

//! Any thread.
class SyncWatch {
public:
	//! Begin of the oldest sync that has not returned; 0 = none.
	MonotonicNs Since() const;

	//! One sync, from before the call until it returns or throws.
	class Scope {
	public:
		explicit Scope(SyncWatch &watch);
		~Scope();
		Scope(const Scope &) = delete;
		Scope &operator=(const Scope &) = delete;

	private:
		SyncWatch &watch;
		std::multiset<MonotonicNs>::iterator entry;
	};

private:
	mutable std::mutex lock; //! guards running; never held during a call to the disk
	std::multiset<MonotonicNs> running;
};

//! From now on, until UnwatchFiles, DuckDB's syncs of `path` are told to `watch`, and its writes go by way of
//! `journal`. Its own log beside the file stays empty. `name` is unique in the instance. Files that are open at
//! UnwatchFiles stay watched until they are closed.
void WatchFiles(duckdb::DatabaseInstance &instance, const std::string &name, const std::string &path,
                std::shared_ptr<SyncWatch> watch, std::shared_ptr<BlockJournal> journal);
void UnwatchFiles(duckdb::DatabaseInstance &instance, const std::string &name);

} // namespace catalog
} // namespace quack
