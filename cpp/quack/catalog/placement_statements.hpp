//! ALTER TABLE [IF EXISTS] [catalog.][schema.]table SET GROUPS n | SET GROUP 'g' | SET GROUP DEFAULT: statements that
//! DuckDB's grammar does not know.
#pragma once

#include <functional>

#include "duckdb.hpp"
#include "duckdb/parser/parser_extension.hpp"
#include "duckdb/parser/qualified_name.hpp"
#include "quack/catalog/placement_request.hpp"

namespace quack {
namespace catalog {

struct PlacementStatement {
	//! As written: one to three or more parts, unquoted.
	std::vector<std::string> name;
	bool if_exists = false;
	PlacementRequest request;

	//! SQL text that parses to the same statement, for the table of this name (parts are quoted).
	std::string ToSql(const std::vector<std::string> &table) const;
};

//! A catalog that is not this node's own: runs the statement and answers true; false when it is none that it knows.
using RemotePlacement = std::function<bool(duckdb::ClientContext &, const std::string &catalog,
                                           const PlacementStatement &, const std::vector<std::string> &table)>;

//! Registers the statements; once per DuckDB instance, when the extension loads.
void RegisterPlacementStatements(duckdb::DBConfig &config, RemotePlacement remote);

} // namespace catalog
} // namespace quack
