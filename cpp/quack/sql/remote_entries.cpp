//! Makes catalog entries from what the schema query told.
#include "quack/sql/remote_entries.hpp"

#include "duckdb/catalog/catalog_entry/index_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/macro_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/scalar_macro_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/table_macro_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/type_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/view_catalog_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/common/types/type_manager.hpp"
#include "duckdb/parser/constraints/not_null_constraint.hpp"
#include "duckdb/parser/constraints/unique_constraint.hpp"
#include "duckdb/parser/expression/constant_expression.hpp"
#include "duckdb/parser/expression/cast_expression.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/expression/type_expression.hpp"
#include "duckdb/parser/parsed_data/create_index_info.hpp"
#include "duckdb/parser/parsed_data/create_macro_info.hpp"
#include "duckdb/parser/parsed_data/create_sequence_info.hpp"
#include "duckdb/parser/parsed_data/create_table_info.hpp"
#include "duckdb/parser/parsed_data/create_type_info.hpp"
#include "duckdb/parser/parsed_data/create_view_info.hpp"
#include "duckdb/function/scalar_macro_function.hpp"
#include "duckdb/parser/parsed_expression_iterator.hpp"
#include "duckdb/parser/parser.hpp"
#include "duckdb/parser/statement/create_statement.hpp"

