#include "quack/catalog/part_locks.hpp"

#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/parser/constraints/foreign_key_constraint.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/data_table_info.hpp"
#include "duckdb/storage/table/index_entry.hpp"
#include "duckdb/storage/table/table_index_list.hpp"
#include "duckdb/execution/index/art/art.hpp"
#include "quack/catalog/chunk_codec.hpp"
#include "quack/catalog/row_image.hpp"

namespace quack {
namespace catalog {
namespace {

using node::LockKind;

//! A unique key of plain columns, by physical index.
using KeyColumns = std::vector<uint32_t>;

struct UniqueKeys {
	std::vector<KeyColumns> keys;
	//! There is one whose clashes cannot be told from bytes of columns.
	bool has_other = false;
};

//! Equal keys of these types have equal bytes.
bool ComparesByBytes(const duckdb::LogicalType &type) {
	switch (type.id()) {
	case duckdb::LogicalTypeId::FLOAT:
	case duckdb::LogicalTypeId::DOUBLE:
	case duckdb::LogicalTypeId::INTERVAL:
	case duckdb::LogicalTypeId::TIME_TZ:
		return false;
	case duckdb::LogicalTypeId::VARCHAR:
		return duckdb::StringType::GetCollation(type).empty();
	default:
		return !type.IsNested();
	}
}

UniqueKeys UniqueKeysOf(ApplyTable &table) {
	UniqueKeys result;
	for (auto entry : table.storage->GetDataTableInfo()->GetIndexes().IndexEntries()) {
		if (!entry->IsUnique()) {
			continue;
		}
		if (entry->GetBindState() != duckdb::IndexBindState::BOUND || entry->GetIndexType() != duckdb::ART::TYPE_NAME) {
			result.has_other = true;
			continue;
		}
		auto art = entry->GetReadHandle<duckdb::ART>();
		KeyColumns columns;
		auto is_plain = art->unbound_expressions.size() == art->GetColumnIds().size();
		for (size_t i = 0; is_plain && i < art->unbound_expressions.size(); i++) {
			auto column = art->GetColumnIds()[i];
			is_plain = art->unbound_expressions[i]->GetExpressionType() == duckdb::ExpressionType::BOUND_COLUMN_REF &&
			           art->unbound_expressions[i]->GetReturnType() == table.types[column] &&
			           ComparesByBytes(table.types[column]);
			columns.push_back(static_cast<uint32_t>(column));
		}
		if (is_plain) {
			result.keys.push_back(std::move(columns));
		} else {
			result.has_other = true;
		}
	}
	return result;
}

//! Tables that the foreign keys of `table` point to or that point to it; they live in the same group.
void LockRelated(const ObjectName &name, const ApplyTable &table, node::LockSet &locks) {
	for (auto &constraint : table.entry->GetConstraints()) {
		if (constraint->type == duckdb::ConstraintType::FOREIGN_KEY) {
			ObjectName related = name;
			related.name = constraint->Cast<duckdb::ForeignKeyConstraint>().info.table.GetIdentifierName();
			node::AddLock(locks, {related.Key(), LockKind::WholeTable, {}});
		}
	}
}

void HashRows(duckdb::DataChunk &rows, const KeyColumns &columns, uint64_t salt, std::vector<uint64_t> &out) {
	duckdb::vector<duckdb::LogicalType> types;
	for (auto column : columns) {
		types.push_back(rows.data[column].GetType());
	}
	duckdb::DataChunk keys;
	keys.InitializeEmpty(types);
	for (size_t i = 0; i < columns.size(); i++) {
		keys.data[i].Reference(rows.data[columns[i]]);
	}
	keys.SetChildCardinality(rows.size());
	RowImages images(keys, types.size());
	std::string image;
	for (duckdb::idx_t row = 0; row < rows.size(); row++) {
		image.clear();
		ByteWriter(image).PutU64(salt);
		images.Append(row, image);
		out.push_back(HashBytes(image).low);
	}
}

//! Locks for rows of one effect, as they were and as they become.
class RowLocks {
public:
	RowLocks(const ApplyTable &table, const UniqueKeys &unique_p) : unique(unique_p) {
		for (uint32_t i = 0; i < table.types.size(); i++) {
			all_columns.push_back(i);
		}
	}

