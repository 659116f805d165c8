//! Tells statements that only ask a node about itself from those that read the catalog.
#pragma once

#include "duckdb/parser/sql_statement.hpp"

namespace quack {
namespace sql {

//! A plain SELECT of columns from one of the node's status functions and nothing else. Such a statement reads no
//! replicated table, so no consistency level may keep it waiting: it must answer when the cluster cannot.
//! Narrower than ReadsOnlyStatus on purpose: a macro in an expression could read a table, at less than was asked for.
bool IsStatusQuery(const duckdb::SQLStatement &statement);

//! A SELECT of any shape in which every table, at any depth, is one of the node's status functions, and there is one.
//! Functions are taken by name: what a macro of that name reads shows only when it is bound. `statement` is only read.
bool ReadsOnlyStatus(duckdb::SQLStatement &statement);

//! A SET or RESET whose value calls nothing and asks nothing.
bool SetsPlainValue(duckdb::SQLStatement &statement);

} // namespace sql
} // namespace quack
