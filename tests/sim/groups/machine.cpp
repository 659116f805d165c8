#include "sim/groups/machine.hpp"

#include <algorithm>

#include "quack/common/check.hpp"

namespace quack {
namespace sim {
namespace groups {
namespace {

constexpr uint16_t DATA_VERSION = 3;

uint64_t Mix(uint64_t value) {
	value ^= value >> 33;
	value *= 0xff51afd7ed558ccdULL;
	value ^= value >> 33;
	value *= 0xc4ceb9fe1a85ec53ULL;
	return value ^ (value >> 33);
}

bool ChangesRows(EffectKind kind) {
	return kind == EffectKind::Insert || kind == EffectKind::Delete || kind == EffectKind::Update;
}

bool ChangesTable(EffectKind kind) {
	return kind == EffectKind::Alter || kind == EffectKind::Place || kind == EffectKind::Fence;
}

void PutRow(ByteWriter &out, const Row &row) {
	out.PutU64(static_cast<uint64_t>(row.value));
	out.PutVarint(row.version);
	out.PutVarint(row.columns);
}

Row GetRow(ByteReader &in) {
	Row row;
	row.value = static_cast<int64_t>(in.GetU64());
	row.version = in.GetVarint();
	row.columns = static_cast<uint32_t>(in.GetVarint());
	return row;
}

std::string Words(const Row &row) {
	return std::to_string(row.value) + "v" + std::to_string(row.version) + "c" + std::to_string(row.columns);
}

//! Rows go before others come: an order of its own for the effects of several parts.
int Rank(const Effect &effect) {
	return effect.kind == EffectKind::Delete ? 0 : effect.kind == EffectKind::Update ? 1 : 2;
}

} // namespace

std::string EncodeData(const Body &body) {
	std::string bytes;
	ByteWriter out(bytes);
	out.PutU16(DATA_VERSION);
	out.PutRaw(ByteView(reinterpret_cast<const char *>(body.id.data()), body.id.size()));
	out.PutVarint(body.planned_version);
	out.PutVarint(body.effects.size());
	for (auto &effect : body.effects) {
		out.PutU8(static_cast<uint8_t>(effect.kind));
		out.PutBytes(effect.table);
		out.PutVarint(effect.key);
		PutRow(out, effect.before);
		PutRow(out, effect.after);
		out.PutVarint(effect.group_count);
		out.PutBytes(effect.group_name);
	}
	return bytes;
}

Body DecodeBody(ByteView bytes) {
	ByteReader in(bytes);
	Body body;
	auto version = in.GetU16();
	auto id = in.GetRaw(body.id.size());
	QUACK_CHECK(version == DATA_VERSION && !in.Failed(), "a data entry of the simulation");
	std::copy(id.begin(), id.end(), body.id.begin());
	body.planned_version = in.GetVarint();
	body.effects.resize(static_cast<size_t>(in.GetVarint()));
	for (auto &effect : body.effects) {
		effect.kind = static_cast<EffectKind>(in.GetU8());
		effect.table = std::string(in.GetBytes());
		effect.key = in.GetVarint();
		effect.before = GetRow(in);
		effect.after = GetRow(in);
		effect.group_count = static_cast<uint32_t>(in.GetVarint());
		effect.group_name = std::string(in.GetBytes());
	}
	QUACK_CHECK(in.Done(), "a data entry of the simulation");
	return body;
}

node::LockSet TableLocksOf(const std::vector<Effect> &effects) {
	node::LockSet locks;
	for (auto &effect : effects) {
		auto kind = ChangesTable(effect.kind) ? node::LockKind::WholeTable : node::LockKind::Rows;
		node::AddLock(locks, {effect.table, kind, {}});
	}
	return locks;
}

void AddRowLocksOf(const std::vector<Effect> &effects, node::LockSet &locks) {
	for (auto &effect : effects) {
		if (ChangesRows(effect.kind)) {
			node::AddLock(locks, {effect.table, node::LockKind::Rows, {Mix(effect.key)}});
		}
	}
}

void Machine::Create(const std::string &table) {
	tables.emplace(table, Table());
}

std::string Machine::Apply(const node::CommittedEntry &committed, const Listener &listener) {
	auto group = committed.group;
	auto index = committed.entry.index;
	QUACK_CHECK(applied[group] + 1 == index, "a group's entries come in order");
	applied[group] = index;
	auto &payload = *committed.entry.payload;
	if (!node::IsTransactionEntry(payload)) {
		return ApplyData(group, index, DecodeBody(payload));
	}
	auto entry = node::DecodeTransactionEntry(payload);
	QUACK_CHECK(entry.IsOk(), "an entry of a transaction");
	switch (entry.Value().kind) {
	case node::TransactionEntryKind::Prepare:
		return ApplyPrepare(group, index, entry.Value(), listener);
	case node::TransactionEntryKind::Decision:
		return ApplyDecision(group, index, entry.Value());
	default:
		return ApplyRelease(group, entry.Value());
	}
}

std::vector<node::Position> Machine::Needs(const node::CommittedEntry &committed) const {
	auto &payload = *committed.entry.payload;
	if (node::IsTransactionEntry(payload)) {
		auto entry = node::DecodeTransactionEntry(payload);
		QUACK_CHECK(entry.IsOk(), "an entry of a transaction");
		auto early = sabotage.release_early && entry.Value().kind == node::TransactionEntryKind::Release;
		return early ? std::vector<node::Position>() : node::NeedsOf(entry.Value(), committed.group);
	}
	auto planned = DecodeBody(payload).planned_version;
	if (committed.group == raft::ROOT_GROUP || planned == 0 || sabotage.needs_ignored) {
		return {};
	}
	return {{raft::ROOT_GROUP, planned}};
}

std::string Machine::ApplyData(raft::GroupId group, raft::LogIndex index, const Body &body) {
	if (outcomes.count({group, body.id}) != 0) {
		return "repeated";
	}
	Verdict verdict;
	verdict.index = index;
	if (body.effects.empty()) {
		verdict.refusal = "void";
		if (sabotage.void_forgotten) {
			return "void";
		}
	} else {
		auto locks = TableLocksOf(body.effects);
		verdict.refusal = Check(group, body, false, locks);
		if (verdict.IsOk()) {
			verdict.refusal = Execute(body.effects, index);
		}
	}
	return Conclude(group, body.id, std::move(verdict));
}

std::string Machine::ApplyPrepare(raft::GroupId group, raft::LogIndex index, const node::TransactionEntry &entry,
                                  const Listener &listener) {
	Verdict verdict;
	verdict.index = index;
	if (auto *known = prepared.Find(group, entry.id)) {
		verdict.index = known->index;
	} else if (outcomes.count({group, entry.id}) != 0) {
		verdict.refusal = "given up";
	} else {
		auto body = DecodeBody(entry.body);
		node::PreparedPart part;
		part.index = index;
		part.coordinator = entry.coordinator;
		part.body = std::string(entry.body);
		part.locks = TableLocksOf(body.effects);
		verdict.refusal = Check(group, body, true, part.locks);
		if (verdict.IsOk()) {
			auto clash = prepared.Prepare(group, entry.id, std::move(part));
			QUACK_CHECK(!clash || unlocked.count(group) != 0, "the check found every lock");
			if (sabotage.part_applied_early) {
				(void)Execute(body.effects, index);
			}
		}
	}
	listener(group, entry.id, verdict);
	return verdict.IsOk() ? "prepared at " + std::to_string(verdict.index) : "not prepared: " + verdict.refusal;
}

std::string Machine::Merge(const node::TransactionEntry &decision, std::vector<Effect> &effects) const {
	for (auto &position : decision.prepares) {
		auto *part = prepared.Find(position.group, decision.id);
		if (part == nullptr || part->index != position.index) {
			return "a part is not prepared";
		}
		auto body = DecodeBody(part->body);
		effects.insert(effects.end(), body.effects.begin(), body.effects.end());
	}
	return "";
}

std::string Machine::ApplyDecision(raft::GroupId group, raft::LogIndex index, const node::TransactionEntry &entry) {
	if (outcomes.count({group, entry.id}) != 0) {
		return "repeated";
	}
	auto body = DecodeBody(entry.body);
	auto effects = body.effects;
	auto locks = TableLocksOf(effects);
	Verdict verdict;
	verdict.index = index;
	verdict.refusal = Check(group, body, false, locks);
	if (verdict.IsOk()) {
		verdict.refusal = Merge(entry, effects);
	}
	if (verdict.IsOk() && !sabotage.part_applied_early) {
		verdict.refusal = Execute(std::move(effects), index);
	} else if (verdict.IsOk()) {
		verdict.refusal = Execute(body.effects, index);
	}
	return Conclude(group, entry.id, std::move(verdict));
}

std::string Machine::ApplyRelease(raft::GroupId group, const node::TransactionEntry &entry) {
	return prepared.Release(group, entry.id) ? "released" : "nothing to release";
}

//! From names to rows: tables, the planned version, rows (rule 4).
std::string Machine::Check(raft::GroupId group, const Body &body, bool is_prepare, node::LockSet &locks) const {
	auto is_locked = unlocked.count(group) == 0;
	if (is_locked && prepared.FindClash(group, locks, body.id)) {
		return "locked";
	}
	for (auto &effect : body.effects) {
		auto version = table_versions.find(effect.table);
		if (version != table_versions.end() && version->second > body.planned_version && !sabotage.versions_unchecked) {
			return "changed";
		}
	}
	for (auto &effect : body.effects) {
		auto lives = placements.GroupsOf(effect.table);
		if (ChangesRows(effect.kind) && !std::binary_search(lives.begin(), lives.end(), group)) {
			return "lives elsewhere";
		}
	}
	if (!is_prepare && prepared.IsEmpty(group)) {
		return "";
	}
	AddRowLocksOf(body.effects, locks);
	return is_locked && prepared.FindClash(group, locks, body.id) ? "locked" : "";
}

std::string Machine::Execute(std::vector<Effect> effects, raft::LogIndex index) {
	std::stable_sort(effects.begin(), effects.end(),
	                 [](const Effect &left, const Effect &right) { return Rank(left) < Rank(right); });
	std::vector<Before> undo;
	for (auto &effect : effects) {
		auto refusal = ChangesRows(effect.kind) ? ExecuteRow(effect, undo) : "";
		if (!refusal.empty()) {
			for (auto before = undo.rbegin(); before != undo.rend(); ++before) {
				auto &rows = tables.at(before->table).rows;
				before->row ? void(rows[before->key] = *before->row) : void(rows.erase(before->key));
			}
			return refusal;
		}
	}
	for (auto &effect : effects) {
		if (effect.kind == EffectKind::Place) {
			Place(effect, index);
		} else if (effect.kind == EffectKind::Alter) {
			auto &table = tables.at(effect.table);
			table.columns++;
			for (auto &row : table.rows) {
				row.second.columns = table.columns;
			}
		}
		if (effect.kind == EffectKind::Alter || effect.kind == EffectKind::Place) {
			catalog_version = index;
			table_versions[effect.table] = index;
		}
	}
	return "";
}

std::string Machine::ExecuteRow(const Effect &effect, std::vector<Before> &undo) {
	auto &table = tables.at(effect.table);
	auto row = table.rows.find(effect.key);
	if (effect.kind == EffectKind::Insert) {
		if (row != table.rows.end()) {
			return "exists";
		}
	} else if (row == table.rows.end() || !(row->second == effect.before)) {
		return "row has changed";
	}
	undo.push_back({effect.table, effect.key, std::nullopt});
	if (row != table.rows.end()) {
		undo.back().row = row->second;
	}
	if (effect.kind == EffectKind::Delete) {
		table.rows.erase(row);
		return "";
	}
	if (effect.after.columns != table.columns) {
		violation = "a row of \"" + effect.table + "\" was written for " + std::to_string(effect.after.columns) +
		            " columns, the table has " + std::to_string(table.columns);
	}
	table.rows[effect.key] = effect.after;
	return "";
}

void Machine::Place(const Effect &effect, raft::LogIndex index) {
	if (effect.group_count == 0) {
		placements.Erase(effect.table);
		return;
	}
	catalog::Placement placement;
	placement.epoch = index;
	std::vector<raft::GroupId> changed;
	if (!effect.group_name.empty()) {
		placement.group = placements.Provide({effect.group_name}, index, {}, changed).front();
	} else {
		std::vector<std::string> names;
		for (uint32_t shard = 0; shard < effect.group_count; shard++) {
			names.push_back(catalog::ShardGroupName(shard));
		}
		placement.shard_key = {"key"};
		placement.groups = placements.Provide(names, index, {}, changed);
	}
	placements.Set(effect.table, std::move(placement));
}

std::string Machine::Conclude(raft::GroupId group, const node::TransactionId &id, Verdict verdict) {
	auto words = verdict.IsOk() ? "committed" : verdict.refusal;
	outcomes.emplace(Key(group, id), std::move(verdict));
	return words;
}

std::vector<node::GroupDefinition> Machine::Definitions() const {
	std::vector<node::GroupDefinition> definitions;
	for (auto &group : placements.Groups()) {
		definitions.push_back({group.first, group.second.name, {}});
	}
	return definitions;
}

std::vector<node::AppliedPosition> Machine::Positions() const {
	std::vector<node::AppliedPosition> positions;
	for (auto &group : applied) {
		node::AppliedPosition position;
		position.group = group.first;
		position.index = group.second;
		positions.push_back(std::move(position));
	}
	return positions;
}

raft::GroupId Machine::GroupOf(const std::string &table, uint64_t key) const {
	auto *placement = placements.Of(table);
	if (placement == nullptr) {
		return raft::ROOT_GROUP;
	}
	return placement->IsSharded() ? placement->GroupOfSlot(static_cast<uint32_t>(Mix(key) % catalog::SLOT_COUNT))
	                              : placement->group;
}

const Verdict *Machine::Find(const Key &key) const {
	auto found = outcomes.find(key);
	return found == outcomes.end() ? nullptr : &found->second;
}

void Machine::OnLeaderChange(raft::GroupId group) {
	if (sabotage.locks_dropped) {
		unlocked.insert(group);
	}
}

std::string Machine::Dump() const {
	std::string text;
	for (auto &table : tables) {
		text += table.first + " columns " + std::to_string(table.second.columns) + " groups";
		for (auto group : placements.GroupsOf(table.first)) {
			text += " " + placements.NameOf(group);
		}
		for (auto &row : table.second.rows) {
			text += " " + std::to_string(row.first) + "=" + Words(row.second);
		}
		text += "\n";
	}
	for (auto &part : prepared.List()) {
		text += "prepared in " + std::to_string(part.group) + " at " + std::to_string(part.index) + "\n";
	}
	for (auto &position : applied) {
		text += "applied " + std::to_string(position.first) + ":" + std::to_string(position.second) + "\n";
	}
	return text;
}

} // namespace groups
} // namespace sim
} // namespace quack
