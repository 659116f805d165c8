#include "quack/catalog/change_functions.hpp"

#include <algorithm>

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/function/function_set.hpp"
#include "duckdb/function/table_function.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/parser/qualified_name.hpp"
#include "duckdb/planner/binder.hpp"
#include "quack/catalog/capture.hpp"
#include "quack/catalog/change_reader.hpp"
#include "quack/catalog/coded_error.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

constexpr const char *CHANGES = "quack_changes";
constexpr const char *CHANGES_END = "quack_changes_end";

struct ChangeFunctionInfo final : public duckdb::TableFunctionInfo {
	ChangeFunctionInfo(RemoteChanges remote_p, size_t arguments_p)
	    : remote(std::move(remote_p)), arguments(arguments_p) {
	}
	const RemoteChanges remote;
	const size_t arguments; //! behind the catalog's name
};

struct ChangeBindData final : public duckdb::TableFunctionData {
	duckdb::vector<Value> arguments; //! without the catalog's name
	ChangeDefinition definition;     //! of the table, when the statement was planned
};

struct RowsState final : public duckdb::GlobalTableFunctionState {
	std::unique_ptr<ChangeRows> rows;
};

struct EndState final : public duckdb::GlobalTableFunctionState {
	std::unique_ptr<ChangeScan> scan;
};

//! Arguments behind the catalog's name, which goes to `catalog` when it is given.
duckdb::vector<Value> SplitArguments(const duckdb::TableFunctionBindInput &input, std::string &catalog) {
	auto count = input.info->Cast<ChangeFunctionInfo>().arguments;
	auto first = input.inputs.size() - count;
	if (first == 1 && !input.inputs[0].IsNull()) {
		catalog = input.inputs[0].ToString();
	}
	return duckdb::vector<Value>(input.inputs.begin() + int64_t(first), input.inputs.end());
}

//! Null when `name` is not this node's catalog.
ReplicatedCatalog *FindOwn(duckdb::ClientContext &context, const std::string &name) {
	if (!name.empty() && !duckdb::StringUtil::CIEquals(name, CATALOG_NAME)) {
		return nullptr;
	}
	auto database = duckdb::DatabaseManager::Get(context).GetDatabase(context, duckdb::Identifier(CATALOG_NAME));
	return database ? dynamic_cast<ReplicatedCatalog *>(&database->GetCatalog()) : nullptr;
}

duckdb::unique_ptr<duckdb::TableRef> Replace(duckdb::ClientContext &context, duckdb::TableFunctionBindInput &input) {
	std::string catalog;
	auto arguments = SplitArguments(input, catalog);
	if (FindOwn(context, catalog) != nullptr) {
		return nullptr;
	}
	std::string text;
	for (auto &argument : arguments) {
		text += (text.empty() ? "" : ", ") + argument.ToSQLString();
	}
	auto function = input.table_function.GetName().GetIdentifierName();
	auto &remote = input.info->Cast<ChangeFunctionInfo>().remote;
	auto replacement = remote ? remote(context, catalog, function, text) : nullptr;
	if (!replacement) {
		throw duckdb::BinderException("%s: %s", function,
		                              catalog.empty() ? "this process is no node, and no cluster is attached"
		                                              : "'" + catalog +
		                                                    "' is neither this node's catalog nor attached "
		                                                    "with TYPE quack");
	}
	return replacement;
}

ReplicatedCatalog &OwnCatalog(duckdb::ClientContext &context) {
	auto *own = FindOwn(context, std::string());
	if (own == nullptr) {
		ThrowCoded(Status(ErrorCode::Unavailable, "the catalog is not attached"));
	}
	return *own;
}

