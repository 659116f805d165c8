//! What users see and set of groups: the rows of status functions, and the switch of the SQL that places tables.
#pragma once

#include <vector>

#include "duckdb/main/extension/extension_loader.hpp"
#include "quack/sql/node_runtime.hpp"

namespace quack {
namespace sql {

using GroupRows = std::vector<duckdb::vector<duckdb::Value>>;

//! table_schema, table_name, shard_key, slots, group, epoch, leader; one row per group of each table.
GroupRows TableGroupRows(NodeRuntime &runtime);
//! group, members, leader, term, commit_index, applied_index, queue_count, queue_bytes, last_error; the last four of
//! this node. Asks the other members what they have applied, and waits a second for them at most.
GroupRows GroupStatusRows(NodeRuntime &runtime);
//! Of the column `members`.
duckdb::LogicalType GroupMemberType();
//! feature, enabled, since_entry_format, lacking_nodes.
GroupRows MultiraftContractRows(NodeRuntime &runtime);

//! quack_multiraft_sql_set_enabled(BOOLEAN[, catalog]); quack_slot(key, ...), the slot of a row by the columns of its
//! shard key as the table has them (the type counts: 7 and 7::BIGINT have different slots); and
//! ALTER TABLE ... SET GROUP(S) for this node's catalog and for attached ones.
void RegisterGroupFunctions(duckdb::ExtensionLoader &loader);

} // namespace sql
} // namespace quack