namespace quack {
namespace sql {

using duckdb::CatalogEntry;
using duckdb::CatalogType;
using duckdb::ClientContext;
using duckdb::Identifier;
using duckdb::LogicalType;
using duckdb::SchemaCatalogEntry;
using duckdb::Value;

namespace {

//! A default that only the server may evaluate: prints as the server's text, and fails when evaluated here.
class ServerDefaultExpression : public duckdb::FunctionExpression {
public:
	explicit ServerDefaultExpression(std::string text_p)
	    : FunctionExpression(Identifier(SERVER_DEFAULT_FUNCTION), duckdb::vector<duckdb::FunctionArgument>()),
	      text(std::move(text_p)) {
	}
	std::string ToString() const override {
		return text;
	}

private:
	std::string text;
};

class RemoteIndexEntry : public duckdb::IndexCatalogEntry {
public:
	RemoteIndexEntry(duckdb::Catalog &catalog, SchemaCatalogEntry &schema_p, duckdb::CreateIndexInfo &info)
	    : IndexCatalogEntry(catalog, schema_p, info), schema_name(schema_p.name), table_name(info.table) {
	}
	Identifier GetSchemaName() const override {
		return schema_name;
	}
	Identifier GetTableName() const override {
		return table_name;
	}

private:
	Identifier schema_name;
	Identifier table_name;
};

} // namespace

template <class INFO>
static duckdb::unique_ptr<INFO> ParseCreate(ClientContext &context, const std::string &sql) {
	duckdb::Parser parser(context);
	parser.ParseQuery(sql);
	if (parser.statements.size() != 1 || parser.statements[0]->type != duckdb::StatementType::CREATE_STATEMENT) {
		throw duckdb::InvalidInputException("expected one CREATE statement");
	}
	auto &info = parser.statements[0]->Cast<duckdb::CreateStatement>().info;
	return duckdb::unique_ptr_cast<duckdb::CreateInfo, INFO>(std::move(info));
}

static void SetCommon(CatalogEntry &entry, const RemoteObject &object) {
	if (object.has_comment) {
		entry.comment = Value(object.comment);
	}
}

//! The types of all columns; an unknown one becomes VARCHAR and is named in `reason`.
static duckdb::vector<LogicalType> ResolveTypes(ClientContext &context, const RemoteObject &object,
                                                std::string &reason) {
	duckdb::vector<LogicalType> result;
	auto &manager = duckdb::TypeManager::Get(context);
	for (size_t i = 0; i < object.column_types.size(); i++) {
		try {
			result.push_back(manager.ParseLogicalType(object.column_types[i], context));
		} catch (const std::exception &) {
			if (reason.empty()) {
				reason = "column \"" + object.column_names[i] + "\" has the type " + object.column_types[i] +
				         ", which this DuckDB does not know (load the extension that defines it)";
			}
			result.push_back(LogicalType::VARCHAR);
		}
	}
	return result;
}

static bool IsLiteral(const duckdb::ParsedExpression &expression) {
	return expression.GetExpressionClass() == duckdb::ExpressionClass::CONSTANT;
}

//! The columns of a primary key are NOT NULL; the CREATE TABLE text does not repeat that.
static void AddKeyNotNull(duckdb::CreateTableInfo &info) {
	std::vector<duckdb::LogicalIndex> keys;
	for (auto &constraint : info.constraints) {
		if (constraint->type != duckdb::ConstraintType::UNIQUE) {
			continue;
		}
		auto &unique = constraint->Cast<duckdb::UniqueConstraint>();
		if (!unique.IsPrimaryKey()) {
			continue;
		}
		if (unique.HasIndex()) {
			keys.push_back(unique.GetIndex());
		}
		for (auto &name : unique.GetColumnNames()) {
			if (!unique.HasIndex() && info.columns.ColumnExists(name)) {
				keys.push_back(info.columns.GetColumn(name).Logical());
			}
		}
	}
	for (auto key : keys) {
		if (!info.FindNotNullConstraint(key).IsValid()) {
			info.constraints.push_back(duckdb::make_uniq<duckdb::NotNullConstraint>(key));
		}
	}
}

//! Constraints, generated columns and defaults come from the CREATE TABLE text. When it cannot be read the columns
//! alone are still good for reading.
static void AddDefinition(ClientContext &context, const RemoteObject &object, duckdb::CreateTableInfo &info) {
	duckdb::unique_ptr<duckdb::CreateTableInfo> parsed;
	try {
		parsed = ParseCreate<duckdb::CreateTableInfo>(context, object.sql);
	} catch (const std::exception &) {
		return;
	}
	if (parsed->columns.LogicalColumnCount() != info.columns.LogicalColumnCount()) {
		return;
	}
	duckdb::ColumnList columns;
	for (auto &column : info.columns.Logical()) {
		auto &definition = parsed->columns.GetColumnMutable(duckdb::LogicalIndex(column.Logical().index));
		if (definition.Generated()) {
			duckdb::ColumnDefinition generated(column.Name(), column.Type(), definition.GeneratedExpression().Copy(),
			                                   duckdb::TableColumnType::GENERATED);
			generated.SetComment(column.Comment());
			columns.AddColumn(std::move(generated));
			continue;
		}
		auto copy = column.Copy();
		if (definition.HasDefaultValue()) {
			auto &value = definition.DefaultValue();
			copy.SetDefaultValue(
			    IsLiteral(value)
			        ? value.Copy()
					: duckdb::make_uniq_base<duckdb::ParsedExpression, ServerDefaultExpression>(value.ToString()));
		}
		columns.AddColumn(std::move(copy));
	}
	info.columns = std::move(columns);
	info.constraints = std::move(parsed->constraints);
	AddKeyNotNull(info);
}

duckdb::unique_ptr<RemoteTableEntry> MakeTableEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                                    const RemoteObject &object) {
	duckdb::CreateTableInfo info(schema, Identifier(object.name));
	std::string reason;
	auto types = ResolveTypes(context, object, reason);
	for (size_t i = 0; i < types.size(); i++) {
		duckdb::ColumnDefinition column(Identifier(object.column_names[i]), types[i]);
		if (i < object.column_comments.size() && !object.column_comments[i].empty()) {
			column.SetComment(Value(object.column_comments[i]));
		}
		info.columns.AddColumn(std::move(column));
	}
	bool is_view = object.kind == "view";
	if (!is_view) {
		AddDefinition(context, object, info);
	} else if (types.empty()) {
		reason = "the node cannot bind the view";
	}
	auto result = duckdb::make_uniq<RemoteTableEntry>(schema.ParentCatalog(), schema, info, is_view,
	                                                  object.estimated_rows, reason);
	SetCommon(*result, object);
	return result;
}

duckdb::unique_ptr<CatalogEntry> MakeViewEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                               const RemoteObject &object) {
	auto info = ParseCreate<duckdb::CreateViewInfo>(context, object.sql);
	info->SetQualifiedName(schema.GetQualifiedName(Identifier(object.name)));
	std::string reason;
	auto types = ResolveTypes(context, object, reason);
	info->types.assign(types.begin(), types.end());
	info->names.clear();
	for (size_t i = 0; i < object.column_names.size(); i++) {
		info->names.push_back(Identifier(object.column_names[i]));
		if (i < object.column_comments.size() && !object.column_comments[i].empty()) {
			info->column_comments_map[Identifier(object.column_names[i])] = Value(object.column_comments[i]);
		}
	}
	if (info->sql.empty()) {
		info->sql = object.sql;
	}
	auto result = duckdb::make_uniq<duckdb::ViewCatalogEntry>(schema.ParentCatalog(), schema, *info);
	SetCommon(*result, object);
	return std::move(result);
}

static duckdb::unique_ptr<CatalogEntry> MakeIndexEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                                       const RemoteObject &object) {
	auto info = ParseCreate<duckdb::CreateIndexInfo>(context, object.sql);
	info->SetQualifiedName(schema.GetQualifiedName(Identifier(object.name)));
	info->sql = object.sql;
	return duckdb::make_uniq<RemoteIndexEntry>(schema.ParentCatalog(), schema, *info);
}

static duckdb::unique_ptr<CatalogEntry> MakeSequenceEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                                          const RemoteObject &object) {
	auto info = ParseCreate<duckdb::CreateSequenceInfo>(context, object.sql);
	info->SetQualifiedName(schema.GetQualifiedName(Identifier(object.name)));
	return duckdb::make_uniq<duckdb::SequenceCatalogEntry>(schema.ParentCatalog(), schema, *info);
}

