//! The effects of one local transaction, sorted by the groups they belong to.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "quack/catalog/effects.hpp"
#include "quack/catalog/placement_request.hpp"
#include "quack/catalog/slot_router.hpp"
#include "quack/node/transaction_entry.hpp"

namespace quack {
namespace catalog {

//! Where rows of one table go.
struct TableRoute {
	//! All of them; unless there is a router.
	raft::GroupId group = raft::ROOT_GROUP;
	std::unique_ptr<SlotRouter> router;
};

//! Spread: each row goes to the group of its slot. OneStream: all rows go to the root group, and every group that a
//! table lives in is locked for it.
enum class PartLayout : uint8_t { Spread, OneStream };

//! A spread transaction over several groups is too large for one entry in each: it must be laid out as one stream.
class TooLargeToSpread : public std::exception {};

class PartWriters {
public:
	//! `placements`: as of the transaction's planned version. Frames: EffectWriter.
	//! `membership`: of the root group, asked for when a table is placed; may throw.
	PartWriters(PartLayout layout, std::shared_ptr<const Placements> placements,
	            std::function<raft::Membership()> membership, size_t split_bytes, FrameSink sink);

	//! DDL, sequences, placements.
	EffectWriter &Root() {
		return For(raft::ROOT_GROUP);
	}
	EffectWriter &For(raft::GroupId group);
	//! False when every table lives in the root group.
	bool HasPlacements() const {
		return !placements->Tables().empty();
	}

	//! The transaction changes what that name means: all groups that it lives in are locked for it, and its rows go
	//! with its definition.
	void NoteChanged(const ObjectName &table);
	//! The table's new place; it follows the table's later changes in the same transaction until it is written.
	void AddPlacement(const ObjectName &table, const PlacementRequest &request);
	void RenamePlacement(const ObjectName &from, const ObjectName &to);
	void ForgetPlacement(const ObjectName &table);
	//! A foreign key joins the two.
	void AddForeignKey(const ObjectName &table, const ObjectName &other);
	//! Where the table will live, as far as is known by now.
	TablePlace PlaceOf(const ObjectName &table) const;
	//! After all DDL. Throws BinderException when a foreign key would join tables of different groups.
	void WritePlacements();
	TableRoute RouteOf(const duckdb::DuckTableEntry &entry, const ObjectName &table);

	//! Keys of all tables that were routed or changed.
	const std::set<std::string> &Used() const {
		return used;
	}
	//! No group has an effect.
	bool IsEmpty() const;
	//! The only group of the transaction, when there is one.
	std::optional<raft::GroupId> SingleGroup() const;
	//! Groups with effects or locks.
	std::set<raft::GroupId> Groups() const;
	//! Whole tables to lock in the group.
	node::LockSet LocksIn(raft::GroupId group) const;
	//! Throws TooLargeToSpread.
	void CheckSplit() const;

private:
	//! In every group but the root group that the table lives in.
	void LockTable(const std::string &key);

	const PartLayout layout;
	const std::shared_ptr<const Placements> placements;
	const std::function<raft::Membership()> membership;
	const size_t split_bytes;
	const FrameSink sink;
	std::map<raft::GroupId, std::unique_ptr<EffectWriter>> writers;
	std::set<std::string> changed;
	std::set<std::string> used;
	std::map<raft::GroupId, node::LockSet> locks;
	//! By the table's key.
	std::map<std::string, std::pair<ObjectName, PlacementRequest>> placed;
	//! Of names that mean another table than before the transaction.
	std::map<std::string, TablePlace> renamed;
	std::vector<std::pair<ObjectName, ObjectName>> joined;
};

} // namespace catalog
} // namespace quack
