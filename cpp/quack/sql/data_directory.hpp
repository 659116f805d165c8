//! A node's directory: locked by one process, owned by one node of one cluster.
#pragma once

#include <memory>
#include <string>

#include "quack/common/status.hpp"

namespace quack {
namespace sql {

//! Layout: LOCK (flock, holds the pid), identity.json, log/ (durable log), catalog/ (DuckDB file), incoming/
//! (snapshots being received). The lock is held while the object lives.
class DataDirectory {
public:
	//! Creates what is missing. Unavailable: another process has it (named by pid). Incompatible: it belongs to another
	//! cluster or node (both values). IoError: cannot be made, read or written.
	static Result<std::unique_ptr<DataDirectory>> Open(const std::string &path, const std::string &cluster_id,
	                                                   const std::string &node_id);
	~DataDirectory();

	std::string LogPath() const {
		return path + "/log";
	}
	std::string CatalogPath() const {
		return path + "/catalog";
	}
	std::string CatalogFile() const {
		return CatalogPath() + "/cp.duckdb";
	}
	std::string IncomingPath() const {
		return path + "/incoming";
	}

private:
	DataDirectory(std::string path_p, int lock_file_p) : path(std::move(path_p)), lock_file(lock_file_p) {
	}
	static Result<int> Lock(const std::string &path);
	Status CheckIdentity(const std::string &cluster_id, const std::string &node_id) const;

	std::string path;
	int lock_file;
};

} // namespace sql
} // namespace quack
