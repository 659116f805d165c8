#include "quack/sql/remote_scan.hpp"

#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/common/vector_operations/vector_operations.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/parser/expression/constant_expression.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/expression/parameter_expression.hpp"
#include "duckdb/planner/binder.hpp"

#include "quack/sql/remote_catalog_entry.hpp"
#include "quack/sql/remote_classify.hpp"
#include "quack/sql/remote_client_state.hpp"
#include "quack/sql/remote_entries.hpp"
#include "quack/sql/remote_filter.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;
using duckdb::DataChunk;
using duckdb::FunctionData;
using duckdb::GlobalTableFunctionState;
using duckdb::Identifier;
using duckdb::idx_t;
using duckdb::LogicalType;
using duckdb::TableFunctionBindInput;
using duckdb::TableFunctionInitInput;
using duckdb::TableFunctionInput;
using duckdb::Value;

constexpr const char *STATEMENT_FUNCTION = "__quack_remote_statement";

//===----------------------------------------------------------------------===//
// RemoteChunkReader
//===----------------------------------------------------------------------===//

RemoteChunkReader::RemoteChunkReader(duckdb::vector<LogicalType> expected_p, std::string what_p)
    : expected(std::move(expected_p)), what(std::move(what_p)) {
}

void RemoteChunkReader::Read(ClientContext &context, RemoteStream &stream, DataChunk &output) {
	if (!current || offset >= current->size()) {
		current = stream.Next(context);
		offset = 0;
		if (!current) {
			output.SetChildCardinality(0);
			return;
		}
		if (current->ColumnCount() != expected.size()) {
			throw duckdb::
			    TransactionException("the schema changed while %s was planned: %llu columns were expected, %llu "
				                     "came. Run the statement again",
				                     what, static_cast<unsigned long long>(expected.size()),
				                     static_cast<unsigned long long>(current->ColumnCount()));
		}
	}
	auto count = duckdb::MinValue<idx_t>(current->size() - offset, STANDARD_VECTOR_SIZE);
	DataChunk part;
	part.InitializeEmpty(current->GetTypes());
	part.Reference(*current);
	if (count != current->size()) {
		part.Slice(offset, count);
	}
	offset += count;
	for (idx_t i = 0; i < expected.size(); i++) {
		if (part.data[i].GetType() == expected[i]) {
			output.data[i].Reference(part.data[i]);
		} else {
			duckdb::VectorOperations::Cast(context, part.data[i], output.data[i], count);
		}
	}
	output.SetChildCardinality(count);
}

//===----------------------------------------------------------------------===//
// Whole statements
//===----------------------------------------------------------------------===//

namespace {

struct StatementBindData : public FunctionData {
	StatementBindData(RemoteCatalog &catalog_p, RemoteKind kind_p, RemoteStatement statement_p)
	    : catalog(catalog_p), kind(kind_p), statement(std::move(statement_p)),
	      slot(std::make_shared<RemoteStreamSlot>()) {
	}

	duckdb::unique_ptr<FunctionData> Copy() const override {
		auto result = duckdb::make_uniq<StatementBindData>(catalog, kind, statement);
		result->types = types;
		result->slot = slot;
		return std::move(result);
	}
	bool Equals(const FunctionData &other_p) const override {
		return this == &other_p; // running it twice is never the same as running it once
	}
	bool SupportStatementCache() const override {
		return false;
	}

	RemoteCatalog &catalog;
	const RemoteKind kind;
	RemoteStatement statement;
	duckdb::vector<LogicalType> types;
	std::shared_ptr<RemoteStreamSlot> slot;
};

struct StreamState : public GlobalTableFunctionState {
	StreamState(duckdb::vector<LogicalType> types, const std::string &what) : reader(std::move(types), what) {
	}
	std::unique_ptr<RemoteStream> stream; //! null: no rows
	RemoteChunkReader reader;
};

} // namespace

static void ReplaceParameters(duckdb::unique_ptr<duckdb::ParsedExpression> &expression,
                              const duckdb::vector<std::string> &names, const duckdb::vector<Value> &values,
                              idx_t first) {
	if (expression->GetExpressionClass() == duckdb::ExpressionClass::PARAMETER) {
		auto &parameter = expression->Cast<duckdb::ParameterExpression>();
		for (idx_t i = 0; i < names.size(); i++) {
			if (names[i] == parameter.Identifier().GetIdentifierName()) {
				auto alias = expression->GetAlias();
				expression = duckdb::ConstantExpression::FromValue(values[first + i]);
				expression->SetAlias(alias);
				return;
			}
		}
	}
	VisitChildren(*expression, [&](duckdb::unique_ptr<duckdb::ParsedExpression> &child) {
		ReplaceParameters(child, names, values, first);
	});
}

