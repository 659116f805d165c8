#include "quack/catalog/capture.hpp"

#include <algorithm>

#include "duckdb/catalog/catalog_entry/dependency/dependency_entry.hpp"
#include "duckdb/catalog/catalog_entry/duck_index_entry.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/trigger_catalog_entry.hpp"
#include "duckdb/catalog/catalog_search_path.hpp"
#include "duckdb/common/enums/undo_flags.hpp"
#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/binary_serializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/parser/constraints/foreign_key_constraint.hpp"
#include "duckdb/parser/parsed_data/alter_table_info.hpp"
#include "duckdb/parser/parsed_data/create_info.hpp"
#include "duckdb/parser/parsed_data/create_trigger_info.hpp"
#include "duckdb/parser/tableref/basetableref.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/update_segment.hpp"
#include "duckdb/transaction/delete_info.hpp"
#include "duckdb/transaction/update_info.hpp"
#include "quack/catalog/chunk_codec.hpp"
#include "quack/catalog/private_access.hpp"
#include "quack/catalog/row_reader.hpp"
#include "quack/common/batch_size.hpp"
#include "quack/common/limits.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::CatalogType;
using duckdb::idx_t;

[[noreturn]] void RefuseMeta() {
	throw duckdb::PermissionException("schema \"%s\" holds the replication state and is read-only", META_SCHEMA);
}

void RefuseMetaSchema(const ObjectName &object) {
	if (duckdb::StringUtil::CIEquals(object.schema.empty() ? object.name : object.schema[0], META_SCHEMA)) {
		RefuseMeta();
	}
}

std::string SerializeCreateInfo(const duckdb::CreateInfo &info) {
	duckdb::MemoryStream stream;
	duckdb::BinarySerializer serializer(stream, PinnedSerialization());
	serializer.Begin();
	info.Serialize(serializer);
	serializer.End();
	return std::string(reinterpret_cast<const char *>(stream.GetData()), stream.GetPosition());
}

//! The rows of these ids, as `view` sees them. Valid until the reader's next call.
duckdb::DataChunk &ReadRows(RowReader &reader, duckdb::TransactionData view, const int64_t *row_ids, idx_t count) {
	auto &rows = reader.Read(view, row_ids, count);
	if (rows.size() != count) {
		throw duckdb::InternalException("capture: %llu of %llu changed rows are not visible to their transaction",
		                                count - rows.size(), count);
	}
	return rows;
}

std::string ReadAndEncode(RowReader &reader, duckdb::TransactionData view, const int64_t *row_ids, idx_t count) {
	auto &rows = ReadRows(reader, view, row_ids, count);
	return EncodeChunk(rows, rows.ColumnCount());
}

//! Positions of rows, by the group that each belongs to.
std::map<raft::GroupId, std::vector<idx_t>> RowsByGroup(const std::vector<raft::GroupId> &groups) {
	std::map<raft::GroupId, std::vector<idx_t>> result;
	for (idx_t i = 0; i < groups.size(); i++) {
		result[groups[i]].push_back(i);
	}
	return result;
}

//! Row ids by the group that the row belongs to, as `view` sees it.
std::map<raft::GroupId, std::vector<int64_t>> ByGroup(duckdb::DataTable &table, const SlotRouter &router,
                                                      duckdb::TransactionData view,
                                                      const std::vector<int64_t> &row_ids) {
	std::map<raft::GroupId, std::vector<int64_t>> result;
	RowReader keys(table, router.KeyColumns());
	for (size_t start = 0; start < row_ids.size(); start += STANDARD_VECTOR_SIZE) {
		auto count = std::min<size_t>(STANDARD_VECTOR_SIZE, row_ids.size() - start);
		auto groups = router.GroupsOfKeys(ReadRows(keys, view, row_ids.data() + start, count));
		for (size_t i = 0; i < count; i++) {
			result[groups[i]].push_back(row_ids[start + i]);
		}
	}
	return result;
}

