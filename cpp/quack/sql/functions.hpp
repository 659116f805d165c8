//! What quack_extension.cpp registers, one function per family.
#pragma once

#include "duckdb/main/extension/extension_loader.hpp"

namespace quack {
namespace sql {

//! CALL quack_node_start(json), quack_node_stop(), quack_checkpoint(), quack_restore_catalog(path, cluster_id),
//! quack_backup_open([catalog]), quack_backup_read(image, offset, size[, catalog]), quack_backup_close(image[,
//! catalog]), quack_transfer_leadership([node_id[, catalog]]), quack_member_add, _promote, _demote, _remove,
//! _replace(node_id[, catalog]); each of the latter also as ..._outcome, which answers code and message instead of
//! failing.
void RegisterNodeFunctions(duckdb::ExtensionLoader &loader);

//! quack_raft_status([catalog]), quack_state_hash([catalog]), quack_peers([catalog]), quack_members([catalog]),
//! quack_snapshot_transfers([catalog]), quack_connection_refusals([catalog]), quack_sessions([catalog]),
//! quack_node_statistics([catalog]), quack_changes_position([catalog]), quack_changes_status([catalog]),
//! quack_transaction_outcome(token).
void RegisterStatusFunctions(duckdb::ExtensionLoader &loader);

//! quack_log_records(dir), quack_log_summary(dir), quack_log_groups(dir), quack_catalog_file(path): what lies in the
//! files of a node, for the offline tools. They change nothing; clients of a node cannot call them.
void RegisterOfflineFunctions(duckdb::ExtensionLoader &loader);

//! Settings quack_authentication_function and quack_authorization_function (names and meaning of the official server).
void RegisterServerSettings(duckdb::ExtensionLoader &loader);

} // namespace sql
} // namespace quack