static std::string StatementText(const RemotePushInfo &info, const duckdb::vector<Value> &values, idx_t first) {
	if (!info.node) {
		return info.sql;
	}
	auto node = info.node->Copy();
	VisitExpressions(*node, [&](duckdb::unique_ptr<duckdb::ParsedExpression> &expression) {
		ReplaceParameters(expression, info.parameter_names, values, first);
	});
	return node->ToString();
}

static void TakeSchema(const RemoteStream &stream, duckdb::vector<LogicalType> &types,
                       duckdb::vector<Identifier> &names) {
	types = stream.Types();
	for (auto &name : stream.Names()) {
		names.push_back(Identifier(name));
	}
	// A table function cannot have two columns of one name.
	duckdb::QueryResult::DeduplicateColumns(names);
}

static duckdb::unique_ptr<FunctionData> BindStatement(ClientContext &context, TableFunctionBindInput &input,
                                                      RemoteCatalog &catalog, const RemotePushInfo &info,
                                                      std::string text, duckdb::vector<LogicalType> &types,
                                                      duckdb::vector<Identifier> &names) {
	RemoteStatement statement;
	statement.sql = std::move(text);
	statement.schema = info.schema;
	statement.effect = info.kind != RemoteKind::Rows;
	statement.ddl = info.kind == RemoteKind::Ddl || info.modification.CreateCatalogEntry();
	if (input.binder) {
		auto &properties = input.binder->GetStatementProperties();
		if (statement.effect) {
			properties.RegisterDBModify(catalog, context, info.modification);
		} else {
			properties.RegisterDBRead(catalog, context);
		}
	}
	auto &transaction = RemoteTransaction::Get(context, catalog);
	auto result = duckdb::make_uniq<StatementBindData>(catalog, info.kind, statement);
	transaction.RegisterPiece(context, result->slot);
	switch (info.kind) {
	case RemoteKind::Count:
		types = {LogicalType::BIGINT};
		names = {Identifier("Count")};
		break;
	case RemoteKind::Ddl:
		types = {LogicalType::BOOLEAN};
		names = {Identifier("Success")};
		break;
	case RemoteKind::Rows:
		if (!RemoteClientState::Get(context).OnlyPlans()) {
			auto stream = transaction.Run(context, statement);
			TakeSchema(*stream, types, names);
			std::lock_guard<std::mutex> guard(result->slot->lock);
			result->slot->stream = std::move(stream);
			break;
		}
		[[fallthrough]];
	case RemoteKind::EffectRows:
		TakeSchema(*DescribeStatement(context, catalog, statement), types, names);
		break;
	}
	if (types.empty()) {
		throw duckdb::InvalidInputException("the statement returns no columns: %s", statement.sql);
	}
	result->types = types;
	return std::move(result);
}

std::unique_ptr<RemoteStream> DescribeStatement(ClientContext &context, RemoteCatalog &catalog,
                                                RemoteStatement statement) {
	if (!catalog.Cluster()->IsOurs()) {
		throw duckdb::NotImplementedException(
		    "not supported: the node is no quack-duckdb node and cannot plan a statement "
		    "without running it");
	}
	statement.describe = true;
	statement.effect = false;
	statement.ddl = false;
	return RemoteTransaction::Get(context, catalog).Run(context, statement);
}

static duckdb::unique_ptr<FunctionData> PushedBind(ClientContext &context, TableFunctionBindInput &input,
                                                   duckdb::vector<LogicalType> &types,
                                                   duckdb::vector<Identifier> &names) {
	if (!input.ref.bind_info) {
		throw duckdb::BinderException("%s is internal; use quack_query_by_name(catalog, sql)", STATEMENT_FUNCTION);
	}
	auto &info = input.ref.bind_info->Cast<RemotePushInfo>();
	auto catalog = FindRemoteCatalog(context, input.inputs[0].ToString());
	if (!catalog) {
		throw duckdb::BinderException("Catalog \"%s\" is not attached any more", input.inputs[0].ToString());
	}
	return BindStatement(context, input, *catalog, info, StatementText(info, input.inputs, 1), types, names);
}

static duckdb::unique_ptr<FunctionData> QueryByNameBind(ClientContext &context, TableFunctionBindInput &input,
                                                        duckdb::vector<LogicalType> &types,
                                                        duckdb::vector<Identifier> &names) {
	if (input.inputs[0].IsNull() || input.inputs[1].IsNull()) {
		throw duckdb::BinderException("quack_query_by_name(catalog, sql): both must be given");
	}
	auto name = input.inputs[0].ToString();
	auto catalog = FindRemoteCatalog(context, name);
	if (!catalog) {
		throw duckdb::BinderException("quack_query_by_name: \"%s\" is no database attached with TYPE quack", name);
	}
	RemotePushInfo info;
	info.sql = input.inputs[1].ToString();
	ClassifyText(context, info);
	info.schema = catalog->SearchSchema(context);
	return BindStatement(context, input, *catalog, info, info.sql, types, names);
}