	//! All unique keys; without one the whole row. New rows too: whether an equal one is there decides what a delete of
	//! it finds.
	void Add(duckdb::DataChunk &rows) {
		if (unique.keys.empty()) {
			HashRows(rows, all_columns, 0, hashes);
		}
		for (size_t i = 0; i < unique.keys.size(); i++) {
			HashRows(rows, unique.keys[i], i + 1, hashes);
		}
	}

	std::vector<uint64_t> hashes;

private:
	const UniqueKeys &unique;
	KeyColumns all_columns;
};

void AddUpdated(const Effect &effect, size_t batch, ApplyTable &table, duckdb::DataChunk &old_rows, RowLocks &out) {
	duckdb::vector<duckdb::LogicalType> types;
	for (auto column : effect.columns) {
		if (column >= table.types.size()) {
			throw duckdb::SerializationException("log entry updates a column that its table does not have");
		}
		types.push_back(table.types[column]);
	}
	duckdb::DataChunk values;
	DecodeChunk(effect.batches[batch].new_rows, types, values);
	duckdb::DataChunk rows;
	rows.InitializeEmpty(table.types);
	rows.Reference(old_rows);
	for (size_t i = 0; i < effect.columns.size(); i++) {
		rows.data[effect.columns[i]].Reference(values.data[i]);
	}
	out.Add(rows);
}

void AddRowLocks(ApplySession &session, const Effect &effect, node::LockSet &locks) {
	auto &table = session.Table(effect.object);
	auto key = effect.object.Key();
	auto unique = UniqueKeysOf(table);
	if (!table.foreign_keys.empty() || unique.has_other) {
		node::AddLock(locks, {key, LockKind::WholeTable, {}});
		LockRelated(effect.object, table, locks);
		return;
	}
	RowLocks rows(table, unique);
	for (size_t i = 0; i < effect.batches.size(); i++) {
		if (rows.hashes.size() > ROW_LOCKS_MAX) {
			node::AddLock(locks, {key, LockKind::WholeTable, {}});
			return;
		}
		duckdb::DataChunk chunk;
		if (effect.kind == EffectKind::InsertRows) {
			DecodeChunk(effect.batches[i].new_rows, table.types, chunk);
			rows.Add(chunk);
			continue;
		}
		DecodeChunk(effect.batches[i].old_rows, table.types, chunk);
		rows.Add(chunk);
		if (effect.kind == EffectKind::UpdateRows) {
			AddUpdated(effect, i, table, chunk, rows);
		}
	}
	node::AddLock(locks, {key, LockKind::Rows, std::move(rows.hashes)});
}

} // namespace

void AddTableLocksOf(const std::vector<Effect> &effects, node::LockSet &locks) {
	node::AddLock(locks, {GROUP_LOCK, LockKind::Rows, {}});
	for (auto &effect : effects) {
		switch (effect.kind) {
		case EffectKind::InsertRows:
		case EffectKind::DeleteRows:
		case EffectKind::UpdateRows:
			node::AddLock(locks, {effect.object.Key(), LockKind::Rows, {}});
			break;
		case EffectKind::ReadTable:
			node::AddLock(locks, {effect.object.Key(), LockKind::SharedTable, {}});
			break;
		default:
			break;
		}
	}
}

void AddRowLocksOf(ApplySession &session, const std::vector<Effect> &effects, node::LockSet &locks) {
	for (auto &effect : effects) {
		if (effect.kind == EffectKind::InsertRows || effect.kind == EffectKind::DeleteRows ||
		    effect.kind == EffectKind::UpdateRows) {
			AddRowLocks(session, effect, locks);
		}
	}
}

} // namespace catalog
} // namespace quack
