//! What kind of statement something is, and walks over parsed statements that DuckDB's own iterator does not finish.
#pragma once

#include <functional>

#include "duckdb.hpp"
#include "duckdb/parser/parsed_expression.hpp"
#include "duckdb/parser/query_node.hpp"
#include "duckdb/parser/sql_statement.hpp"

#include "quack/sql/remote_scan.hpp"

namespace quack {
namespace sql {

using ExpressionCallback = std::function<void(duckdb::unique_ptr<duckdb::ParsedExpression> &)>;

//! Direct children, and every expression inside a subquery's own statement.
void VisitChildren(duckdb::ParsedExpression &expression, const ExpressionCallback &callback);
//! Every top expression of a query: CTEs, modifiers, table functions, sources of DML included.
void VisitExpressions(duckdb::QueryNode &node, const ExpressionCallback &callback);

//! Kind and modification of a query node; names its parameters; `catalog` is stripped from sequence names in text form.
void ClassifyNode(duckdb::QueryNode &node, const std::string &catalog, RemotePushInfo &info);
//! Kind and modification of a CREATE, DROP or ALTER.
void ClassifyStatement(const duckdb::SQLStatement &statement, RemotePushInfo &info);
//! Kind and modification of free SQL text; unknown grammar is left to the node. Refuses several statements, transaction
//! control and session settings, which must not leak into pooled sessions.
void ClassifyText(duckdb::ClientContext &context, RemotePushInfo &info);

//! Whether the session's current query only plans (EXPLAIN, PREPARE, DESCRIBE, CREATE VIEW …).
bool OnlyPlans(duckdb::ClientContext &context);

//! Names and types of a statement without running it.
std::unique_ptr<RemoteStream> DescribeStatement(duckdb::ClientContext &context, RemoteCatalog &catalog,
                                                RemoteStatement statement);

} // namespace sql
} // namespace quack
