//! Filters of a remote table scan as SQL text for the node.
#pragma once

#include <string>

#include "duckdb.hpp"
#include "duckdb/planner/operator/logical_get.hpp"

#include "quack/sql/remote_snapshot.hpp"

namespace quack {
namespace sql {

//! The conjunction of those filters that mean exactly the same on the node; "" when there is none. The filters stay in
//! the plan: what the node applies only saves traffic.
std::string RemoteFilterText(duckdb::LogicalGet &get, RemoteTableEntry &table,
                             const duckdb::vector<duckdb::unique_ptr<duckdb::Expression>> &filters);

} // namespace sql
} // namespace quack