//! Far below any limit, far above the cost of a batch.
constexpr size_t BATCH_BYTES = 512 * 1024;

//! Batches of the rows of one table.
class TableBatches {
public:
	explicit TableBatches(const ObjectName &table_p) : table(table_p), size(BATCH_BYTES, STANDARD_VECTOR_SIZE) {
	}

	idx_t Rows(idx_t left) const {
		return size.Rows(left);
	}
	//! False when the rows must be encoded again, fewer at a time. `bytes` is that of the larger of old and new rows.
	bool Fits(size_t bytes, idx_t count) {
		auto fit = size.Note(bytes, count);
		if (fit == BatchSize::Fit::RowTooLarge) {
			throw duckdb::InvalidInputException("a row of table \"%s\" takes %llu bytes, more than the %llu that one "
			                                    "row may take; store it in several rows",
			                                    table.ToString(), idx_t(bytes), idx_t(ROW_BYTES_MAX));
		}
		return fit == BatchSize::Fit::Yes;
	}

private:
	const ObjectName &table;
	BatchSize size;
};

std::string EncodeRows(duckdb::DataChunk &chunk, idx_t begin, idx_t count, idx_t columns) {
	if (begin == 0 && count == chunk.size()) {
		return EncodeChunk(chunk, columns);
	}
	duckdb::DataChunk part;
	part.InitializeEmpty(chunk.GetTypes());
	part.Reference(chunk);
	part.Slice(begin, count);
	return EncodeChunk(part, columns);
}

//! Referenced tables first, so that every insert finds the keys it points to.
void OrderByForeignKey(std::vector<duckdb::LocalTableStorage *> &storages) {
	std::map<std::string, duckdb::LocalTableStorage *> by_name;
	for (auto *storage : storages) {
		by_name[NameOf(*storage->table_entry).Key()] = storage;
	}
	std::vector<duckdb::LocalTableStorage *> ordered;
	std::set<duckdb::LocalTableStorage *> visited;
	std::function<void(duckdb::LocalTableStorage *)> visit = [&](duckdb::LocalTableStorage *storage) {
		if (!visited.insert(storage).second) {
			return;
		}
		auto name = NameOf(*storage->table_entry);
		for (auto &constraint : storage->table_entry->GetConstraints()) {
			if (constraint->type != duckdb::ConstraintType::FOREIGN_KEY) {
				continue;
			}
			auto &info = constraint->Cast<duckdb::ForeignKeyConstraint>().info;
			name.name = info.table.GetIdentifierName();
			auto parent = by_name.find(name.Key());
			if (info.IsAppendConstraint() && parent != by_name.end()) {
				visit(parent->second);
			}
		}
		ordered.push_back(storage);
	};
	for (auto &entry : by_name) {
		visit(entry.second);
	}
	storages = std::move(ordered);
}

} // namespace

ObjectName NameOf(const duckdb::CatalogEntry &entry) {
	ObjectName object;
	if (entry.type == CatalogType::SCHEMA_ENTRY) {
		auto path = entry.Cast<duckdb::SchemaCatalogEntry>().GetSchemaPath();
		for (idx_t i = 0; i + 1 < path.size(); i++) {
			object.schema.push_back(path[i].GetIdentifierName());
		}
	} else {
		for (auto &part : entry.ParentSchema().GetSchemaPath()) {
			object.schema.push_back(part.GetIdentifierName());
		}
	}
	object.name = entry.name.GetIdentifierName();
	return object;
}

void Capture::Run(PartWriters &out) {
	parts = &out;
	if (parts->HasPlacements()) {
		// Rows of a table whose definition changes go another way, also those written before the change.
		is_looking_ahead = true;
		ReadUndoRecords();
		is_looking_ahead = false;
	}
	ReadUndoRecords();
	FlushRows();
	WriteInserts();
	WriteSequences();
	parts->WritePlacements();
}