static duckdb::unique_ptr<CatalogEntry> MakeTypeEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                                      const RemoteObject &object) {
	LogicalType type;
	if (!object.column_names.empty()) {
		duckdb::Vector labels(LogicalType::VARCHAR, object.column_names.size());
		for (size_t i = 0; i < object.column_names.size(); i++) {
			labels.SetValue(i, Value(object.column_names[i]));
		}
		type = LogicalType::ENUM(labels, object.column_names.size());
	} else {
		type = duckdb::TypeManager::Get(context).ParseLogicalType(object.sql, context);
	}
	duckdb::CreateTypeInfo info(object.name, type);
	info.SetQualifiedName(schema.GetQualifiedName(Identifier(object.name)));
	return duckdb::make_uniq<duckdb::TypeCatalogEntry>(schema.ParentCatalog(), schema, info);
}

static duckdb::unique_ptr<CatalogEntry> MakeMacroEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                                       const RemoteObject &object) {
	std::string parameters;
	for (auto &name : object.column_names) {
		parameters += (parameters.empty() ? "" : ", ") + duckdb::SQLIdentifier::ToString(name);
	}
	bool is_table = object.kind == "table_macro";
	auto text = "CREATE MACRO " + duckdb::SQLIdentifier::ToString(object.name) + "(" + parameters + ") AS " +
	            (is_table ? "TABLE " : "") + object.sql;
	auto info = ParseCreate<duckdb::CreateMacroInfo>(context, text);
	info->SetQualifiedName(schema.GetQualifiedName(Identifier(object.name)));
	if (is_table) {
		return duckdb::make_uniq<duckdb::TableMacroCatalogEntry>(schema.ParentCatalog(), schema, *info);
	}
	return duckdb::make_uniq<duckdb::ScalarMacroCatalogEntry>(schema.ParentCatalog(), schema, *info);
}

static bool IsSelfContained(ClientContext &context, duckdb::ParsedExpression &expression) {
	auto kind = expression.GetExpressionClass();
	bool good = kind != duckdb::ExpressionClass::SUBQUERY && kind != duckdb::ExpressionClass::TYPE;
	if (kind == duckdb::ExpressionClass::FUNCTION) {
		auto &name = expression.Cast<duckdb::FunctionExpression>().FunctionName().GetIdentifierName();
		auto lower = duckdb::StringUtil::Lower(name);
		good = lower != "nextval" && lower != "currval" && lower != "lastval" && lower != "setval" &&
		       IsBuiltin(context, CatalogType::SCALAR_FUNCTION_ENTRY, name);
	}
	if (kind == duckdb::ExpressionClass::CAST) {
		// A user's type would be looked up in this session.
		auto &type = expression.Cast<duckdb::CastExpression>().TargetType();
		good = IsBuiltin(context, CatalogType::TYPE_ENTRY, type.GetTypeName().GetIdentifierName());
	}
	duckdb::ParsedExpressionIterator::EnumerateChildren(expression, [&](duckdb::ParsedExpression &child) {
		good = good && IsSelfContained(context, child);
	});
	return good;
}

bool IsSelfContainedMacro(ClientContext &context, CatalogEntry &entry) {
	for (auto &macro : entry.Cast<duckdb::ScalarMacroCatalogEntry>().macros) {
		if (!IsSelfContained(context, *macro->Cast<duckdb::ScalarMacroFunction>().expression)) {
			return false;
		}
	}
	return true;
}

bool IsBuiltin(ClientContext &context, CatalogType type, const std::string &name) {
	auto &system = duckdb::Catalog::GetSystemCatalog(context);
	auto schema = system.GetSchema(context, Identifier::DefaultSchema(), duckdb::OnEntryNotFound::RETURN_NULL);
	return schema && schema->GetEntry(system.GetCatalogTransaction(context), type, Identifier(name));
}

duckdb::unique_ptr<CatalogEntry> MakeQueryMacro(ClientContext &context, SchemaCatalogEntry &schema) {
	auto catalog = schema.ParentCatalog().GetName().GetIdentifierName();
	auto literal = duckdb::Value(catalog).ToSQLString();
	auto info = ParseCreate<
	    duckdb::CreateMacroInfo>(context,
		                         "CREATE MACRO query(sql) AS TABLE SELECT * FROM system.main.quack_query_by_name(" +
		                             literal + ", sql)");
	info->SetQualifiedName(schema.GetQualifiedName(Identifier("query")));
	return duckdb::make_uniq<duckdb::TableMacroCatalogEntry>(schema.ParentCatalog(), schema, *info);
}

duckdb::unique_ptr<CatalogEntry> MakeOtherEntry(ClientContext &context, SchemaCatalogEntry &schema,
                                                const RemoteObject &object) {
	duckdb::unique_ptr<CatalogEntry> result;
	if (object.kind == "index") {
		result = MakeIndexEntry(context, schema, object);
	} else if (object.kind == "sequence") {
		result = MakeSequenceEntry(context, schema, object);
	} else if (object.kind == "type") {
		result = MakeTypeEntry(context, schema, object);
	} else {
		result = MakeMacroEntry(context, schema, object);
	}
	SetCommon(*result, object);
	return result;
}

} // namespace sql
} // namespace quack
