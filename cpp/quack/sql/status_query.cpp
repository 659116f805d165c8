#include "quack/sql/status_query.hpp"

#include <set>

#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/query_node/select_node.hpp"
#include "duckdb/parser/statement/select_statement.hpp"
#include "duckdb/parser/tableref/table_function_ref.hpp"

namespace quack {
namespace sql {

namespace {

bool IsStatusFunction(const duckdb::TableRef *table) {
	static const std::set<std::string> NAMES =
	    {"quack_raft_status", "quack_peers",    "quack_connection_refusals", "quack_sessions", "quack_node_statistics",
		 "quack_members",     "quack_checksums"};
	if (table == nullptr || table->type != duckdb::TableReferenceType::TABLE_FUNCTION) {
		return false;
	}
	auto &reference = table->Cast<duckdb::TableFunctionRef>();
	if (reference.subquery || !reference.function ||
	    reference.function->GetExpressionClass() != duckdb::ExpressionClass::FUNCTION) {
		return false;
	}
	auto &name = reference.function->Cast<duckdb::FunctionExpression>().FunctionName();
	return NAMES.count(duckdb::StringUtil::Lower(name.GetIdentifierName())) != 0;
}

bool IsPlainColumn(const duckdb::ParsedExpression &expression) {
	auto kind = expression.GetExpressionClass();
	return kind == duckdb::ExpressionClass::STAR || kind == duckdb::ExpressionClass::COLUMN_REF;
}

} // namespace

bool IsStatusQuery(const duckdb::SQLStatement &statement) {
	if (statement.type != duckdb::StatementType::SELECT_STATEMENT) {
		return false;
	}
	auto &node = statement.Cast<duckdb::SelectStatement>().node;
	if (!node || node->type != duckdb::QueryNodeType::SELECT_NODE) {
		return false;
	}
	auto &select = node->Cast<duckdb::SelectNode>();
	// Anything that could hold a subquery on a table makes it an ordinary statement.
	if (select.where_clause || select.having || select.qualify || !select.groups.group_expressions.empty() ||
	    !select.modifiers.empty() || !select.cte_map.map.empty() || !IsStatusFunction(select.from_table.get())) {
		return false;
	}
	for (auto &expression : select.select_list) {
		if (!IsPlainColumn(*expression)) {
			return false;
		}
	}
	return true;
}

} // namespace sql
} // namespace quack
