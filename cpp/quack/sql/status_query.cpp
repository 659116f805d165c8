#include "quack/sql/status_query.hpp"

#include <set>

#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/expression/subquery_expression.hpp"
#include "duckdb/parser/parsed_expression_iterator.hpp"
#include "duckdb/parser/query_node/select_node.hpp"
#include "duckdb/parser/query_node/set_operation_node.hpp"
#include "duckdb/parser/statement/select_statement.hpp"
#include "duckdb/parser/statement/set_statement.hpp"
#include "duckdb/parser/tableref/basetableref.hpp"
#include "duckdb/parser/tableref/joinref.hpp"
#include "duckdb/parser/tableref/subqueryref.hpp"
#include "duckdb/parser/tableref/table_function_ref.hpp"

namespace quack {
namespace sql {

namespace {

//! quack_reseed is what a node out of service is told, and reads nothing.
bool IsStatusFunction(const duckdb::TableRef *table) {
	static const std::set<std::string> NAMES = {"quack_raft_status",         "quack_peers",
	                                            "quack_connection_refusals", "quack_sessions",
	                                            "quack_node_statistics",     "quack_members",
	                                            "quack_checksums",           "quack_reseed_outcome",
	                                            "quack_open_transactions",   "quack_snapshot_transfers"};
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

//! Walks one SELECT and all in it.
class StatusOnly {
public:
	//! Whether nothing but status is read, and something is.
	bool Holds(duckdb::QueryNode &node) {
		Walk(node);
		for (auto &name : used) {
			holds = holds && given.count(name) != 0;
		}
		return holds && has_function;
	}

private:
	void Walk(duckdb::QueryNode &node) {
		VisitNode(node);
		if (!holds) {
			return; // the iterator knows no other nodes
		}
		duckdb::ParsedExpressionIterator::EnumerateQueryNodeChildren(
		    node, [this](duckdb::unique_ptr<duckdb::ParsedExpression> &child) { VisitExpression(*child); },
		    [this](duckdb::TableRef &table) { VisitTable(table); });
	}

	//! The iterator descends by itself and does not report nodes: one that changes tables has to be seen before.
	void VisitNode(duckdb::QueryNode &node) {
		for (auto &entry : node.cte_map.map) {
			given.insert(duckdb::StringUtil::Lower(entry.first.GetIdentifierName()));
			if (entry.second->query_node) {
				VisitNode(*entry.second->query_node);
			}
		}
		if (node.type == duckdb::QueryNodeType::SET_OPERATION_NODE) {
			for (auto &child : node.Cast<duckdb::SetOperationNode>().children) {
				VisitNode(*child);
			}
			return;
		}
		if (node.type != duckdb::QueryNodeType::SELECT_NODE) {
			holds = false;
			return;
		}
		auto &from = node.Cast<duckdb::SelectNode>().from_table;
		if (from) {
			VisitNodesOf(*from);
		}
	}

	void VisitNodesOf(duckdb::TableRef &table) {
		if (table.type == duckdb::TableReferenceType::JOIN) {
			auto &join = table.Cast<duckdb::JoinRef>();
			VisitNodesOf(*join.left);
			VisitNodesOf(*join.right);
		} else if (table.type == duckdb::TableReferenceType::SUBQUERY) {
			VisitNode(*table.Cast<duckdb::SubqueryRef>().subquery->node);
		} else if (!IsKnown(table.type)) {
			holds = false;
		}
	}

	static bool IsKnown(duckdb::TableReferenceType type) {
		switch (type) {
		case duckdb::TableReferenceType::TABLE_FUNCTION:
		case duckdb::TableReferenceType::BASE_TABLE:
		case duckdb::TableReferenceType::EXPRESSION_LIST:
		case duckdb::TableReferenceType::EMPTY_FROM:
			return true;
		default:
			return false;
		}
	}

	void VisitExpression(duckdb::ParsedExpression &expression) {
		if (expression.GetExpressionClass() == duckdb::ExpressionClass::SUBQUERY) {
			Walk(*expression.Cast<duckdb::SubqueryExpression>().Subquery()->node);
		}
		duckdb::ParsedExpressionIterator::EnumerateChildren(expression, [this](duckdb::ParsedExpression &child) {
			VisitExpression(child);
		});
	}

	void VisitTable(duckdb::TableRef &table) {
		if (table.type == duckdb::TableReferenceType::TABLE_FUNCTION) {
			holds = holds && IsStatusFunction(&table);
			has_function = true;
		} else if (table.type == duckdb::TableReferenceType::BASE_TABLE) {
			auto &name = table.Cast<duckdb::BaseTableRef>().GetQualifiedName();
			holds = holds && name.Catalog().empty() && name.Schema().empty();
			used.insert(duckdb::StringUtil::Lower(name.Name().GetIdentifierName()));
		}
	}

	bool holds = true;
	bool has_function = false;
	//! Names that some WITH of the statement gives, and those that stand for a table.
	std::set<std::string> given;
	std::set<std::string> used;
};

} // namespace

bool ReadsOnlyStatus(duckdb::SQLStatement &statement) {
	if (statement.type != duckdb::StatementType::SELECT_STATEMENT) {
		return false;
	}
	auto &node = statement.Cast<duckdb::SelectStatement>().node;
	return node && StatusOnly().Holds(*node);
}

bool SetsPlainValue(duckdb::SQLStatement &statement) {
	if (statement.type != duckdb::StatementType::SET_STATEMENT) {
		return false;
	}
	auto &set = statement.Cast<duckdb::SetStatement>();
	if (set.set_type != duckdb::SetType::SET) {
		return true;
	}
	auto &value = statement.Cast<duckdb::SetVariableStatement>().value;
	return value && (value->GetExpressionClass() == duckdb::ExpressionClass::CONSTANT ||
	                 value->GetExpressionClass() == duckdb::ExpressionClass::COLUMN_REF);
}

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
