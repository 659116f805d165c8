#include "quack/sql/row_table.hpp"

namespace quack {
namespace sql {

void ScanRowTable(duckdb::ClientContext &, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
	auto &state = input.global_state->Cast<RowTableState>();
	duckdb::idx_t count = 0;
	while (count < STANDARD_VECTOR_SIZE && state.next < state.rows.size()) {
		auto &row = state.rows[state.next++];
		for (size_t column = 0; column < row.size(); column++) {
			output.data[column].SetValue(count, row[column]);
		}
		count++;
	}
	output.SetChildCardinality(count);
}

} // namespace sql
} // namespace quack