void Capture::ReadUndoRecords() {
	auto &records = UndoRecordsOf(transaction);
	duckdb::optional_ptr<duckdb::UndoBufferEntry> block = records.tail;
	while (block) {
		auto handle = records.buffer_manager.Pin(block->block);
		auto *position = handle.GetDataMutable();
		auto *end = position + block->position;
		while (position < end) {
			auto kind = duckdb::Load<uint32_t>(position);
			auto size = duckdb::Load<uint32_t>(position + sizeof(uint32_t));
			position += 2 * sizeof(uint32_t);
			OnRecord(kind, position);
			position += size;
		}
		block = block->prev;
	}
}

void Capture::OnRecord(uint32_t kind, duckdb::data_ptr_t payload) {
	if (is_looking_ahead && duckdb::UndoFlags(kind) != duckdb::UndoFlags::CATALOG_ENTRY) {
		return;
	}
	switch (duckdb::UndoFlags(kind)) {
	case duckdb::UndoFlags::CATALOG_ENTRY:
		OnCatalogEntry(*duckdb::Load<duckdb::CatalogEntry *>(payload), payload + sizeof(duckdb::CatalogEntry *));
		break;
	case duckdb::UndoFlags::DELETE_TUPLE:
		OnDelete(*reinterpret_cast<duckdb::DeleteInfo *>(payload));
		break;
	case duckdb::UndoFlags::UPDATE_TUPLE:
		OnUpdate(*reinterpret_cast<duckdb::UpdateInfo *>(payload));
		break;
	case duckdb::UndoFlags::SEQUENCE_VALUE:
		sequences.push_back(reinterpret_cast<duckdb::SequenceValue *>(payload));
		break;
	default:
		break; // inserts are read from local storage
	}
}

Capture::TableRows &Capture::RowsOf(duckdb::DuckTableEntry &table) {
	for (auto &rows : pending) {
		if (rows->table == &table) {
			return *rows;
		}
	}
	RefuseMetaSchema(NameOf(table));
	if (updated_before_ddl.count(table.GetStorage().GetDataTableInfo().get()) != 0) {
		throw duckdb::NotImplementedException("table %s was updated, altered and then changed again in one "
		                                      "transaction; a replicated catalog cannot "
		                                      "do that: COMMIT before or after the ALTER",
		                                      table.name);
	}
	pending.push_back(std::make_unique<TableRows>());
	pending.back()->table = &table;
	return *pending.back();
}

void Capture::OnDelete(duckdb::DeleteInfo &info) {
	auto &rows = RowsOf(*info.table);
	for (idx_t i = 0; i < info.count; i++) {
		rows.deleted.insert(int64_t(info.base_row + (info.is_consecutive ? i : info.GetRows()[i])));
	}
}

void Capture::OnUpdate(duckdb::UpdateInfo &info) {
	auto &rows = RowsOf(*info.table);
	auto base = int64_t(info.row_group_start + info.vector_index * STANDARD_VECTOR_SIZE);
	auto *tuples = info.GetTuples();
	for (idx_t i = 0; i < info.N; i++) {
		rows.updated[base + tuples[i]].insert(uint32_t(info.column_index));
	}
}

void Capture::FlushRows() {
	for (auto &rows : pending) {
		WriteDeletes(*rows);
	}
	for (auto &rows : pending) {
		WriteUpdates(*rows);
	}
	for (auto &rows : pending) {
		if (!rows->updated.empty()) {
			auto &columns = updated_before_ddl[rows->table->GetStorage().GetDataTableInfo().get()];
			for (auto &row : rows->updated) {
				columns.insert(row.second.begin(), row.second.end());
			}
		}
	}
	pending.clear();
}

void Capture::WriteDeletes(TableRows &rows) {
	if (rows.deleted.empty()) {
		return;
	}
	std::vector<int64_t> all(rows.deleted.begin(), rows.deleted.end());
	auto route = parts->RouteOf(*rows.table, NameOf(*rows.table));
	if (!route.router) {
		WriteDeletes(*rows.table, route.group, all);
		return;
	}
	duckdb::TransactionData before(duckdb::MAX_TRANSACTION_ID, transaction.view.visibility_bound);
	for (auto &part : ByGroup(rows.table->GetStorage(), *route.router, before, all)) {
		WriteDeletes(*rows.table, part.first, part.second);
	}
}

