#include "quack/catalog/change_tee.hpp"

#include <algorithm>

#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "quack/catalog/chunk_codec.hpp"
#include "quack/catalog/effect_apply.hpp"
#include "quack/catalog/query_rows.hpp"
#include "quack/catalog/row_image.hpp"

namespace quack {
namespace catalog {
namespace {

ChangeKind KindOf(EffectKind kind) {
	return kind == EffectKind::InsertRows   ? ChangeKind::Insert
	       : kind == EffectKind::DeleteRows ? ChangeKind::Delete
	                                        : ChangeKind::Update;
}

std::string EncodeColumns(const std::vector<uint32_t> &columns) {
	std::string out;
	ByteWriter writer(out);
	for (auto column : columns) {
		writer.PutU32(column);
	}
	return out;
}

} // namespace

ChangeTee *ChangeTee::Begin(const node::CommittedEntry &committed, const EntryHeader &header) {
	if (!known.Takes(committed.group, committed.entry.index, header.planned_version)) {
		return nullptr;
	}
	group = committed.group;
	index = committed.entry.index;
	request = header.request_id;
	ordinal = 0;
	return this;
}

ChangeGroup &ChangeTee::Group(raft::GroupId id) {
	auto found = groups.find(id);
	if (found == groups.end()) {
		auto before = known.groups.find(id);
		found = groups.emplace(id, before == known.groups.end() ? ChangeGroup() : before->second).first;
	}
	return found->second;
}

std::string ChangeTee::TableId(const std::string &key) const {
	auto found = tables.find(key);
	return found != tables.end() && found->second ? *found->second : known.TableId(key);
}

//! An entry lies in one segment as a whole.
ChangeSegment &ChangeTee::Segment() {
	auto &here = Group(group);
	auto is_full = here.segments.empty() || here.segments.rbegin()->second.bytes >= CHANGE_SEGMENT_BYTES;
	if (is_full && (here.segments.empty() || here.segments.rbegin()->second.last != index)) {
		auto number = here.segments.empty() ? 1 : here.segments.rbegin()->first + 1;
		here.segments[number].last = index;
		here.definitions.clear();
		created.push_back(ChangeTableName(group, number));
	}
	auto &newest = *here.segments.rbegin();
	newest.second.last = index;
	changed_segments.insert({group, newest.first});
	if (ordinal == 0) {
		sequence++;
		ordinal = 1;
	}
	return newest.second;
}

void ChangeTee::OpenSegment(ApplySession &session) {
	Segment();
	Flush(session);
}

const std::string &ChangeTee::DefinitionHash(ApplySession &session, const ObjectName &table) {
	auto key = table.Key();
	auto found = definitions.find(key);
	if (found == definitions.end()) {
		auto encoded = EncodeDefinition(DefinitionOf(*session.Table(table).entry));
		found = definitions.emplace(key, std::make_pair(HashBytes(encoded).ToString(), std::move(encoded))).first;
	}
	auto &hash = found->second.first;
	auto &here = Group(group);
	if (here.definitions.insert(hash).second) {
		Batch batch;
		batch.table = ChangeTableName(group, here.segments.rbegin()->first);
		batch.index = index;
		batch.definition = hash;
		batch.encoded = found->second.second;
		pending.push_back(std::move(batch));
	}
	return hash;
}

void ChangeTee::AddRows(ApplySession &session, const Effect &effect) {
	if (effect.batches.empty()) {
		return;
	}
	auto &segment = Segment();
	auto &hash = DefinitionHash(session, effect.object);
	auto table_id = TableId(effect.object.Key());
	auto updated = EncodeColumns(effect.columns);
	for (auto &rows : effect.batches) {
		Batch batch;
		batch.table = ChangeTableName(group, Group(group).segments.rbegin()->first);
		batch.index = index;
		batch.sequence = sequence;
		batch.ordinal = ordinal++;
		batch.kind = KindOf(effect.kind);
		batch.table_id = table_id;
		batch.definition = hash;
		batch.row_count = RowCountOf(effect.kind == EffectKind::InsertRows ? rows.new_rows : rows.old_rows);
		batch.bytes = CHANGE_BATCH_BYTES + rows.old_rows.size() + rows.new_rows.size();
		batch.request = request;
		batch.updated = updated;
		batch.old_rows = rows.old_rows;
		batch.new_rows = rows.new_rows;
		segment.bytes += batch.bytes;
		pending.push_back(std::move(batch));
	}
}

//! A table is named by where it was created; the name moves with it.
void ChangeTee::AddDdl(ApplySession &session, const Effect &effect) {
	definitions.clear();
	if (effect.catalog_type != uint8_t(duckdb::CatalogType::TABLE_ENTRY)) {
		return;
	}
	auto key = effect.object.Key();
	if (effect.action == DdlAction::Create) {
		tables[key] = std::to_string(index) + ":" + key;
	} else if (effect.action == DdlAction::Drop) {
		tables[key] = std::nullopt;
	} else if (auto to = RenamedTo(session.Context(), effect)) {
		auto name = effect.object;
		name.name = *to;
		tables[name.Key()] = TableId(key);
		tables[key] = std::nullopt;
	}
}

void ChangeTee::Flush(ApplySession &session) {
	if (!created.empty()) {
		session.ForgetTables();
		for (auto &name : created) {
			QueryRows(session.GetConnection(), "CREATE TABLE cp.__quack." + name +
			                                       "(idx UBIGINT, sequence UBIGINT, ordinal UINTEGER, kind UTINYINT, "
			                                       "table_id VARCHAR, definition VARCHAR, row_count UBIGINT, "
			                                       "bytes UBIGINT, request_id BLOB, columns BLOB, old_rows BLOB, "
			                                       "new_rows BLOB)");
		}
		created.clear();
	}
	std::map<std::string, std::vector<const Batch *>> by_table;
	for (auto &batch : pending) {
		by_table[batch.table].push_back(&batch);
	}
	for (auto &table : by_table) {
		AppendMetaRows(session, {{META_SCHEMA}, table.first}, table.second.size(), [&](size_t i) {
			auto &batch = *table.second[i];
			return std::vector<duckdb::Value> {duckdb::Value::UBIGINT(batch.index),
			                                   duckdb::Value::UBIGINT(batch.sequence),
			                                   duckdb::Value::UINTEGER(batch.ordinal),
			                                   duckdb::Value::UTINYINT(uint8_t(batch.kind)),
			                                   duckdb::Value(batch.table_id),
			                                   duckdb::Value(batch.definition),
			                                   duckdb::Value::UBIGINT(batch.row_count),
			                                   duckdb::Value::UBIGINT(batch.bytes),
			                                   duckdb::Value::BLOB(batch.request.data(), batch.request.size()),
			                                   BlobValue(batch.updated),
			                                   BlobValue(batch.old_rows),
			                                   BlobValue(batch.kind == ChangeKind::Definition ? ByteView(batch.encoded)
			                                                                                  : batch.new_rows)};
		});
	}
	pending.clear();
}

void ChangeTee::Skip(const node::CommittedEntry &committed) {
	if (known.IsOn()) {
		Group(committed.group).floor = committed.entry.index;
		changed_floors.insert(committed.group);
	}
}

void ChangeTee::SetRetention(uint64_t bytes, raft::LogIndex setting_index, const AppliedVector &last_changes) {
	retention = bytes;
	is_setting_changed = true;
	if (bytes == 0) {
		Forget();
		return;
	}
	if (known.IsOn()) {
		for (auto &one : known.groups) {
			Group(one.first); // may have to give some up
		}
		return;
	}
	since = setting_index;
	for (auto &change : last_changes) {
		Group(change.first).floor = change.second;
		changed_floors.insert(change.first);
	}
	Group(raft::ROOT_GROUP).floor = setting_index;
	changed_floors.insert(raft::ROOT_GROUP);
}

void ChangeTee::Forget() {
	is_off = true;
	since = 0;
	for (auto &one : known.groups) {
		changed_floors.insert(one.first);
		for (auto &segment : one.second.segments) {
			changed_segments.insert({one.first, segment.first});
			dropped.insert(ChangeTableName(one.first, segment.first));
		}
	}
	for (auto &table : known.tables) {
		tables[table.first] = std::nullopt;
	}
}

//! The newest segment stays, so the last entry is always whole.
void ChangeTee::Prune() {
	for (auto &one : groups) {
		auto &segments = one.second.segments;
		auto kept = one.second.Bytes();
		while (segments.size() > 1 && kept - segments.begin()->second.bytes >= retention) {
			auto oldest = segments.begin();
			kept -= oldest->second.bytes;
			one.second.floor = std::max(one.second.floor, oldest->second.last);
			changed_floors.insert(one.first);
			changed_segments.insert({one.first, oldest->first});
			dropped.insert(ChangeTableName(one.first, oldest->first));
			segments.erase(oldest);
		}
	}
}

void ChangeTee::DropTables(ApplySession &session) {
	if (dropped.empty()) {
		return;
	}
	session.ForgetTables();
	for (auto &name : dropped) {
		QueryRows(session.GetConnection(), "DROP TABLE cp.__quack." + name);
	}
}

void ChangeTee::Finish(ApplySession &session, std::vector<StateRow> &rows) {
	Flush(session);
	Prune();
	DropTables(session);
	if (!is_setting_changed && changed_floors.empty() && changed_segments.empty() && tables.empty()) {
		return;
	}
	sequence++;
	if (is_setting_changed) {
		rows.push_back({sequence, StateKind::ChangeSetting, "", EncodeChangeSetting(retention, since)});
	}
	for (auto id : changed_floors) {
		rows.push_back({sequence, StateKind::ChangeFloor, EncodeIndex(id),
		                is_off ? std::string() : EncodeIndex(groups.at(id).floor)});
	}
	for (auto &changed : changed_segments) {
		std::string value;
		if (!is_off && groups.at(changed.first).segments.count(changed.second) != 0) {
			value = EncodeChangeSegment(groups.at(changed.first).segments.at(changed.second));
		}
		rows.push_back({sequence, StateKind::ChangeSegment, ChangeSegmentName(changed.first, changed.second), value});
	}
	for (auto &table : tables) {
		rows.push_back({sequence, StateKind::ChangeTable, table.first, table.second.value_or(std::string())});
	}
}

void ChangeTee::Publish(ChangeFeed &feed) {
	feed.retention = retention;
	feed.since = since;
	feed.sequence = sequence;
	if (is_off) {
		feed.groups.clear();
	}
	for (auto &one : groups) {
		feed.groups[one.first] = std::move(one.second);
	}
	for (auto &table : tables) {
		if (table.second) {
			feed.tables[table.first] = std::move(*table.second);
		} else {
			feed.tables.erase(table.first);
		}
	}
}

} // namespace catalog
} // namespace quack