static duckdb::unique_ptr<GlobalTableFunctionState> StatementInit(ClientContext &context,
                                                                  TableFunctionInitInput &input) {
	auto &data = input.bind_data->Cast<StatementBindData>();
	auto state = duckdb::make_uniq<StreamState>(data.types, "the statement");
	state->stream = data.slot->Take();
	if (!state->stream) {
		state->stream = RemoteTransaction::Get(context, data.catalog).Run(context, data.statement);
	}
	if (data.kind == RemoteKind::EffectRows && state->stream->Types() != data.types) {
		throw duckdb::TransactionException(
		    "the statement was committed, but the node that held its RETURNING rows was lost");
	}
	if (data.kind == RemoteKind::Ddl) {
		while (state->stream->Next(context)) {
		}
		state->stream.reset();
	}
	return std::move(state);
}

static void StreamScan(ClientContext &context, TableFunctionInput &input, DataChunk &output) {
	auto &state = input.global_state->Cast<StreamState>();
	if (!state.stream) {
		output.SetChildCardinality(0);
		return;
	}
	state.reader.Read(context, *state.stream, output);
}

static duckdb::InsertionOrderPreservingMap<std::string> StatementToString(duckdb::TableFunctionToStringInput &input) {
	duckdb::InsertionOrderPreservingMap<std::string> result;
	auto &data = input.bind_data->Cast<StatementBindData>();
	result["Node"] = data.catalog.GetName().GetIdentifierName();
	result["Remote SQL"] = data.statement.sql;
	return result;
}

duckdb::unique_ptr<duckdb::TableRef> MakeRemoteStatementRef(const std::string &catalog,
                                                            duckdb::shared_ptr<RemotePushInfo> info) {
	duckdb::vector<duckdb::unique_ptr<duckdb::ParsedExpression>> arguments;
	arguments.push_back(duckdb::ConstantExpression::String(catalog));
	for (auto &name : info->parameter_names) {
		auto parameter = duckdb::make_uniq<duckdb::ParameterExpression>();
		parameter->IdentifierMutable() = Identifier(name);
		arguments.push_back(std::move(parameter));
	}
	auto result = duckdb::make_uniq<duckdb::TableFunctionRef>();
	result->function =
	    duckdb::make_uniq<duckdb::FunctionExpression>(duckdb::QualifiedName(Identifier("system"), Identifier("main"),
		                                                                    Identifier(STATEMENT_FUNCTION)),
		                                              std::move(arguments));
	result->bind_info = std::move(info);
	return std::move(result);
}

//===----------------------------------------------------------------------===//
// Scan of one table
//===----------------------------------------------------------------------===//

namespace {

struct ScanBindData : public FunctionData {
	ScanBindData(RemoteTableEntry &table_p, RemoteCatalog &catalog_p, std::shared_ptr<RemoteSnapshot> snapshot_p)
	    : table(table_p), catalog(catalog_p), snapshot(std::move(snapshot_p)),
	      slot(std::make_shared<RemoteStreamSlot>()) {
	}
	duckdb::unique_ptr<FunctionData> Copy() const override {
		auto result = duckdb::make_uniq<ScanBindData>(table, catalog, snapshot);
		result->where = where;
		return std::move(result);
	}
	bool Equals(const FunctionData &other_p) const override {
		auto &other = other_p.Cast<ScanBindData>();
		return &other.table == &table && other.where == where;
	}
	bool SupportStatementCache() const override {
		return false;
	}

	RemoteTableEntry &table;
	RemoteCatalog &catalog;
	std::shared_ptr<RemoteSnapshot> snapshot; //! keeps `table` alive
	std::string where;                        //! conditions the node may apply; they are checked here again
	std::shared_ptr<RemoteStreamSlot> slot;
};

} // namespace

static std::string ScanText(const ScanBindData &data, const duckdb::vector<duckdb::column_t> &column_ids,
                            duckdb::vector<LogicalType> &types) {
	std::string list;
	for (auto id : column_ids) {
		list += list.empty() ? "" : ", ";
		if (id == duckdb::COLUMN_IDENTIFIER_ROW_ID) {
			list += "rowid";
			types.push_back(LogicalType::ROW_TYPE);
		} else if (id == duckdb::COLUMN_IDENTIFIER_EMPTY) {
			list += "NULL::BOOLEAN";
			types.push_back(LogicalType::BOOLEAN);
		} else {
			auto &column = data.table.GetColumns().GetColumn(duckdb::LogicalIndex(id));
			list += duckdb::SQLIdentifier::ToString(column.Name());
			types.push_back(column.Type());
		}
	}
	auto sql = "SELECT " + list + " FROM " + data.table.RemoteName();
	return data.where.empty() ? sql : sql + " WHERE " + data.where;
}

