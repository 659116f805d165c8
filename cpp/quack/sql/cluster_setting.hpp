//! Settings of the whole cluster as SQL functions: SELECT <function>(value[, catalog]) puts the value into the log and
//! returns it when it is applied. Works on a node and on an attached cluster.
#pragma once

#include <functional>
#include <string>

#include "duckdb/main/extension/extension_loader.hpp"
#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace sql {

struct ClusterSetting {
	std::string function;
	//! Types that the value may have, one overload each.
	duckdb::vector<duckdb::LogicalType> types;
	//! For messages: "true or false".
	std::string expected;
	//! On the node; never called with NULL. `deadline` is absolute.
	std::function<Status(catalog::ReplicatedDatabase &, const duckdb::Value &, MonotonicNs deadline)> set;
};

//! Throws when `catalog` is attached READ_ONLY (InvalidInputException) or the transaction is (TransactionException):
//! a change of the cluster is no write of a table, but who asked for a session that changes nothing means it too.
//! `function` is for the message.
void RefuseReadOnly(duckdb::ClientContext &context, const std::string &function, const std::string &catalog);

void RegisterClusterSetting(duckdb::ExtensionLoader &loader, const ClusterSetting &setting);

} // namespace sql
} // namespace quack