void Capture::WriteDeletes(duckdb::DuckTableEntry &entry, raft::GroupId group, const std::vector<int64_t> &row_ids) {
	auto &table = entry.GetStorage();
	auto &writer = parts->For(group);
	RowReader reader(table, AllColumns(table));
	duckdb::TransactionData before(duckdb::MAX_TRANSACTION_ID, transaction.view.visibility_bound);
	auto name = NameOf(entry);
	writer.BeginRows(EffectKind::DeleteRows, name, {});
	TableBatches batch(name);
	for (size_t start = 0; start < row_ids.size();) {
		auto count = batch.Rows(row_ids.size() - start);
		std::vector<int64_t> ids(row_ids.begin() + int64_t(start), row_ids.begin() + int64_t(start + count));
		auto old_rows = ReadAndEncode(reader, before, ids.data(), count);
		if (batch.Fits(old_rows.size(), count)) {
			writer.AddBatch(ids, old_rows, ByteView());
			start += count;
		}
	}
	writer.EndRows();
}

void Capture::WriteUpdates(TableRows &rows) {
	std::map<std::set<uint32_t>, std::vector<int64_t>> by_columns;
	for (auto &row : rows.updated) {
		if (rows.deleted.count(row.first) == 0) {
			by_columns[row.second].push_back(row.first);
		}
	}
	auto &table = rows.table->GetStorage();
	duckdb::TransactionData before(duckdb::MAX_TRANSACTION_ID, transaction.view.visibility_bound);
	duckdb::TransactionData after(transaction);
	auto route = parts->RouteOf(*rows.table, NameOf(*rows.table));
	for (auto &group : by_columns) {
		std::vector<uint32_t> columns(group.first.begin(), group.first.end());
		if (!route.router) {
			WriteUpdates(*rows.table, route.group, columns, group.second);
			continue;
		}
		// A row whose shard key changes leaves one group and comes into another.
		for (auto &from : ByGroup(table, *route.router, before, group.second)) {
			for (auto &to : ByGroup(table, *route.router, after, from.second)) {
				if (from.first == to.first) {
					WriteUpdates(*rows.table, from.first, columns, to.second);
				} else {
					WriteDeletes(*rows.table, from.first, to.second);
					WriteMoved(*rows.table, to.first, to.second);
				}
			}
		}
	}
}

void Capture::WriteUpdates(duckdb::DuckTableEntry &entry, raft::GroupId group, const std::vector<uint32_t> &columns,
                           const std::vector<int64_t> &row_ids) {
	auto &table = entry.GetStorage();
	auto &writer = parts->For(group);
	auto name = NameOf(entry);
	duckdb::TransactionData before(duckdb::MAX_TRANSACTION_ID, transaction.view.visibility_bound);
	RowReader old_rows(table, AllColumns(table));
	RowReader new_rows(table, columns);
	writer.BeginRows(EffectKind::UpdateRows, name, columns);
	TableBatches batch(name);
	for (size_t start = 0; start < row_ids.size();) {
		auto count = batch.Rows(row_ids.size() - start);
		std::vector<int64_t> ids(row_ids.begin() + int64_t(start), row_ids.begin() + int64_t(start + count));
		auto before_rows = ReadAndEncode(old_rows, before, ids.data(), count);
		auto after_rows = ReadAndEncode(new_rows, duckdb::TransactionData(transaction), ids.data(), count);
		if (batch.Fits(std::max(before_rows.size(), after_rows.size()), count)) {
			writer.AddBatch(ids, before_rows, after_rows);
			start += count;
		}
	}
	writer.EndRows();
}