//! [schema.]table, parts quoted where that is needed.
duckdb::DuckTableEntry &FindTable(duckdb::ClientContext &context, const Value &name) {
	if (name.IsNull()) {
		ThrowCoded(Status(ErrorCode::InvalidArgument, std::string(CHANGES) + ": the table's name is NULL"));
	}
	auto text = name.ToString();
	duckdb::QualifiedName parsed;
	std::string error;
	if (!duckdb::QualifiedName::TryParse(text, parsed, error)) {
		ThrowCoded(Status(ErrorCode::InvalidArgument,
		                  "expected a table's name like 'schema.table', got '" + text + "': " + error));
	}
	auto path = parsed.Path();
	auto table = path.back();
	path.pop_back();
	duckdb::Identifier catalog(CATALOG_NAME);
	if (path.size() > 1 && path.front() == catalog) {
		path.erase(path.begin());
	}
	if (path.empty()) {
		path.push_back(duckdb::Identifier::DefaultSchema());
	}
	auto qualified = duckdb::QualifiedName::FromCatalogSchema(catalog, std::move(path), table);
	auto entry =
	    duckdb::Catalog::GetEntry<duckdb::TableCatalogEntry>(context, qualified, duckdb::OnEntryNotFound::RETURN_NULL);
	if (!entry || !entry->IsDuckTable()) {
		ThrowCoded(Status(ErrorCode::NotFound, "there is no table '" + text + "' in this cluster"));
	}
	return entry->Cast<duckdb::DuckTableEntry>();
}

//! NULL, a position like '1:120,4:7', or an index of the root group while there is no other one.
std::optional<AppliedVector> Position(const ReplicatedCatalog &catalog, const Value &value) {
	if (value.IsNull()) {
		return std::nullopt;
	}
	auto text = value.ToString();
	if (!value.type().IsIntegral()) {
		auto parsed = PositionsFromText(text);
		if (!parsed.IsOk()) {
			ThrowCoded(parsed.GetStatus());
		}
		return parsed.Value();
	}
	auto index = value.DefaultCastAs(LogicalType::HUGEINT).GetValue<duckdb::hugeint_t>();
	if (index < 0 || index > duckdb::NumericLimits<int64_t>::Maximum()) {
		ThrowCoded(Status(ErrorCode::InvalidArgument, "expected an index of the log, got " + text));
	}
	if (catalog.Core()->Vector()->size() > 1) {
		ThrowCoded(Status(ErrorCode::InvalidArgument,
		                  "this cluster has several groups, and a transaction over several of them is decided in one: "
		                  "a position must name them all, like '1:120,4:7' (quack_changes_position())"));
	}
	return AppliedVector {{raft::ROOT_GROUP, value.DefaultCastAs(LogicalType::UBIGINT).GetValue<uint64_t>()}};
}

std::unique_ptr<ChangeScan> OpenScan(duckdb::ClientContext &context, const duckdb::DuckTableEntry &table,
                                     const Value &from, const Value &to) {
	auto &catalog = OwnCatalog(context);
	catalog.NoteRead(context, table);
	return std::make_unique<ChangeScan>(context, catalog, NameOf(table), Position(catalog, from),
	                                    Position(catalog, to));
}

