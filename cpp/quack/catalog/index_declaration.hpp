//! CREATE INDEX and ADD PRIMARY KEY / UNIQUE inside a local transaction: only the catalog entry is made. DuckDB hangs
//! the index itself into a list that all transactions share at once, before commit: a speculative index would make the
//! applier enforce a uniqueness that is not committed, and it misses rows that are applied while it is built. The index
//! is built, and its uniqueness checked, where the entry is applied.
#pragma once

#include "duckdb.hpp"
#include "duckdb/planner/logical_operator.hpp"

namespace quack {
namespace catalog {

//! Takes the plan of DuckCatalog::BindCreateIndex or BindAlterAddIndex.
duckdb::unique_ptr<duckdb::LogicalOperator> DeclareOnly(duckdb::unique_ptr<duckdb::LogicalOperator> create_index);

} // namespace catalog
} // namespace quack