//! Inserts the rows as they are now.
void Capture::WriteMoved(duckdb::DuckTableEntry &entry, raft::GroupId group, const std::vector<int64_t> &row_ids) {
	auto &table = entry.GetStorage();
	auto &writer = parts->For(group);
	auto name = NameOf(entry);
	RowReader rows(table, AllColumns(table));
	writer.BeginRows(EffectKind::InsertRows, name, {});
	TableBatches batch(name);
	for (size_t start = 0; start < row_ids.size();) {
		auto count = batch.Rows(row_ids.size() - start);
		auto new_rows = ReadAndEncode(rows, duckdb::TransactionData(transaction), row_ids.data() + start, count);
		if (batch.Fits(new_rows.size(), count)) {
			writer.AddBatch({}, ByteView(), new_rows);
			start += count;
		}
	}
	writer.EndRows();
}

void Capture::WriteInserts() {
	std::vector<duckdb::LocalTableStorage *> storages;
	auto entries = LocalTablesOf(transaction.GetLocalStorage()).GetEntries();
	for (auto &storage : entries) {
		if (!storage->is_dropped && storage->table_entry && storage->GetCollection().GetTotalRows() > 0) {
			storages.push_back(storage.get());
		}
	}
	if (storages.size() > 1) {
		OrderByForeignKey(storages);
	}
	for (auto *storage : storages) {
		RefuseMetaSchema(NameOf(*storage->table_entry));
		WriteInserts(*storage);
	}
}

void Capture::WriteInserts(duckdb::LocalTableStorage &storage) {
	auto name = NameOf(*storage.table_entry);
	auto columns = storage.table_ref.get().ColumnCount();
	auto route = parts->RouteOf(*storage.table_entry, name);
	std::set<raft::GroupId> open;
	TableBatches batch(name);
	auto write = [&](raft::GroupId group, duckdb::DataChunk &chunk) {
		auto &writer = parts->For(group);
		if (open.insert(group).second) {
			writer.BeginRows(EffectKind::InsertRows, name, {});
		}
		for (idx_t begin = 0; begin < chunk.size();) {
			auto count = batch.Rows(chunk.size() - begin);
			auto rows = EncodeRows(chunk, begin, count, columns);
			if (batch.Fits(rows.size(), count)) {
				writer.AddBatch({}, ByteView(), rows);
				begin += count;
			}
		}
	};
	for (auto &chunk : storage.GetCollection().Chunks(transaction)) {
		if (chunk.size() == 0) {
			continue;
		}
		if (!route.router) {
			write(route.group, chunk);
			continue;
		}
		for (auto &part : RowsByGroup(route.router->GroupsOfRows(chunk))) {
			duckdb::SelectionVector rows(part.second.size());
			for (idx_t i = 0; i < part.second.size(); i++) {
				rows.set_index(i, part.second[i]);
			}
			duckdb::DataChunk slice;
			slice.Initialize(duckdb::Allocator::DefaultAllocator(), chunk.GetTypes());
			chunk.Copy(slice, rows, part.second.size());
			write(part.first, slice);
		}
	}
	for (auto group : open) {
		parts->For(group).EndRows();
	}
}

void Capture::WriteSequences() {
	for (auto *value : sequences) {
		if (dropped_sequences.count(SequenceStateOf(*value->entry).get()) != 0) {
			continue;
		}
		SequenceUse use;
		use.usage_count = value->usage_count;
		use.counter = value->counter;
		use.has_last_value = value->has_last_value;
		use.last_value = value->last_value;
		auto name = NameOf(*value->entry);
		RefuseMetaSchema(name);
		parts->Root().AddSequence(name, use);
	}
}

