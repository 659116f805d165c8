#include "quack/catalog/placements.hpp"

#include <algorithm>
#include <set>

#include "quack/common/check.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace catalog {

std::string ShardGroupName(uint32_t shard) {
	return "shard-" + std::to_string(shard);
}

Status CheckGroupName(const std::string &name) {
	if (name.empty()) {
		return Status(ErrorCode::InvalidArgument, "a group name must not be empty");
	}
	if (name.size() > GROUP_NAME_BYTES_MAX) {
		return Status(ErrorCode::InvalidArgument, "group name \"" + name.substr(0, GROUP_NAME_BYTES_MAX) +
		                                              "...\" has " + std::to_string(name.size()) + " bytes, at most " +
		                                              std::to_string(GROUP_NAME_BYTES_MAX) + " are allowed");
	}
	for (auto letter : name) {
		if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
			return Status(ErrorCode::InvalidArgument, "a group name must not contain control characters");
		}
	}
	return Status::Ok();
}

std::vector<raft::GroupId> Placement::AllGroups() const {
	auto all = groups;
	if (!IsSharded()) {
		all.push_back(group);
	}
	std::sort(all.begin(), all.end());
	all.erase(std::unique(all.begin(), all.end()), all.end());
	return all;
}

std::string EncodePlacement(const Placement &placement) {
	std::string bytes;
	ByteWriter out(bytes);
	out.PutVarint(placement.group);
	out.PutVarint(placement.shard_key.size());
	for (auto &column : placement.shard_key) {
		out.PutBytes(column);
	}
	out.PutVarint(placement.groups.size());
	for (auto group : placement.groups) {
		out.PutVarint(group);
	}
	out.PutVarint(placement.epoch);
	return bytes;
}

Result<Placement> DecodePlacement(ByteView bytes) {
	ByteReader in(bytes);
	Placement placement;
	placement.group = in.GetVarint();
	auto columns = in.GetVarint();
	for (uint64_t i = 0; i < columns && !in.Failed(); i++) {
		placement.shard_key.emplace_back(in.GetBytes());
	}
	auto groups = in.GetVarint();
	for (uint64_t i = 0; i < groups && !in.Failed(); i++) {
		placement.groups.push_back(in.GetVarint());
	}
	placement.epoch = in.GetVarint();
	if (!in.Done() || placement.IsSharded() == placement.groups.empty() ||
	    placement.IsSharded() == (placement.group != 0)) {
		return Status(ErrorCode::Corruption, "the placement of a table is malformed");
	}
	return placement;
}

std::string EncodeGroupInfo(const GroupInfo &info) {
	std::string bytes;
	ByteWriter out(bytes);
	out.PutVarint(info.id);
	out.PutBytes(info.name);
	out.PutVarint(info.created);
	out.PutBytes(raft::EncodeMembership(info.membership));
	return bytes;
}

Result<GroupInfo> DecodeGroupInfo(ByteView bytes) {
	ByteReader in(bytes);
	GroupInfo info;
	info.id = in.GetVarint();
	info.name = std::string(in.GetBytes());
	info.created = in.GetVarint();
	auto membership = raft::DecodeMembership(in.GetBytes());
	if (!in.Done() || !membership.IsOk() || info.id <= raft::ROOT_GROUP) {
		return Status(ErrorCode::Corruption, "the description of a group is malformed");
	}
	info.membership = std::move(membership.Value());
	return info;
}

std::vector<raft::GroupId> Placements::Provide(const std::vector<std::string> &names, raft::LogIndex index,
                                               const raft::Membership &membership,
                                               std::vector<raft::GroupId> &changed) {
	auto result = Known(names);
	auto unused = Unused(result);
	auto next_unused = unused.begin();
	for (size_t i = 0; i < names.size(); i++) {
		if (result[i] != 0) {
			continue;
		}
		GroupInfo info;
		if (next_unused != unused.end()) {
			info = groups[*next_unused++];
		} else {
			info.id = next_id;
			info.created = index;
			info.membership = membership;
		}
		info.name = names[i];
		result[i] = info.id;
		changed.push_back(info.id);
		Restore(std::move(info));
	}
	return result;
}

size_t Placements::CountMissing(const std::vector<std::string> &names) const {
	auto known = Known(names);
	auto unnamed = static_cast<size_t>(std::count(known.begin(), known.end(), 0));
	return unnamed - std::min(unnamed, Unused(known).size());
}

std::vector<raft::GroupId> Placements::Known(const std::vector<std::string> &names) const {
	std::vector<raft::GroupId> result;
	for (auto &name : names) {
		auto *info = FindByName(name);
		result.push_back(name == ROOT_GROUP_NAME ? raft::ROOT_GROUP : info == nullptr ? 0 : info->id);
	}
	return result;
}

std::vector<raft::GroupId> Placements::Unused(const std::vector<raft::GroupId> &taken) const {
	std::set<raft::GroupId> used(taken.begin(), taken.end());
	for (auto &table : tables) {
		auto all = table.second.AllGroups();
		used.insert(all.begin(), all.end());
	}
	std::vector<raft::GroupId> result;
	for (auto &group : groups) {
		if (used.count(group.first) == 0) {
			result.push_back(group.first);
		}
	}
	return result;
}

void Placements::Restore(GroupInfo info) {
	groups_version++;
	version++;
	next_id = std::max(next_id, info.id + 1);
	auto before = groups.find(info.id);
	if (before != groups.end() && by_name[before->second.name] == info.id) {
		by_name.erase(before->second.name);
	}
	by_name[info.name] = info.id;
	groups[info.id] = std::move(info);
}

const GroupInfo *Placements::Find(raft::GroupId group) const {
	auto entry = groups.find(group);
	return entry == groups.end() ? nullptr : &entry->second;
}

const GroupInfo *Placements::FindByName(const std::string &name) const {
	auto entry = by_name.find(name);
	return entry == by_name.end() ? nullptr : Find(entry->second);
}

std::string Placements::NameOf(raft::GroupId group) const {
	if (group == raft::ROOT_GROUP) {
		return ROOT_GROUP_NAME;
	}
	auto *info = Find(group);
	return info == nullptr ? "group-" + std::to_string(group) : info->name;
}

void Placements::Set(const std::string &table, Placement placement) {
	version++;
	tables[table] = std::move(placement);
}

void Placements::Erase(const std::string &table) {
	version++;
	tables.erase(table);
}

void Placements::Rename(const std::string &from, const std::string &to) {
	auto entry = tables.find(from);
	if (from == to || entry == tables.end()) {
		return;
	}
	version++;
	tables[to] = std::move(entry->second);
	tables.erase(from);
}

const Placement *Placements::Of(const std::string &table) const {
	auto entry = tables.find(table);
	return entry == tables.end() ? nullptr : &entry->second;
}

std::vector<raft::GroupId> Placements::GroupsOf(const std::string &table) const {
	auto *placement = Of(table);
	return placement == nullptr ? std::vector<raft::GroupId> {raft::ROOT_GROUP} : placement->AllGroups();
}

} // namespace catalog
} // namespace quack