static duckdb::unique_ptr<GlobalTableFunctionState> ScanInit(ClientContext &context, TableFunctionInitInput &input) {
	auto &data = input.bind_data->Cast<ScanBindData>();
	duckdb::vector<LogicalType> types;
	RemoteStatement statement;
	statement.sql = ScanText(data, input.column_ids, types);
	auto state = duckdb::make_uniq<StreamState>(types, "the scan of " + data.table.RemoteName());
	state->stream = RemoteTransaction::Get(context, data.catalog).Run(context, statement);
	return std::move(state);
}

static duckdb::InsertionOrderPreservingMap<std::string> ScanToString(duckdb::TableFunctionToStringInput &input) {
	duckdb::InsertionOrderPreservingMap<std::string> result;
	auto &data = input.bind_data->Cast<ScanBindData>();
	result["Node"] = data.catalog.GetName().GetIdentifierName();
	result["Table"] = data.table.RemoteName();
	if (!data.where.empty()) {
		result["Remote filter"] = data.where;
	}
	return result;
}

static void ScanFilters(ClientContext &, duckdb::LogicalGet &get, FunctionData *bind_data,
                        duckdb::vector<duckdb::unique_ptr<duckdb::Expression>> &filters) {
	auto &data = bind_data->Cast<ScanBindData>();
	data.where = RemoteFilterText(get, data.table, filters);
}

static duckdb::unique_ptr<duckdb::NodeStatistics> ScanCardinality(ClientContext &, const FunctionData *bind_data) {
	auto &data = bind_data->Cast<ScanBindData>();
	return duckdb::make_uniq<duckdb::NodeStatistics>(data.table.EstimatedRows());
}

static duckdb::optional_ptr<duckdb::TableCatalogEntry> ScanTable(duckdb::optional_ptr<const FunctionData> bind_data) {
	return bind_data ? &bind_data->Cast<ScanBindData>().table : nullptr;
}

static duckdb::virtual_column_map_t ScanVirtualColumns(ClientContext &, duckdb::optional_ptr<FunctionData> bind_data) {
	duckdb::virtual_column_map_t result;
	result.insert(
	    std::make_pair(duckdb::COLUMN_IDENTIFIER_EMPTY, duckdb::TableColumn(Identifier(""), LogicalType::BOOLEAN)));
	if (bind_data && !bind_data->Cast<ScanBindData>().table.IsView()) {
		result.insert(std::make_pair(duckdb::COLUMN_IDENTIFIER_ROW_ID,
		                             duckdb::TableColumn(Identifier("rowid"), LogicalType::ROW_TYPE)));
	}
	return result;
}

duckdb::TableFunction MakeRemoteScan(RemoteTableEntry &table, RemoteCatalog &catalog,
                                     std::shared_ptr<RemoteSnapshot> snapshot,
                                     duckdb::unique_ptr<FunctionData> &bind_data) {
	bind_data = duckdb::make_uniq<ScanBindData>(table, catalog, std::move(snapshot));
	duckdb::TableFunction function(Identifier("quack_remote_scan"), {}, StreamScan, nullptr, ScanInit);
	function.projection_pushdown = true;
	function.pushdown_complex_filter = ScanFilters;
	function.cardinality = ScanCardinality;
	function.get_table_entry = ScanTable;
	function.get_virtual_columns = ScanVirtualColumns;
	function.to_string = ScanToString;
	return function;
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

static void ServerDefault(DataChunk &, duckdb::ExpressionState &, duckdb::Vector &) {
	throw duckdb::NotImplementedException(
	    "not supported: DEFAULT of a remote table beside local data. Leave the column out "
	    "of the column list instead");
}

void RegisterRemoteFunctions(duckdb::ExtensionLoader &loader) {
	duckdb::TableFunction pushed(Identifier(STATEMENT_FUNCTION), {LogicalType::VARCHAR}, StreamScan, PushedBind,
	                             StatementInit);
	pushed.GetSignature().AddArgs(Identifier("values"), LogicalType::ANY);
	pushed.to_string = StatementToString;
	loader.RegisterFunction(pushed);

	duckdb::TableFunction by_name(Identifier("quack_query_by_name"), {LogicalType::VARCHAR, LogicalType::VARCHAR},
	                              StreamScan, QueryByNameBind, StatementInit);
	by_name.to_string = StatementToString;
	loader.RegisterFunction(by_name);

	duckdb::ScalarFunction server_default(Identifier(SERVER_DEFAULT_FUNCTION), {}, LogicalType::SQLNULL, ServerDefault);
	server_default.SetVolatile();
	loader.RegisterFunction(server_default);
}

} // namespace sql
} // namespace quack
