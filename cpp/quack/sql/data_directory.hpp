//! A node's directory: locked by one process, owned by one node of one cluster.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "quack/common/status.hpp"

namespace quack {
namespace sql {

//! Layout: LOCK (flock, holds the pid), identity.json, verdict (see Distrust), log/ (durable log), catalog/ (DuckDB
//! file), incoming/ (snapshots being received), quarantine/<UTC time>/ (what was damaged and moved aside, with a
//! README.md), restored.json (written by `quack restore`: which backup catalog/ holds). The lock is held while the
//! object lives. Any thread.
class DataDirectory {
public:
	//! What a damage costs the node.
	enum class Damage : uint8_t {
		//! Its state. The log is sound, so the node stays who it is.
		Catalog,
		//! Its votes and what it acknowledged. When it has taken part in a cluster the directory becomes another disk
		//! (Incarnation), that never had either, and remembers which one it takes the place of.
		Log,
	};

	//! Creates what is missing. Unavailable: another process has it (named by pid). Incompatible: it belongs to another
	//! cluster or node (both values). IoError: cannot be made, read or written.
	static Result<std::unique_ptr<DataDirectory>> Open(const std::string &path, const std::string &cluster_id,
	                                                   const std::string &node_id);
	~DataDirectory();

	//! Drawn at random when the directory was made: tells this disk from another one under the same node id.
	uint64_t Incarnation() const {
		return incarnation;
	}
	//! Disks under the same node id whose logs were damaged, oldest first: they never come back.
	std::vector<uint64_t> Replaces() const;
	//! The backup that `quack restore` put here and its position in the root group; empty and 0 without one. It counts
	//! until the node has taken part in a cluster.
	const std::string &RestoredFrom() const {
		return restored_from;
	}
	uint64_t RestoredIndex() const {
		return restored_index;
	}
	//! Moves catalog/ (and, for Damage::Log, log/) to a new directory in quarantine/ and returns its path. `what` goes
	//! into the README.md there. Crash-safe: what was begun is finished by the next Open, and the old identity is given
	//! up, durably, before its log goes. Nothing in the moved directories may be open.
	Result<std::string> Quarantine(Damage damage, const std::string &what);
	//! Durably notes that the catalog holds a wrong state, and why: no node may serve or vote with it. Until
	//! Quarantine. In two places: identity.json is replaced, which takes space, and the file verdict, whose blocks are
	//! there from the start, is written over. A failure when neither could be written; a disk like that does not let
	//! the node start again either, because the start writes over LOCK in the same way.
	Status Distrust(const std::string &why);
	//! Empty = the catalog is trusted.
	std::string Distrusted() const;
	//! Durably notes that the next Open is to be followed by Quarantine(Damage::Catalog), and why. Until Quarantine.
	Status AskReseed(const std::string &why);
	//! Empty = not asked for.
	std::string ReseedAsked() const;
	//! Whether the node has taken part in a cluster with this directory: from then on its log must be there.
	bool IsFormed() const;
	Status MarkFormed();
	//! While the cluster is being formed: under which incarnation each other node came first. Durable on return.
	std::map<std::string, uint64_t> Met() const;
	Status SaveMet(const std::map<std::string, uint64_t> &met);

	std::string LogPath() const {
		return path + "/log";
	}
	std::string CatalogPath() const {
		return path + "/catalog";
	}
	std::string CatalogFile() const {
		return CatalogPath() + "/cp.duckdb";
	}
	std::string QuarantinePath() const {
		return path + "/quarantine";
	}
	std::string IncomingPath() const {
		return path + "/incoming";
	}

private:
	DataDirectory(std::string path_p, int lock_file_p) : path(std::move(path_p)), lock_file(lock_file_p) {
	}
	Status OpenVerdict();
	Status WriteVerdict(const std::string &why) const;
	static Result<int> Lock(const std::string &path);
	Status OpenIdentity(const std::string &cluster_id, const std::string &node_id);
	Status ReadIdentity(const std::string &file_path, const std::string &text);
	Status WriteIdentity() const;
	Status FinishQuarantine();
	Status ReadRestored();

	std::string path;
	int lock_file;
	std::string cluster;
	std::string node;
	uint64_t incarnation = 0;
	std::vector<uint64_t> replaces;
	std::string restored_from;
	uint64_t restored_index = 0;
	//! In quarantine/: files are being moved there; empty = no move is under way.
	std::string moving_to;
	bool is_log_moving = false;
	int verdict_file = -1;
	mutable std::mutex lock; //! guards the five below and the files
	//! Counts the catalogs this directory has had: a verdict is about one of them.
	uint64_t catalog_number = 0;
	std::string distrusted;
	std::string reseed_asked;
	bool is_formed = false;
	std::map<std::string, uint64_t> met;
};

} // namespace sql
} // namespace quack
