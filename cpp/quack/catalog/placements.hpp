//! Which groups there are and in which of them tables live (cpp/GROUPS.md). Part of the replicated state of the root
//! group; changed only by its entries. No DuckDB object.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace catalog {

//! Rows are spread over so many slots by their shard key; slots over groups.
constexpr uint32_t SLOT_COUNT = 1024;
//! Groups of one table.
constexpr uint32_t TABLE_GROUPS_MAX = 256;
//! Groups of a cluster, the root group left out.
constexpr size_t GROUPS_MAX = 512;
constexpr size_t GROUP_NAME_BYTES_MAX = 64;
constexpr const char *ROOT_GROUP_NAME = "root";

//! Group number `shard` of every sharded table: tables with equal shard keys and numbers of groups keep equal keys in
//! one group, so that a transaction over them stays inside it.
std::string ShardGroupName(uint32_t shard);

//! InvalidArgument with the reason: empty, too long, control characters.
Status CheckGroupName(const std::string &name);

//! Where a table lives. A table without one lives in the root group.
struct Placement {
	//! Of a pinned table; 0 when it is sharded.
	raft::GroupId group = 0;
	//! Names of columns, in the order in which they are hashed; empty when pinned.
	std::vector<std::string> shard_key;
	//! Slot s belongs to groups[s % groups.size()]; empty when pinned.
	std::vector<raft::GroupId> groups;
	//! Root index of the entry that made it so.
	raft::LogIndex epoch = 0;

	bool IsSharded() const {
		return !shard_key.empty();
	}
	raft::GroupId GroupOfSlot(uint32_t slot) const {
		return groups[slot % groups.size()];
	}
	//! Sorted, without repetition.
	std::vector<raft::GroupId> AllGroups() const;
};

std::string EncodePlacement(const Placement &placement);
//! Corruption.
Result<Placement> DecodePlacement(ByteView bytes);

struct GroupInfo {
	raft::GroupId id = 0;
	std::string name;
	//! Root index of the entry that created it.
	raft::LogIndex created = 0;
	//! Of the root group at that entry.
	raft::Membership membership;
};

std::string EncodeGroupInfo(const GroupInfo &info);
//! Corruption.
Result<GroupInfo> DecodeGroupInfo(ByteView bytes);

//! Not thread-safe. Tables are named by ObjectName::Key().
class Placements {
public:
	//! The groups of these names, in their order. For a name that there is none of, a group without tables gets it, the
	//! smallest number first, or a new one is made at root index `index`; both are added to `changed`.
	std::vector<raft::GroupId> Provide(const std::vector<std::string> &names, raft::LogIndex index,
	                                   const raft::Membership &membership, std::vector<raft::GroupId> &changed);
	//! How many groups Provide would make.
	size_t CountMissing(const std::vector<std::string> &names) const;
	//! A group as it was written, perhaps under another name than before.
	void Restore(GroupInfo info);
	void RestoreNextId(raft::GroupId id) {
		next_id = id;
	}
	raft::GroupId NextId() const {
		return next_id;
	}

	const GroupInfo *Find(raft::GroupId group) const;
	const GroupInfo *FindByName(const std::string &name) const;
	//! "root" for the root group, "group-<n>" for one that does not exist.
	std::string NameOf(raft::GroupId group) const;
	const std::map<raft::GroupId, GroupInfo> &Groups() const {
		return groups;
	}
	//! Changes with every change of anything in here.
	uint64_t Version() const {
		return version;
	}
	//! Changes whenever Groups() does.
	uint64_t GroupsVersion() const {
		return groups_version;
	}

	void Set(const std::string &table, Placement placement);
	void Erase(const std::string &table);
	//! The table is called otherwise from now on.
	void Rename(const std::string &from, const std::string &to);
	//! Null = the root group.
	const Placement *Of(const std::string &table) const;
	//! Groups that rows of the table may lie in; the root group alone for one that is not placed.
	std::vector<raft::GroupId> GroupsOf(const std::string &table) const;
	const std::map<std::string, Placement> &Tables() const {
		return tables;
	}

private:
	//! Of the root group, and of groups that exist by that name; 0 = none does.
	std::vector<raft::GroupId> Known(const std::vector<std::string> &names) const;
	//! Those that neither have a table nor are among `taken`.
	std::vector<raft::GroupId> Unused(const std::vector<raft::GroupId> &taken) const;

	std::map<raft::GroupId, GroupInfo> groups;
	std::unordered_map<std::string, raft::GroupId> by_name;
	raft::GroupId next_id = raft::ROOT_GROUP + 1;
	uint64_t groups_version = 0;
	uint64_t version = 0;
	std::map<std::string, Placement> tables;
};

} // namespace catalog
} // namespace quack