duckdb::unique_ptr<duckdb::FunctionData> BindRows(duckdb::ClientContext &context, duckdb::TableFunctionBindInput &input,
                                                  duckdb::vector<LogicalType> &types,
                                                  duckdb::vector<duckdb::Identifier> &names) {
	std::string catalog;
	auto data = duckdb::make_uniq<ChangeBindData>();
	data->arguments = SplitArguments(input, catalog);
	auto &table = FindTable(context, data->arguments[0]);
	// So that a prepared statement is planned anew when the table has changed.
	input.binder->GetStatementProperties().RegisterDBRead(table.ParentCatalog(), context);
	data->definition = DefinitionOf(table);
	auto &definition = data->definition;
	for (duckdb::idx_t i = 0; i < CHANGE_OWN_COLUMNS; i++) {
		names.emplace_back(CHANGE_OWN_NAMES[i]);
		types.push_back(ChangeOwnType(i));
	}
	for (size_t i = 0; i < definition.names.size(); i++) {
		// The feed's own names stay; a column of the table that has one of them gets a number.
		auto name = definition.names[i];
		for (auto *own : CHANGE_OWN_NAMES) {
			name += duckdb::StringUtil::CIEquals(definition.names[i], own) ? "_1" : "";
		}
		names.emplace_back(name);
		types.push_back(definition.types[i]);
	}
	return std::move(data);
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitRows(duckdb::ClientContext &context,
                                                              duckdb::TableFunctionInitInput &input) {
	auto &data = input.bind_data->Cast<ChangeBindData>();
	auto &arguments = data.arguments;
	auto scan = OpenScan(context, FindTable(context, arguments[0]), arguments[1], arguments[2]);
	auto state = duckdb::make_uniq<RowsState>();
	state->rows = std::make_unique<ChangeRows>(context, std::move(scan), data.definition, arguments[0].ToString());
	return std::move(state);
}

void ScanRows(duckdb::ClientContext &, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
	input.global_state->Cast<RowsState>().rows->Read(output);
}

duckdb::unique_ptr<duckdb::FunctionData> BindEnd(duckdb::ClientContext &, duckdb::TableFunctionBindInput &input,
                                                 duckdb::vector<LogicalType> &types,
                                                 duckdb::vector<duckdb::Identifier> &names) {
	std::string catalog;
	auto data = duckdb::make_uniq<ChangeBindData>();
	data->arguments = SplitArguments(input, catalog);
	for (auto *name : {"position", "rows", "bytes"}) {
		names.emplace_back(name);
		types.push_back(names.size() == 1 ? LogicalType::VARCHAR : LogicalType::UBIGINT);
	}
	return std::move(data);
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitEnd(duckdb::ClientContext &context,
                                                             duckdb::TableFunctionInitInput &input) {
	auto &arguments = input.bind_data->Cast<ChangeBindData>().arguments;
	auto state = duckdb::make_uniq<EndState>();
	state->scan = OpenScan(context, FindTable(context, arguments[0]), arguments[1], Value());
	return std::move(state);
}

//! The entries are cut in the order in which this node applied them, so whatever an entry depends on comes before it.
void ScanEnd(duckdb::ClientContext &, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
	auto &state = input.global_state->Cast<EndState>();
	if (!state.scan) {
		output.SetChildCardinality(0);
		return;
	}
	auto scan = std::move(state.scan);
	auto &arguments = input.bind_data->Cast<ChangeBindData>().arguments;
	auto limit = [&](size_t i) {
		return arguments[i].IsNull() ? UINT64_MAX : uint64_t(std::max<int64_t>(1, arguments[i].GetValue<int64_t>()));
	};
	auto position = scan->Range().from;
	uint64_t rows = 0;
	uint64_t bytes = 0;
	const StoredChange *change = nullptr;
	while ((change = scan->Next()) != nullptr) {
		auto &index = position[change->group];
		if (index != change->index && (rows >= limit(2) || bytes >= limit(3))) {
			break;
		}
		index = change->index;
		rows += change->row_count;
		bytes += change->bytes;
	}
	output.data[0].SetValue(0, Value(PositionsToText(change == nullptr ? scan->Range().to : position)));
	output.data[1].SetValue(0, Value::UBIGINT(rows));
	output.data[2].SetValue(0, Value::UBIGINT(bytes));
	output.SetChildCardinality(1);
}

void Register(duckdb::ExtensionLoader &loader, const char *name, duckdb::vector<LogicalType> arguments,
              duckdb::TableFunction function, const RemoteChanges &remote) {
	duckdb::TableFunctionSet set {duckdb::Identifier(name)};
	function.function_info = duckdb::make_shared_ptr<ChangeFunctionInfo>(remote, arguments.size());
	for (auto with_catalog : {false, true}) {
		if (with_catalog) {
			arguments.insert(arguments.begin(), LogicalType::VARCHAR);
		}
		duckdb::TableFunction overload(arguments, function.function, function.bind, function.init_global);
		overload.function_info = function.function_info;
		overload.bind_replace = Replace;
		set.AddFunction(overload);
	}
	loader.RegisterFunction(set);
}

} // namespace

void RegisterChangeFunctions(duckdb::ExtensionLoader &loader, RemoteChanges remote) {
	auto text = LogicalType::VARCHAR;
	auto number = LogicalType::BIGINT;
	Register(loader, CHANGES, {text, LogicalType::ANY, LogicalType::ANY},
	         duckdb::TableFunction({}, ScanRows, BindRows, InitRows), remote);
	Register(loader, CHANGES_END, {text, LogicalType::ANY, number, number},
	         duckdb::TableFunction({}, ScanEnd, BindEnd, InitEnd), remote);
}

} // namespace catalog
} // namespace quack
