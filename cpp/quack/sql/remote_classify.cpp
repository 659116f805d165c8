#include "quack/sql/remote_classify.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/parser/expression/constant_expression.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/expression/parameter_expression.hpp"
#include "duckdb/parser/expression/subquery_expression.hpp"
#include "duckdb/parser/parsed_data/create_info.hpp"
#include "duckdb/parser/parsed_data/create_table_info.hpp"
#include "duckdb/parser/parsed_expression_iterator.hpp"
#include "duckdb/parser/parser.hpp"
#include "duckdb/parser/query_node/delete_query_node.hpp"
#include "duckdb/parser/query_node/insert_query_node.hpp"
#include "duckdb/parser/query_node/merge_query_node.hpp"
#include "duckdb/parser/query_node/update_query_node.hpp"
#include "duckdb/parser/statement/create_statement.hpp"
#include "duckdb/parser/statement/delete_statement.hpp"
#include "duckdb/parser/statement/insert_statement.hpp"
#include "duckdb/parser/statement/merge_into_statement.hpp"
#include "duckdb/parser/statement/select_statement.hpp"
#include "duckdb/parser/statement/update_statement.hpp"

namespace quack {
namespace sql {

using duckdb::DatabaseModificationType;
using duckdb::ExpressionClass;
using duckdb::NotImplementedException;
using duckdb::ParsedExpression;
using duckdb::ParsedExpressionIterator;
using duckdb::QueryNode;
using duckdb::QueryNodeType;
using duckdb::StatementType;
using duckdb::StringUtil;

void VisitChildren(ParsedExpression &expression, const ExpressionCallback &callback) {
	if (expression.GetExpressionClass() == ExpressionClass::SUBQUERY) {
		VisitExpressions(*expression.Cast<duckdb::SubqueryExpression>().SubqueryMutable()->node, callback);
	}
	ParsedExpressionIterator::EnumerateChildren(expression, callback);
}

void VisitExpressions(QueryNode &node, const ExpressionCallback &callback) {
	ParsedExpressionIterator::EnumerateQueryNodeChildren(node, callback);
}

namespace {

//! What a walk over the expressions finds.
struct ExpressionFacts {
	bool uses_sequence = false;
	duckdb::vector<std::string> parameters;
};

} // namespace

static bool IsSequenceFunction(const std::string &name) {
	return name == "nextval" || name == "setval";
}

//! 'cp.s.seq' as text is not stripped by DuckDB; the node does not know the client's alias.
static void StripSequenceName(duckdb::FunctionExpression &function, const std::string &catalog) {
	for (auto &argument : function.GetArgumentsMutable()) {
		auto &expression = argument.GetExpressionMutable();
		if (catalog.empty() || expression->GetExpressionClass() != ExpressionClass::CONSTANT) {
			continue;
		}
		auto &constant = expression->Cast<duckdb::ConstantExpression>();
		auto text = constant.GetLiteral().ToValue().ToString();
		for (auto &prefix : {catalog + ".", "\"" + catalog + "\"."}) {
			if (StringUtil::StartsWith(StringUtil::Lower(text), StringUtil::Lower(prefix))) {
				expression = duckdb::ConstantExpression::String(text.substr(prefix.size()));
				break;
			}
		}
	}
}

static void CollectFacts(duckdb::unique_ptr<ParsedExpression> &expression, const std::string &catalog,
                         ExpressionFacts &facts) {
	if (expression->GetExpressionClass() == ExpressionClass::PARAMETER) {
		auto name = expression->Cast<duckdb::ParameterExpression>().Identifier().GetIdentifierName();
		if (std::find(facts.parameters.begin(), facts.parameters.end(), name) == facts.parameters.end()) {
			facts.parameters.push_back(name);
		}
	}
	if (expression->GetExpressionClass() == ExpressionClass::FUNCTION) {
		auto &function = expression->Cast<duckdb::FunctionExpression>();
		auto name = StringUtil::Lower(function.FunctionName().GetIdentifierName());
		if (IsSequenceFunction(name) || name == "currval" || name == "lastval") {
			facts.uses_sequence = facts.uses_sequence || IsSequenceFunction(name);
			StripSequenceName(function, catalog);
		}
	}
	VisitChildren(*expression,
	              [&](duckdb::unique_ptr<ParsedExpression> &child) { CollectFacts(child, catalog, facts); });
}

//! A CTE may hold DML (`WITH x AS (INSERT …)`).
static DatabaseModificationType ModificationOf(QueryNode &node, bool &has_effect) {
	DatabaseModificationType result;
	has_effect =
	    has_effect || (node.type != QueryNodeType::SELECT_NODE && node.type != QueryNodeType::SET_OPERATION_NODE &&
		               node.type != QueryNodeType::RECURSIVE_CTE_NODE);
	switch (node.type) {
	case QueryNodeType::INSERT_QUERY_NODE:
		result |= DatabaseModificationType::INSERT_DATA;
		if (node.Cast<duckdb::InsertQueryNode>().on_conflict_info) {
			result |= DatabaseModificationType::UPDATE_DATA;
		}
		break;
	case QueryNodeType::UPDATE_QUERY_NODE:
		result |= DatabaseModificationType::UPDATE_DATA;
		break;
	case QueryNodeType::DELETE_QUERY_NODE:
		result |= DatabaseModificationType::DELETE_DATA;
		break;
	case QueryNodeType::MERGE_QUERY_NODE:
		result |=
		    DatabaseModificationType(DatabaseModificationType::INSERT_DATA | DatabaseModificationType::UPDATE_DATA |
			                         DatabaseModificationType::DELETE_DATA);
		break;
	default:
		break;
	}
	for (auto &cte : node.cte_map.map) {
		if (cte.second->query_node) {
			result |= ModificationOf(*cte.second->query_node, has_effect);
		}
	}
	return result;
}

static bool HasReturning(QueryNode &node) {
	switch (node.type) {
	case QueryNodeType::INSERT_QUERY_NODE:
		return !node.Cast<duckdb::InsertQueryNode>().returning_list.empty();
	case QueryNodeType::UPDATE_QUERY_NODE:
		return !node.Cast<duckdb::UpdateQueryNode>().returning_list.empty();
	case QueryNodeType::DELETE_QUERY_NODE:
		return !node.Cast<duckdb::DeleteQueryNode>().returning_list.empty();
	case QueryNodeType::MERGE_QUERY_NODE:
		return !node.Cast<duckdb::MergeQueryNode>().returning_list.empty();
	default:
		return true; // a SELECT around DML in its CTEs
	}
}

void ClassifyNode(QueryNode &node, const std::string &catalog, RemotePushInfo &info) {
	ExpressionFacts facts;
	VisitExpressions(node, [&](duckdb::unique_ptr<ParsedExpression> &expression) {
		CollectFacts(expression, catalog, facts);
	});
	info.parameter_names = std::move(facts.parameters);
	info.has_effect = facts.uses_sequence;
	info.modification = ModificationOf(node, info.has_effect);
	if (facts.uses_sequence) {
		info.modification |= DatabaseModificationType::SEQUENCE;
	}
	if (!info.has_effect) {
		info.kind = RemoteKind::Rows;
	} else {
		info.kind = HasReturning(node) ? RemoteKind::EffectRows : RemoteKind::Count;
	}
}

void ClassifyStatement(const duckdb::SQLStatement &statement, RemotePushInfo &info) {
	info.kind = RemoteKind::Ddl;
	switch (statement.type) {
	case StatementType::CREATE_STATEMENT: {
		info.modification = DatabaseModificationType::CREATE_CATALOG_ENTRY;
		auto &create = *statement.Cast<duckdb::CreateStatement>().info;
		if (create.type == duckdb::CatalogType::TABLE_ENTRY && create.Cast<duckdb::CreateTableInfo>().query) {
			info.kind = RemoteKind::Count;
			info.modification |= DatabaseModificationType::INSERT_DATA;
		}
		break;
	}
	case StatementType::DROP_STATEMENT:
		info.modification = DatabaseModificationType::DROP_CATALOG_ENTRY;
		break;
	default:
		info.modification = DatabaseModificationType::ALTER_TABLE;
		break;
	}
}

static void ClassifyParsed(duckdb::SQLStatement &statement, RemotePushInfo &info) {
	switch (statement.type) {
	case StatementType::SELECT_STATEMENT:
		ClassifyNode(*statement.Cast<duckdb::SelectStatement>().node, "", info);
		break;
	case StatementType::INSERT_STATEMENT:
		ClassifyNode(*statement.Cast<duckdb::InsertStatement>().node, "", info);
		break;
	case StatementType::UPDATE_STATEMENT:
		ClassifyNode(*statement.Cast<duckdb::UpdateStatement>().node, "", info);
		break;
	case StatementType::DELETE_STATEMENT:
		ClassifyNode(*statement.Cast<duckdb::DeleteStatement>().node, "", info);
		break;
	case StatementType::MERGE_INTO_STATEMENT:
		ClassifyNode(*statement.Cast<duckdb::MergeIntoStatement>().node, "", info);
		break;
	case StatementType::CREATE_STATEMENT:
	case StatementType::DROP_STATEMENT:
	case StatementType::ALTER_STATEMENT:
		ClassifyStatement(statement, info);
		break;
	case StatementType::EXPLAIN_STATEMENT:
	case StatementType::PRAGMA_STATEMENT:
	case StatementType::CALL_STATEMENT:
		info.kind = RemoteKind::EffectRows;
		break;
	case StatementType::TRANSACTION_STATEMENT:
		throw NotImplementedException(
		    "not supported: BEGIN, COMMIT and ROLLBACK inside query(); use them as statements of "
		    "this session, the node follows");
	case StatementType::SET_STATEMENT:
	case StatementType::VARIABLE_SET_STATEMENT:
	case StatementType::ATTACH_STATEMENT:
	case StatementType::DETACH_STATEMENT:
	case StatementType::LOAD_STATEMENT:
	case StatementType::PREPARE_STATEMENT:
		throw NotImplementedException("not supported: %s inside query(): it would change a session of the node that "
		                              "others "
		                              "use next",
		                              duckdb::StatementTypeToString(statement.type));
	default:
		info.kind = RemoteKind::EffectRows;
		break;
	}
}

void ClassifyText(duckdb::ClientContext &context, RemotePushInfo &info) {
	info.kind = RemoteKind::EffectRows; // grammar only the node knows
	info.modification = DatabaseModificationType::ALTER_TABLE;
	duckdb::Parser parser(context);
	try {
		parser.ParseQuery(info.sql);
	} catch (const std::exception &) {
		return;
	}
	if (parser.statements.empty()) {
		throw duckdb::InvalidInputException("query(): the text holds no statement");
	}
	if (parser.statements.size() > 1) {
		throw NotImplementedException("not supported: %llu statements in one query(); send them one by one",
		                              static_cast<unsigned long long>(parser.statements.size()));
	}
	info.modification = DatabaseModificationType();
	ClassifyParsed(*parser.statements[0], info);
	if (!info.parameter_names.empty()) {
		throw NotImplementedException(
		    "not supported: parameters inside the text of query(); put the values into the text");
	}
}

} // namespace sql
} // namespace quack