void Capture::OnCatalogEntry(duckdb::CatalogEntry &entry, duckdb::data_ptr_t extra) {
	auto &parent = entry.Parent();
	if (entry.temporary || parent.temporary) {
		return;
	}
	switch (parent.type) {
	case CatalogType::TRIGGER_ENTRY:
		if (entry.type != parent.type) {
			OnCreate(parent);
		}
		break; // same type: follows from the ALTER of the table
	case CatalogType::SCHEMA_ENTRY:
		if (entry.type == CatalogType::RENAMED_ENTRY || entry.type == CatalogType::SCHEMA_ENTRY) {
			throw duckdb::NotImplementedException("ALTER SCHEMA is not replicated; create a new schema instead");
		}
		OnCreate(parent);
		break;
	case CatalogType::TABLE_ENTRY:
	case CatalogType::VIEW_ENTRY:
	case CatalogType::INDEX_ENTRY:
	case CatalogType::SEQUENCE_ENTRY:
	case CatalogType::TYPE_ENTRY:
	case CatalogType::MACRO_ENTRY:
	case CatalogType::TABLE_MACRO_ENTRY:
		if (entry.type == CatalogType::RENAMED_ENTRY || entry.type == parent.type) {
			OnAlter(entry, parent, extra);
		} else {
			OnCreate(parent);
		}
		break;
	case CatalogType::DELETED_ENTRY:
		OnDrop(entry);
		break;
	case CatalogType::DEPENDENCY_ENTRY:
		if (parent.Cast<duckdb::DependencyEntry>().Subject().flags.IsOwnership()) {
			throw duckdb::NotImplementedException("ALTER SEQUENCE ... OWNED BY is not replicated; drop the sequence "
			                                      "when its table is dropped");
		}
		break; // other dependencies follow from the other records
	default:
		break; // renames' old names: follow from the other records
	}
}

void Capture::OnCreate(duckdb::CatalogEntry &created) {
	FlushRows();
	auto name = NameOf(created);
	RefuseMetaSchema(name);
	std::vector<ObjectName> touched {name};
	if (created.type == CatalogType::INDEX_ENTRY) {
		auto table = name;
		auto &index = created.Cast<duckdb::DuckIndexEntry>();
		RefuseUpdatesBeforeIndex(index.GetDataTableInfo(), index.column_ids);
		table.name = index.GetTableName().GetIdentifierName();
		touched.push_back(table);
		if (index.IsUnique()) {
			RefuseUniqueWithoutShardKey(table, UniqueColumns(index.parsed_expressions));
		}
	}
	if (created.type == CatalogType::TRIGGER_ENTRY) {
		auto table = name;
		table.name = created.Cast<duckdb::TriggerCatalogEntry>().base_table->Table().GetIdentifierName();
		touched.push_back(table);
	}
	if (created.type == CatalogType::TABLE_ENTRY) {
		for (auto &constraint : created.Cast<duckdb::TableCatalogEntry>().GetConstraints()) {
			if (constraint->type == duckdb::ConstraintType::FOREIGN_KEY) {
				auto table = name;
				table.name = constraint->Cast<duckdb::ForeignKeyConstraint>().info.table.GetIdentifierName();
				touched.push_back(table);
				if (table.Key() != name.Key() && !is_looking_ahead) {
					parts->AddForeignKey(name, table);
				}
			}
		}
	}
	auto info = created.GetInfo();
	auto wish = info->tags.find(PLACEMENT_TAG);
	std::optional<PlacementRequest> placement;
	if (wish != info->tags.end() && created.type == CatalogType::TABLE_ENTRY) {
		auto request = PlacementFromTag(wish->second);
		if (!request.IsOk()) {
			throw duckdb::InvalidInputException("tag \"%s\" is reserved", PLACEMENT_TAG);
		}
		placement = std::move(request.Value());
		info->tags.erase(wish);
	}
	AddDdl(DdlAction::Create, created.type, name, std::move(touched), SerializeCreateInfo(*info),
	       created.type == CatalogType::INDEX_ENTRY);
	if (placement && !is_looking_ahead) {
		parts->AddPlacement(name, *placement);
	}
}

//! Looked at when it was planned too, but the transaction may have renamed or replaced the table.
void Capture::RefuseUniqueWithoutShardKey(const ObjectName &table, const std::vector<std::string> &columns) const {
	if (!is_looking_ahead) {
		CheckUniqueHoldsShardKey(table.name, parts->PlaceOf(table).shard_key, columns, "the unique index");
	}
}

