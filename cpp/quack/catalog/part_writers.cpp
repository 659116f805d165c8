#include "quack/catalog/part_writers.hpp"

#include <algorithm>

#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"

namespace quack {
namespace catalog {

PartWriters::PartWriters(PartLayout layout_p, std::shared_ptr<const Placements> placements_p,
                         std::function<raft::Membership()> membership_p, size_t split_bytes_p, FrameSink sink_p)
    : layout(layout_p), placements(std::move(placements_p)), membership(std::move(membership_p)),
      split_bytes(split_bytes_p), sink(std::move(sink_p)) {
}

EffectWriter &PartWriters::For(raft::GroupId group) {
	auto &writer = writers[group];
	if (!writer) {
		writer = std::make_unique<EffectWriter>(split_bytes, [this](ByteView frame) {
			CheckSplit();
			sink(frame);
		});
	}
	return *writer;
}

void PartWriters::NoteChanged(const ObjectName &table) {
	auto key = table.Key();
	used.insert(key);
	if (changed.insert(key).second) {
		LockTable(key);
	}
}

void PartWriters::LockTable(const std::string &key) {
	for (auto group : placements->GroupsOf(key)) {
		if (group != raft::ROOT_GROUP) {
			node::AddLock(locks[group], {key, node::LockKind::WholeTable, {}});
		}
	}
}

void PartWriters::AddPlacement(const ObjectName &table, const PlacementRequest &request) {
	NoteChanged(table);
	placed[table.Key()] = {table, request};
}

void PartWriters::RenamePlacement(const ObjectName &from, const ObjectName &to) {
	auto place = PlaceOf(from);
	renamed[to.Key()] = place;
	renamed[from.Key()] = TablePlace();
	auto found = placed.find(from.Key());
	if (found != placed.end()) {
		auto request = std::move(found->second.second);
		placed.erase(found);
		if (request.kind == PlacementRequest::Kind::Resized) {
			// What is committed under the new name is not sharded.
			request.kind = PlacementRequest::Kind::Sharded;
			request.shard_key = place.shard_key;
		}
		placed[to.Key()] = {to, std::move(request)};
	}
	for (auto &pair : joined) {
		for (auto *name : {&pair.first, &pair.second}) {
			if (name->Key() == from.Key()) {
				*name = to;
			}
		}
	}
}

void PartWriters::ForgetPlacement(const ObjectName &table) {
	auto key = table.Key();
	placed.erase(key);
	renamed[key] = TablePlace();
	auto names_it = [&](const std::pair<ObjectName, ObjectName> &pair) {
		return pair.first.Key() == key || pair.second.Key() == key;
	};
	joined.erase(std::remove_if(joined.begin(), joined.end(), names_it), joined.end());
}

void PartWriters::AddForeignKey(const ObjectName &table, const ObjectName &other) {
	joined.emplace_back(table, other);
}

TablePlace PartWriters::PlaceOf(const ObjectName &table) const {
	auto key = table.Key();
	auto wish = placed.find(key);
	auto now = renamed.find(key);
	auto is_resized = wish != placed.end() && wish->second.second.kind == PlacementRequest::Kind::Resized;
	if (now != renamed.end() && (wish == placed.end() || is_resized)) {
		return now->second;
	}
	return PlaceAfter(wish == placed.end() ? nullptr : &wish->second.second, placements->Of(key), *placements);
}

void PartWriters::WritePlacements() {
	for (auto &pair : joined) {
		CheckForeignKeyPlaces(pair.first.name, PlaceOf(pair.first), pair.second.name, PlaceOf(pair.second));
	}
	for (auto &table : placed) {
		Root().AddPlacement(table.second.first, EncodePlacementChange({table.second.second, membership()}));
	}
}

TableRoute PartWriters::RouteOf(const duckdb::DuckTableEntry &entry, const ObjectName &table) {
	TableRoute route;
	auto key = table.Key();
	used.insert(key);
	auto *placement = placements->Of(key);
	if (placement == nullptr || changed.count(key) != 0) {
		return route;
	}
	if (layout == PartLayout::OneStream) {
		LockTable(key);
		return route;
	}
	if (placement->IsSharded()) {
		route.router = std::make_unique<SlotRouter>(entry, *placement);
	} else {
		route.group = placement->group;
	}
	return route;
}

std::set<raft::GroupId> PartWriters::Groups() const {
	std::set<raft::GroupId> groups;
	for (auto &writer : writers) {
		if (writer.second->Count() > 0 || writer.second->IsSplit()) {
			groups.insert(writer.first);
		}
	}
	for (auto &lock : locks) {
		groups.insert(lock.first);
	}
	return groups;
}

bool PartWriters::IsEmpty() const {
	return Groups().empty();
}

std::optional<raft::GroupId> PartWriters::SingleGroup() const {
	auto groups = Groups();
	return groups.size() == 1 ? std::optional<raft::GroupId>(*groups.begin()) : std::nullopt;
}

node::LockSet PartWriters::LocksIn(raft::GroupId group) const {
	auto found = locks.find(group);
	return found == locks.end() ? node::LockSet() : found->second;
}

void PartWriters::CheckSplit() const {
	if (layout == PartLayout::OneStream || Groups().size() < 2) {
		return;
	}
	for (auto &writer : writers) {
		if (writer.second->IsSplit()) {
			throw TooLargeToSpread();
		}
	}
}

} // namespace catalog
} // namespace quack
