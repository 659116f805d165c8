//! Table functions whose rows are computed before the first is asked for.
#pragma once

#include <utility>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/function/table_function.hpp"

namespace quack {
namespace sql {

using Row = duckdb::vector<duckdb::Value>;
using Rows = std::vector<Row>;
//! Names and types.
using Columns = std::vector<std::pair<std::string, duckdb::LogicalType>>;

struct RowTableState final : public duckdb::GlobalTableFunctionState {
	Rows rows;
	size_t next = 0;
};

//! Of a function whose init_global makes a RowTableState.
void ScanRowTable(duckdb::ClientContext &context, duckdb::TableFunctionInput &input, duckdb::DataChunk &output);

} // namespace sql
} // namespace quack
