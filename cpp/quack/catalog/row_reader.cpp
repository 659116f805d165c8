#include "quack/catalog/row_reader.hpp"

#include "duckdb/common/constants.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/row_group_segment_tree.hpp"
#include "duckdb/storage/table/scan_state.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::idx_t;

//! Rows that lie at most so far apart are worth a scan of what is between them, when they are at least so many.
constexpr int64_t SCAN_GAP_MAX = 64;
constexpr idx_t SCAN_ROWS_MIN = 16;

//! The end of the run of close, ascending ids that begins at `begin`.
idx_t EndOfRun(const int64_t *row_ids, idx_t begin, idx_t count) {
	auto end = begin + 1;
	while (end < count && row_ids[end] > row_ids[end - 1] && row_ids[end] - row_ids[end - 1] <= SCAN_GAP_MAX) {
		end++;
	}
	return end;
}

} // namespace

RowReader::RowReader(duckdb::DataTable &table, const std::vector<uint32_t> &columns)
    : collection(table.GetRowGroupCollection()) {
	auto all_types = table.GetTypes();
	duckdb::vector<duckdb::LogicalType> types;
	for (auto column : columns) {
		column_ids.emplace_back(column);
		types.push_back(all_types[column]);
	}
	result.InitializeEmpty(types);
	column_ids.emplace_back(duckdb::COLUMN_IDENTIFIER_ROW_ID);
	types.push_back(duckdb::LogicalType::ROW_TYPE);
	found.Initialize(duckdb::Allocator::DefaultAllocator(), types);
}

//! Empty.
duckdb::DataChunk &RowReader::Scratch() {
	if (scratch.ColumnCount() == 0) {
		scratch.Initialize(duckdb::Allocator::DefaultAllocator(), found.GetTypes());
	}
	scratch.Reset();
	return scratch;
}

duckdb::DataChunk &RowReader::Read(duckdb::TransactionData view, const int64_t *row_ids, idx_t count) {
	found.Reset();
	idx_t sparse = 0; // rows before `begin` that are not read yet begin here
	for (idx_t begin = 0; begin < count;) {
		auto end = EndOfRun(row_ids, begin, count);
		if (end - begin >= SCAN_ROWS_MIN) {
			Fetch(view, row_ids + sparse, begin - sparse);
			Scan(view, row_ids + begin, end - begin);
			sparse = end;
		}
		begin = end;
	}
	Fetch(view, row_ids + sparse, count - sparse);
	for (idx_t i = 0; i < result.ColumnCount(); i++) {
		result.data[i].Reference(found.data[i]);
	}
	result.SetChildCardinality(found.size());
	return result;
}

void RowReader::Fetch(duckdb::TransactionData view, const int64_t *row_ids, idx_t count) {
	if (count == 0) {
		return;
	}
	duckdb::Vector ids(duckdb::LogicalType::ROW_TYPE, count);
	for (idx_t i = 0; i < count; i++) {
		duckdb::FlatVector::GetDataMutable<duckdb::row_t>(ids)[i] = row_ids[i];
	}
	duckdb::FlatVector::SetSize(ids, duckdb::count_t(count));
	duckdb::ColumnFetchState state;
	// It fills a chunk from its first row on.
	auto is_first = found.size() == 0;
	auto &rows = is_first ? found : Scratch();
	collection->Fetch(view, rows, column_ids, ids, count, state);
	if (!is_first) {
		found.Append(rows);
	}
}

void RowReader::Scan(duckdb::TransactionData view, const int64_t *row_ids, idx_t count) {
	duckdb::TableScanState state;
	state.Initialize(column_ids);
	{
		auto row_groups = collection->GetRowGroups();
		auto lock = row_groups->Lock();
		idx_t segment;
		if (!row_groups->TryGetSegmentIndex(lock, idx_t(row_ids[0]), segment)) {
			// Nothing begins here; what follows may exist.
			lock.Release();
			Fetch(view, row_ids, count);
			return;
		}
	}
	collection->InitializeScanWithOffset(duckdb::QueryContext(), state.table_state, column_ids, idx_t(row_ids[0]),
	                                     idx_t(row_ids[count - 1] + 1));
	for (idx_t next = 0; next < count;) {
		auto &rows = Scratch();
		if (!state.table_state.Scan(duckdb::ScanOptions(view), rows)) {
			return;
		}
		rows.data.back().Flatten();
		auto *ids = duckdb::FlatVector::GetData<duckdb::row_t>(rows.data.back());
		duckdb::SelectionVector wanted(rows.size());
		idx_t taken = 0;
		for (idx_t i = 0; i < rows.size() && next < count; i++) {
			while (next < count && row_ids[next] < ids[i]) {
				next++; // not there
			}
			if (next < count && row_ids[next] == ids[i]) {
				wanted.set_index(taken++, i);
				next++;
			}
		}
		if (taken > 0) {
			found.Append(rows, wanted, taken);
		}
	}
}

std::vector<uint32_t> AllColumns(const duckdb::DataTable &table) {
	std::vector<uint32_t> columns;
	for (idx_t i = 0; i < table.ColumnCount(); i++) {
		columns.push_back(uint32_t(i));
	}
	return columns;
}

} // namespace catalog
} // namespace quack
