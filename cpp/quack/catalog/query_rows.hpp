//! Small SQL statements of our own, run to their end.
#pragma once

#include <string>
#include <vector>

#include "duckdb.hpp"

namespace quack {
namespace catalog {

using SqlRow = std::vector<duckdb::Value>;

//! Runs one statement and returns all its rows. Throws what DuckDB reports.
std::vector<SqlRow> QueryRows(duckdb::Connection &connection, const std::string &sql);
void RunStatement(duckdb::Connection &connection, duckdb::unique_ptr<duckdb::SQLStatement> statement);

//! 'text' with quotes doubled.
std::string SqlString(const std::string &text);

} // namespace catalog
} // namespace quack