//! The hash of a row must not change its meaning behind the rows that are there.
void Capture::RefuseShardKeyChange(const ObjectName &table, const duckdb::AlterInfo &alter) const {
	auto place = parts->PlaceOf(table);
	if (!place.IsSharded() || alter.type != duckdb::AlterType::ALTER_TABLE) {
		return;
	}
	duckdb::Identifier column;
	switch (alter.Cast<duckdb::AlterTableInfo>().alter_table_type) {
	case duckdb::AlterTableType::RENAME_COLUMN:
		column = alter.Cast<duckdb::RenameColumnInfo>().old_name;
		break;
	case duckdb::AlterTableType::REMOVE_COLUMN:
		column = alter.Cast<duckdb::RemoveColumnInfo>().removed_column;
		break;
	case duckdb::AlterTableType::ALTER_COLUMN_TYPE:
		column = alter.Cast<duckdb::ChangeColumnTypeInfo>().column_path.front();
		break;
	default:
		return;
	}
	for (auto &key : place.shard_key) {
		if (column == duckdb::Identifier(key)) {
			throw duckdb::InvalidInputException("column \"%s\" of table \"%s\" is part of its shard key and cannot be "
			                                    "renamed, dropped or changed; SET GROUP DEFAULT first",
			                                    key, table.name);
		}
	}
}

void Capture::OnAlter(duckdb::CatalogEntry &before, duckdb::CatalogEntry &after, duckdb::data_ptr_t extra) {
	auto size = duckdb::Load<idx_t>(extra);
	auto *bytes = extra + sizeof(idx_t);
	duckdb::MemoryStream stream(bytes, size);
	duckdb::BinaryDeserializer deserializer(stream);
	deserializer.Begin();
	deserializer.ReadProperty<duckdb::string>(100, "column_name");
	auto info = deserializer.ReadProperty<duckdb::unique_ptr<duckdb::ParseInfo>>(101, "alter_info");
	deserializer.End();
	auto &alter = info->Cast<duckdb::AlterInfo>();
	if (alter.type == duckdb::AlterType::ALTER_TABLE &&
	    alter.Cast<duckdb::AlterTableInfo>().alter_table_type == duckdb::AlterTableType::FOREIGN_KEY_CONSTRAINT) {
		return; // DuckDB's own bookkeeping on the referenced table
	}
	FlushRows();
	auto name = NameOf(after);
	RefuseMetaSchema(name);
	auto old_name = name;
	old_name.name = before.name.GetIdentifierName();
	// The statement's own name: after a rename the entries' names no longer say which one was altered.
	auto altered = name;
	altered.name = alter.GetQualifiedName().Name().GetIdentifierName();
	RefuseShardKeyChange(altered, alter);
	if (!is_looking_ahead && alter.type == duckdb::AlterType::ALTER_TABLE &&
	    alter.Cast<duckdb::AlterTableInfo>().alter_table_type == duckdb::AlterTableType::RENAME_TABLE) {
		auto renamed = altered;
		renamed.name = alter.Cast<duckdb::RenameTableInfo>().new_table_name.GetIdentifierName();
		parts->RenamePlacement(altered, renamed);
	}
	bool builds_index = alter.IsAddUniqueConstraint();
	if (builds_index) {
		auto &storage = after.Cast<duckdb::DuckTableEntry>().GetStorage();
		duckdb::vector<duckdb::column_t> all;
		for (idx_t i = 0; i < storage.ColumnCount(); i++) {
			all.push_back(i);
		}
		RefuseUpdatesBeforeIndex(*storage.GetDataTableInfo(), all);
		auto &unique = alter.Cast<duckdb::AddConstraintInfo>().constraint->Cast<duckdb::UniqueConstraint>();
		auto &columns = after.Cast<duckdb::TableCatalogEntry>().GetColumns();
		RefuseUniqueWithoutShardKey(altered, UniqueColumns(unique, columns));
	}
	AddDdl(DdlAction::Alter, after.type, altered, {name, old_name, altered},
	       ByteView(reinterpret_cast<const char *>(bytes), size), builds_index);
}

