//! Client side of a cluster, seen from the rest of the extension: `ATTACH 'quack:host:port' AS cp (TYPE quack, …)`.
//! Contract of remote_*.cpp; the classes behind it are private to those files.
#pragma once

#include <string>

#include "duckdb/common/types/column/column_data_collection.hpp"
#include "duckdb/main/extension/extension_loader.hpp"

namespace quack {
namespace sql {

//! Registers the storage type `quack`, the secret type `quack`, the table function quack_query_by_name(catalog, sql)
//! and the setting quack_request_timeout_ms. Call once while the extension loads.
void RegisterRemote(duckdb::ExtensionLoader &loader);

//! Whether `catalog` names a database attached through the storage type `quack`. False for unknown names.
bool IsRemoteCatalog(duckdb::ClientContext &context, const std::string &catalog);

//! The only database attached through the storage type `quack`; empty when there is none. BinderException when there
//! are several: `function` needs to be told which.
std::string OnlyRemoteCatalog(duckdb::ClientContext &context, const std::string &function);

//! A complete remote result, in memory. `rows` is never null; its columns are `types`.
struct RemoteRows {
	duckdb::vector<std::string> names;
	duckdb::vector<duckdb::LogicalType> types;
	duckdb::unique_ptr<duckdb::ColumnDataCollection> rows;
};

//! Runs `sql` on a node of the attached cluster in the session's current remote transaction (autocommit when there is
//! none) and reads the whole result; for small results such as status functions. False, with `result` untouched, when
//! `catalog` is not a remote attachment. Throws DuckDB exceptions on remote errors, deadline and interrupt.
bool RunOnRemote(duckdb::ClientContext &context, const std::string &catalog, const std::string &sql,
                 RemoteRows &result);

//! Same, but binds only: names and types are filled, `rows` is empty. For the bind phase of a table function.
bool DescribeOnRemote(duckdb::ClientContext &context, const std::string &catalog, const std::string &sql,
                      RemoteRows &result);

} // namespace sql
} // namespace quack
