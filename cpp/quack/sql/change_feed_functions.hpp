//! The change feed on a node and on attached clusters: catalog/change_functions.hpp, and its setting.
#pragma once

#include "duckdb/main/extension/extension_loader.hpp"

namespace quack {
namespace sql {

//! quack_changes, quack_changes_end, and quack_changes_set_retention(BIGINT bytes | VARCHAR '512MB'[, catalog]).
void RegisterChangeFeed(duckdb::ExtensionLoader &loader);

} // namespace sql
} // namespace quack
