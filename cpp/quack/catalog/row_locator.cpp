#include "quack/catalog/row_locator.hpp"

#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/common/constants.hpp"
#include "duckdb/execution/index/art/art_key.hpp"
#include "duckdb/parser/constraints/unique_constraint.hpp"
#include "duckdb/storage/arena_allocator.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/data_table_info.hpp"
#include "duckdb/storage/table/index_entry.hpp"
#include "duckdb/storage/table/scan_state.hpp"
#include "duckdb/storage/table/table_index_list.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "quack/catalog/private_access.hpp"
#include "quack/catalog/row_image.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr int64_t NOT_LOCATED = -1;
//! Of a row in a message.
constexpr duckdb::idx_t SHOWN_COLUMNS = 4;
constexpr size_t SHOWN_BYTES = 40;

duckdb::vector<duckdb::StorageIndex> ColumnsAndRowId(const ApplyTable &table) {
	duckdb::vector<duckdb::StorageIndex> columns;
	for (duckdb::idx_t i = 0; i < table.types.size(); i++) {
		columns.emplace_back(i);
	}
	columns.emplace_back(duckdb::COLUMN_IDENTIFIER_ROW_ID);
	return columns;
}

duckdb::vector<duckdb::LogicalType> TypesAndRowId(const ApplyTable &table) {
	auto types = table.types;
	types.push_back(duckdb::LogicalType::ROW_TYPE);
	return types;
}

//! A unique index whose key is plain columns.
duckdb::shared_ptr<duckdb::IndexEntry> FindUniqueIndex(const ApplyTable &table) {
	for (auto entry : table.storage->GetDataTableInfo()->GetIndexes().IndexEntries()) {
		if (entry->GetBindState() == duckdb::IndexBindState::BOUND && entry->IsUnique() &&
		    entry->GetIndexType() == duckdb::ART::TYPE_NAME) {
			auto art = entry->GetReadHandle<duckdb::ART>();
			bool plain = art->GetConstraintType() == duckdb::IndexConstraintType::PRIMARY ||
			             art->GetConstraintType() == duckdb::IndexConstraintType::UNIQUE;
			bool columns_only = plain && art->unbound_expressions.size() == art->GetColumnIds().size();
			for (size_t i = 0; columns_only && i < art->unbound_expressions.size(); i++) {
				auto &expression = *art->unbound_expressions[i];
				columns_only = expression.GetExpressionType() == duckdb::ExpressionType::BOUND_COLUMN_REF &&
				               expression.GetReturnType() == table.types[art->GetColumnIds()[i]];
			}
			if (columns_only) {
				return entry;
			}
		}
	}
	return nullptr;
}

//! Physical columns; empty when there is no primary key.
std::vector<duckdb::idx_t> PrimaryKeyColumns(const duckdb::DuckTableEntry &entry) {
	std::vector<duckdb::idx_t> physical;
	auto constraint = entry.GetPrimaryKey();
	if (constraint) {
		for (auto &column : constraint->Cast<duckdb::UniqueConstraint>().GetLogicalIndexes(entry.GetColumns())) {
			physical.push_back(entry.GetColumns().LogicalToPhysical(column).index);
		}
	}
	return physical;
}

//! A value for a message, cut to its bounds.
std::string ShortValue(const duckdb::DataChunk &rows, duckdb::idx_t column, size_t row) {
	auto text = rows.GetValue(column, row).ToString();
	if (text.size() <= SHOWN_BYTES) {
		return text;
	}
	auto end = SHOWN_BYTES;
	while (end > 0 && (uint8_t(text[end]) & 0xC0) == 0x80) {
		end--; // not inside a character
	}
	return text.substr(0, end) + "...";
}

std::string DescribeKey(const duckdb::DataChunk &rows, size_t row, const duckdb::DuckTableEntry &entry,
                        const std::vector<duckdb::idx_t> &columns) {
	std::string names;
	std::string values;
	for (auto column : columns) {
		auto &definition = entry.GetColumn(entry.GetColumns().PhysicalToLogical(duckdb::PhysicalIndex(column)));
		names += (names.empty() ? "" : ", ") + definition.GetName().GetIdentifierName();
		values += (values.empty() ? "" : ", ") + ShortValue(rows, column, row);
	}
	return "key (" + names + ") = (" + values + ")";
}

std::string DescribeRow(const duckdb::DataChunk &rows, size_t row) {
	std::string values;
	for (duckdb::idx_t column = 0; column < rows.ColumnCount(); column++) {
		if (column == SHOWN_COLUMNS) {
			values += ", ...";
			break;
		}
		values += (values.empty() ? "" : ", ") + ShortValue(rows, column, row);
	}
	return "values (" + values + ")";
}

} // namespace

std::vector<int64_t> RowLocator::Locate(duckdb::DataChunk &old_rows, const std::vector<int64_t> &hints) {
	auto count = old_rows.size();
	images.assign(count, std::string());
	located.assign(count, NOT_LOCATED);
	missing = count;
	RowImages old_images(old_rows, table.types.size());
	for (size_t i = 0; i < count; i++) {
		old_images.Append(i, images[i]);
	}
	TryHints(hints);
	if (missing > 0) {
		TryUniqueIndex(old_rows);
	}
	if (missing > 0) {
		TryScan();
	}
	if (missing > 0) {
		throw Rejected {MissingRow(old_rows)};
	}
	return located;
}