//! DuckDB cannot build an index over a column that the same transaction updated.
void Capture::RefuseUpdatesBeforeIndex(const duckdb::DataTableInfo &table,
                                       const duckdb::vector<duckdb::column_t> &columns) {
	auto updated = updated_before_ddl.find(&table);
	for (auto column : columns) {
		if (updated != updated_before_ddl.end() && updated->second.count(uint32_t(column)) != 0) {
			throw duckdb::NotImplementedException(
			    "an index was created on a column that the same transaction had updated; COMMIT before CREATE INDEX");
		}
	}
}

void Capture::OnDrop(duckdb::CatalogEntry &dropped) {
	switch (dropped.type) {
	case CatalogType::TABLE_ENTRY:
	case CatalogType::SCHEMA_ENTRY:
	case CatalogType::VIEW_ENTRY:
	case CatalogType::SEQUENCE_ENTRY:
	case CatalogType::MACRO_ENTRY:
	case CatalogType::TABLE_MACRO_ENTRY:
	case CatalogType::TYPE_ENTRY:
	case CatalogType::INDEX_ENTRY:
	case CatalogType::TRIGGER_ENTRY:
		break;
	default:
		return;
	}
	FlushRows();
	auto name = NameOf(dropped);
	RefuseMetaSchema(name);
	std::vector<ObjectName> touched {name};
	if (dropped.type == CatalogType::TABLE_ENTRY && !is_looking_ahead) {
		parts->ForgetPlacement(name);
	}
	std::string table;
	if (dropped.type == CatalogType::SEQUENCE_ENTRY) {
		dropped_sequences.insert(SequenceStateOf(dropped.Cast<duckdb::SequenceCatalogEntry>()).get());
	}
	if (dropped.type == CatalogType::INDEX_ENTRY) {
		table = dropped.Cast<duckdb::IndexCatalogEntry>().GetTableName().GetIdentifierName();
	}
	if (dropped.type == CatalogType::TRIGGER_ENTRY) {
		table = dropped.Cast<duckdb::TriggerCatalogEntry>().base_table->Table().GetIdentifierName();
	}
	if (!table.empty()) {
		touched.push_back(ObjectName {name.schema, table});
	}
	AddDdl(DdlAction::Drop, dropped.type, name, std::move(touched), table);
}

void Capture::AddDdl(DdlAction action, CatalogType type, const ObjectName &object, std::vector<ObjectName> touched,
                     ByteView definition, bool builds_index) {
	if (parts->HasPlacements()) {
		for (auto &name : touched) {
			parts->NoteChanged(name);
		}
	}
	if (is_looking_ahead) {
		return;
	}
	if (definition.size() > ROW_BYTES_MAX) {
		throw duckdb::InvalidInputException("the definition of \"%s\" takes %llu bytes, more than the %llu that one "
		                                    "may take",
		                                    object.ToString(), idx_t(definition.size()), idx_t(ROW_BYTES_MAX));
	}
	Effect effect;
	effect.builds_index = builds_index;
	effect.action = action;
	effect.catalog_type = uint8_t(type);
	effect.object = object;
	effect.touched = std::move(touched);
	effect.definition = definition;
	if (auto context = transaction.context.lock()) {
		for (auto &entry : duckdb::ClientData::Get(*context).catalog_search_path->GetSetPaths()) {
			if (entry.GetCatalog() == duckdb::Identifier(CATALOG_NAME)) {
				std::vector<std::string> schema;
				for (auto &part : entry.GetSchemaPath()) {
					schema.push_back(part.GetIdentifierName());
				}
				effect.search_path.push_back(std::move(schema));
			}
		}
	}
	parts->Root().AddDdl(effect);
}

} // namespace catalog
} // namespace quack
