#include "quack/sql/remote_filter.hpp"

#include "duckdb/parser/expression/constant_expression.hpp"
#include "duckdb/planner/expression/bound_columnref_expression.hpp"
#include "duckdb/planner/expression/bound_comparison_expression.hpp"
#include "duckdb/planner/expression/bound_conjunction_expression.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_function_expression.hpp"
#include "duckdb/planner/expression/bound_operator_expression.hpp"

namespace quack {
namespace sql {

using duckdb::Expression;
using duckdb::ExpressionClass;
using duckdb::ExpressionType;
using duckdb::LogicalTypeId;

//! Types whose comparison means the same everywhere: no collation, no session settings.
static bool IsPlainType(const duckdb::LogicalType &type) {
	return type.IsNumeric() || type.id() == LogicalTypeId::BOOLEAN || type.id() == LogicalTypeId::DATE ||
	       type.id() == LogicalTypeId::TIMESTAMP || type.id() == LogicalTypeId::UUID ||
	       (type.id() == LogicalTypeId::VARCHAR && duckdb::StringType::GetCollation(type).empty());
}

namespace {

//! Prints bound filters; "" for what it does not cover.
class FilterPrinter {
public:
	FilterPrinter(duckdb::LogicalGet &get_p, RemoteTableEntry &table_p) : get(get_p), table(table_p) {
	}

	std::string Print(const Expression &expression) {
		switch (expression.GetExpressionClass()) {
		case ExpressionClass::BOUND_COLUMN_REF:
			return Column(expression.Cast<duckdb::BoundColumnRefExpression>());
		case ExpressionClass::BOUND_CONSTANT: {
			auto &value = expression.Cast<duckdb::BoundConstantExpression>().GetValue();
			return value.IsNull() || !IsPlainType(value.type())
			           ? ""
					   : duckdb::ConstantExpression::FromValue(value)->ToString();
		}
		case ExpressionClass::BOUND_CONJUNCTION:
			return Conjunction(expression.Cast<duckdb::BoundConjunctionExpression>());
		case ExpressionClass::BOUND_OPERATOR:
			return Operator(expression.Cast<duckdb::BoundOperatorExpression>());
		default:
			return duckdb::BoundComparisonExpression::IsComparison(expression)
			           ? Comparison(expression.Cast<duckdb::BoundFunctionExpression>())
					   : "";
		}
	}

private:
	std::string Column(const duckdb::BoundColumnRefExpression &reference) {
		auto &ids = get.GetColumnIds();
		auto position = reference.Binding().column_index.GetIndex();
		if (reference.Depth() != 0 || reference.Binding().table_index != get.table_index || position >= ids.size() ||
		    !IsPlainType(reference.GetReturnType())) {
			return "";
		}
		auto &id = ids[position];
		if (id.IsVirtualColumn() || id.HasChildren() ||
		    id.GetPrimaryIndex() >= table.GetColumns().LogicalColumnCount()) {
			return "";
		}
		auto &column = table.GetColumns().GetColumn(duckdb::LogicalIndex(id.GetPrimaryIndex()));
		return duckdb::SQLIdentifier::ToString(column.Name());
	}

	std::string Comparison(const duckdb::BoundFunctionExpression &comparison) {
		auto symbol = duckdb::ExpressionTypeToOperator(comparison.GetExpressionType());
		auto left = Print(duckdb::BoundComparisonExpression::Left(comparison));
		auto right = Print(duckdb::BoundComparisonExpression::Right(comparison));
		if (symbol.empty() || left.empty() || right.empty()) {
			return "";
		}
		return "(" + left + " " + symbol + " " + right + ")";
	}

	std::string Conjunction(const duckdb::BoundConjunctionExpression &conjunction) {
		bool is_and = conjunction.GetExpressionType() == ExpressionType::CONJUNCTION_AND;
		std::string result;
		for (auto &child : conjunction.GetChildren()) {
			auto text = Print(*child);
			if (text.empty() && is_and) {
				continue; // fewer conditions only mean more rows to check here
			}
			if (text.empty()) {
				return "";
			}
			result += (result.empty() ? "" : is_and ? " AND " : " OR ") + text;
		}
		return result.empty() ? "" : "(" + result + ")";
	}

	std::string Operator(const duckdb::BoundOperatorExpression &expression) {
		auto type = expression.GetExpressionType();
		auto &children = expression.GetChildren();
		if (type == ExpressionType::OPERATOR_IS_NULL || type == ExpressionType::OPERATOR_IS_NOT_NULL) {
			auto child = Print(*children[0]);
			return child.empty()
			           ? ""
					   : "(" + child + (type == ExpressionType::OPERATOR_IS_NULL ? " IS NULL)" : " IS NOT NULL)");
		}
		if (type != ExpressionType::COMPARE_IN || children.size() > 1000) {
			return "";
		}
		std::string list;
		auto first = Print(*children[0]);
		for (size_t i = 1; i < children.size(); i++) {
			auto text = Print(*children[i]);
			if (text.empty()) {
				return "";
			}
			list += (list.empty() ? "" : ", ") + text;
		}
		return first.empty() ? "" : "(" + first + " IN (" + list + "))";
	}

	duckdb::LogicalGet &get;
	RemoteTableEntry &table;
};

} // namespace

std::string RemoteFilterText(duckdb::LogicalGet &get, RemoteTableEntry &table,
                             const duckdb::vector<duckdb::unique_ptr<Expression>> &filters) {
	FilterPrinter printer(get, table);
	std::string result;
	for (auto &filter : filters) {
		auto text = printer.Print(*filter);
		if (!text.empty()) {
			result += (result.empty() ? "" : " AND ") + text;
		}
	}
	return result;
}

} // namespace sql
} // namespace quack