//! The first one that is gone; alike on all nodes.
Status RowLocator::MissingRow(duckdb::DataChunk &old_rows) const {
	size_t row = 0;
	while (located[row] != NOT_LOCATED) {
		row++;
	}
	auto key = PrimaryKeyColumns(*table.entry);
	auto text = "row of table \"" + name.ToString() + "\" with " +
	            (key.empty() ? DescribeRow(old_rows, row) : DescribeKey(old_rows, row, *table.entry, key)) +
	            " was changed or deleted by an earlier transaction";
	if (missing > 1) {
		text += ", and " + std::to_string(missing - 1) + " more";
	}
	return Status(ErrorCode::Conflict, text + "; retry");
}

bool RowLocator::Take(size_t wanted, int64_t row_id) {
	if (located[wanted] != NOT_LOCATED || !used.insert(row_id).second) {
		return false;
	}
	located[wanted] = row_id;
	missing--;
	return true;
}

//! row_ids[i] is a candidate for old row wanted_by[i].
void RowLocator::TryRowIds(const std::vector<int64_t> &row_ids, const std::vector<size_t> &wanted_by) {
	duckdb::TransactionData view(duckdb::DuckTransaction::Get(session.Context(), session.Database()));
	for (size_t start = 0; start < row_ids.size(); start += STANDARD_VECTOR_SIZE) {
		auto count = std::min<size_t>(STANDARD_VECTOR_SIZE, row_ids.size() - start);
		std::unordered_map<int64_t, std::vector<size_t>> wanted;
		for (size_t i = 0; i < count; i++) {
			wanted[row_ids[start + i]].push_back(wanted_by[start + i]);
		}
		auto &rows = reader.Read(view, row_ids.data() + start, count);
		if (rows.size() == 0) {
			continue;
		}
		RowImages found(rows, rows.ColumnCount());
		auto *found_ids = reader.FoundIds();
		std::string image;
		for (size_t i = 0; i < rows.size(); i++) {
			image.clear();
			found.Append(i, image);
			for (auto candidate : wanted[found_ids[i]]) {
				if (images[candidate] == image && Take(candidate, found_ids[i])) {
					break;
				}
			}
		}
	}
}

void RowLocator::TryHints(const std::vector<int64_t> &hints) {
	std::vector<int64_t> row_ids;
	std::vector<size_t> wanted_by;
	auto end = int64_t(table.storage->GetNextRowId());
	for (size_t i = 0; i < std::min(hints.size(), located.size()); i++) {
		if (hints[i] >= 0 && hints[i] < end) {
			row_ids.push_back(hints[i]);
			wanted_by.push_back(i);
		}
	}
	TryRowIds(row_ids, wanted_by);
}

void RowLocator::TryUniqueIndex(duckdb::DataChunk &old_rows) {
	auto entry = FindUniqueIndex(table);
	if (!entry) {
		return;
	}
	std::vector<int64_t> row_ids;
	std::vector<size_t> wanted_by;
	{
		auto art = entry->GetReadHandle<duckdb::ART>();
		duckdb::vector<duckdb::LogicalType> key_types;
		for (auto column : art->GetColumnIds()) {
			key_types.push_back(table.types[column]);
		}
		duckdb::DataChunk keys_chunk;
		keys_chunk.InitializeEmpty(key_types);
		for (duckdb::idx_t i = 0; i < key_types.size(); i++) {
			keys_chunk.data[i].Reference(old_rows.data[art->GetColumnIds()[i]]);
		}
		keys_chunk.SetChildCardinality(old_rows.size());
		duckdb::ArenaAllocator arena(duckdb::Allocator::DefaultAllocator());
		duckdb::unsafe_vector<duckdb::ARTKey> keys(old_rows.size());
		art->GenerateKeys<>(arena, keys_chunk, keys);
		for (size_t i = 0; i < located.size(); i++) {
			if (located[i] != NOT_LOCATED || keys[i].Empty()) {
				continue; // found already, or NULL in the key: not in the index
			}
			std::set<duckdb::row_t> found;
			SearchIndex(*art.operator->(), keys[i], 16, found);
			for (auto row_id : found) {
				row_ids.push_back(row_id);
				wanted_by.push_back(i);
			}
		}
	}
	TryRowIds(row_ids, wanted_by);
}

void RowLocator::TryScan() {
	std::unordered_map<std::string, std::vector<size_t>> wanted;
	for (size_t i = 0; i < located.size(); i++) {
		if (located[i] == NOT_LOCATED) {
			wanted[images[i]].push_back(i);
		}
	}
	auto &transaction = duckdb::DuckTransaction::Get(session.Context(), session.Database());
	duckdb::TableScanState state;
	table.storage->InitializeScan(session.Context(), transaction, state, ColumnsAndRowId(table));
	duckdb::DataChunk chunk;
	chunk.Initialize(duckdb::Allocator::DefaultAllocator(), TypesAndRowId(table));
	std::string image;
	while (missing > 0) {
		chunk.Reset();
		table.storage->Scan(transaction, chunk, state);
		if (chunk.size() == 0) {
			return;
		}
		RowImages found(chunk, table.types.size());
		auto *row_ids = duckdb::FlatVector::GetData<duckdb::row_t>(chunk.data.back());
		for (size_t i = 0; i < chunk.size(); i++) {
			image.clear();
			found.Append(i, image);
			auto match = wanted.find(image);
			if (match != wanted.end() && !match->second.empty() && Take(match->second.back(), row_ids[i])) {
				match->second.pop_back();
			}
		}
	}
}

} // namespace catalog
} // namespace quack
