//! Makes DuckDB catalog entries from rows of the schema query. All throw when the text of the object cannot be read.
#pragma once

#include "quack/sql/remote_snapshot.hpp"

namespace quack {
namespace sql {

//! Scalar function without arguments that stands for a default which only the server may evaluate.
constexpr const char *SERVER_DEFAULT_FUNCTION = "__quack_server_default";

//! Tables and views, as the binder uses them.
duckdb::unique_ptr<RemoteTableEntry> MakeTableEntry(duckdb::ClientContext &context, duckdb::SchemaCatalogEntry &schema,
                                                    const RemoteObject &object);
//! Views, as duckdb_views() and information_schema list them.
duckdb::unique_ptr<duckdb::CatalogEntry> MakeViewEntry(duckdb::ClientContext &context,
                                                       duckdb::SchemaCatalogEntry &schema, const RemoteObject &object);
//! Indexes, sequences, types, macros.
duckdb::unique_ptr<duckdb::CatalogEntry> MakeOtherEntry(duckdb::ClientContext &context,
                                                        duckdb::SchemaCatalogEntry &schema, const RemoteObject &object);

//! Whether a scalar macro means the same here: no subqueries, only functions that every DuckDB has.
bool IsSelfContainedMacro(duckdb::ClientContext &context, duckdb::CatalogEntry &entry);
//! Whether DuckDB itself has a function or type of this name.
bool IsBuiltin(duckdb::ClientContext &context, duckdb::CatalogType type, const std::string &name);
//! query(sql): free SQL on the node.
duckdb::unique_ptr<duckdb::CatalogEntry> MakeQueryMacro(duckdb::ClientContext &context,
                                                        duckdb::SchemaCatalogEntry &schema);

} // namespace sql
} // namespace quack
