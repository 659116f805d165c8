//! The change feed in SQL (DESIGN.md, "Change feed"):
//!
//!   quack_changes([catalog,] table, from, to)
//!   quack_changes_end([catalog,] table, from, rows, bytes)   where a part of the feed of about this size ends
#pragma once

#include <functional>

#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/parser/tableref.hpp"

namespace quack {
namespace catalog {

//! `SELECT * FROM <function>(<arguments>)` on a node of a cluster that is attached as `catalog`, an empty name = the
//! only one that is attached. Null when there is no such cluster.
using RemoteChanges =
    std::function<duckdb::unique_ptr<duckdb::TableRef>(duckdb::ClientContext &, const std::string &catalog,
	                                                   const std::string &function, const std::string &arguments)>;

//! Once per DuckDB instance, when the extension loads. `remote` may be empty.
void RegisterChangeFunctions(duckdb::ExtensionLoader &loader, RemoteChanges remote);

} // namespace catalog
} // namespace quack
