#include "quack/sql/functions.hpp"

#include <functional>

#include "quack/catalog/replicated_database.hpp"
#include "quack/sql/session.hpp"
#include "quack/sql/row_table.hpp"
#include "quack/sql/sql_error.hpp"
#include "quack/storage/log_inspect.hpp"

namespace quack {
namespace sql {

using duckdb::LogicalType;
using duckdb::Value;

namespace {

//! Reads files below a path; needs no node and changes nothing.
struct OfflineFunction {
	std::string name;
	Columns columns;
	std::function<Rows(duckdb::DatabaseInstance &host, const std::string &path)> rows;
};

struct OfflineInfo final : public duckdb::TableFunctionInfo {
	explicit OfflineInfo(OfflineFunction function_p) : function(std::move(function_p)) {
	}
	OfflineFunction function;
};

struct OfflineBindData final : public duckdb::TableFunctionData {
	const OfflineFunction *function = nullptr; //! of the catalog's function, which outlives the query
	std::string path;
};

Value Unsigned(uint64_t value) {
	return Value::UBIGINT(value);
}

Value Hex(uint64_t value) {
	return Value(duckdb::StringUtil::Format("%016llx", value));
}

template <class T>
T OrThrow(Result<T> result) {
	if (!result.IsOk()) {
		ThrowCoded(result.GetStatus());
	}
	return std::move(result.Value());
}

storage::LogInspection Inspect(const std::string &path,
                               const std::function<void(const storage::ScannedRecord &)> &visit = nullptr) {
	storage::PosixFileSystem files;
	return OrThrow(storage::InspectLog(files, path, visit));
}

OfflineFunction LogRecords() {
	auto number = LogicalType::UBIGINT;
	auto text = LogicalType::VARCHAR;
	return {"quack_log_records",
	        {{"file", text},
	         {"offset", number},
	         {"size", number},
	         {"type", text},
	         {"group", number},
	         {"term", number},
	         {"index", number},
	         {"is_sound", LogicalType::BOOLEAN},
	         {"is_acknowledged", LogicalType::BOOLEAN},
	         {"detail", text}},
	        [](duckdb::DatabaseInstance &, const std::string &path) {
		        Rows rows;
		        Inspect(path, [&rows](const storage::ScannedRecord &record) {
			        auto &fields = record.fields;
			        rows.push_back({Value(record.file), Unsigned(record.offset), Unsigned(record.size),
					                Value(storage::RecordTypeName(fields.type)), Unsigned(fields.group),
					                Unsigned(fields.term), Unsigned(fields.index), Value::BOOLEAN(record.crc_ok),
					                Value::BOOLEAN(record.acknowledged), Value(storage::DescribeRecord(record))});
		        });
		        return rows;
	        }};
}

OfflineFunction LogSummary() {
	auto number = LogicalType::UBIGINT;
	return {"quack_log_summary",
	        {{"segments", number},
	         {"records", number},
	         {"entries", number},
	         {"torn_bytes", number},
	         {"damages", number},
	         {"first_damage", LogicalType::VARCHAR}},
	        [](duckdb::DatabaseInstance &, const std::string &path) {
		        auto summary = Inspect(path).summary;
		        auto first = summary.first_damage.IsOk() ? Value() : Value(summary.first_damage.Message());
		        return Rows {{Unsigned(summary.segment_count), Unsigned(summary.record_count),
				              Unsigned(summary.entry_count), Unsigned(summary.torn_bytes),
				              Unsigned(summary.damage_count), first}};
	        }};
}

OfflineFunction LogGroups() {
	auto number = LogicalType::UBIGINT;
	auto text = LogicalType::VARCHAR;
	return {"quack_log_groups",
	        {{"group", number},
	         {"term", number},
	         {"voted_for", text},
	         {"commit_index", number},
	         {"snapshot_index", number},
	         {"snapshot_term", number},
	         {"last_index", number}},
	        [](duckdb::DatabaseInstance &, const std::string &path) {
		        Rows rows;
		        for (auto &group : Inspect(path).groups) {
			        auto &state = group.hard_state;
			        auto vote = state.voted_for == raft::NO_NODE ? Value() : Hex(state.voted_for);
			        rows.push_back({Unsigned(group.group), Unsigned(state.term), vote, Unsigned(state.commit_index),
					                Unsigned(group.snapshot.index), Unsigned(group.snapshot.term),
					                Unsigned(group.last_index)});
		        }
		        return rows;
	        }};
}

OfflineFunction CatalogFile() {
	auto number = LogicalType::UBIGINT;
	return {"quack_catalog_file",
	        {{"cluster_id", LogicalType::VARCHAR},
	         {"format", number},
	         {"group", number},
	         {"applied_index", number},
	         {"applied_term", number}},
	        [](duckdb::DatabaseInstance &host, const std::string &path) {
		        auto report = OrThrow(catalog::InspectCatalogFile(host, path));
		        Rows rows;
		        for (auto &position : report.positions) {
			        rows.push_back({Value(report.cluster_id), Unsigned(report.format), Unsigned(position.group),
					                Unsigned(position.index), Unsigned(position.term)});
		        }
		        if (rows.empty()) {
			        rows.push_back({Value(report.cluster_id), Unsigned(report.format), Value(), Value(), Value()});
		        }
		        return rows;
	        }};
}

duckdb::unique_ptr<duckdb::FunctionData> Bind(duckdb::ClientContext &context, duckdb::TableFunctionBindInput &input,
                                              duckdb::vector<LogicalType> &return_types,
                                              duckdb::vector<duckdb::Identifier> &names) {
	auto data = duckdb::make_uniq<OfflineBindData>();
	data->function = &input.info->Cast<OfflineInfo>().function;
	if (Session::TryGet(context) != nullptr) {
		ThrowCoded(Status(ErrorCode::Unauthorized, data->function->name +
		                                               " reads files of this machine: it can only be called in a "
		                                               "process of its own, not by a Quack client"));
	}
	if (input.inputs[0].IsNull()) {
		ThrowCoded(Status(ErrorCode::InvalidArgument, data->function->name + ": expected a path, got NULL"));
	}
	data->path = input.inputs[0].ToString();
	for (auto &column : data->function->columns) {
		names.push_back(duckdb::Identifier(column.first));
		return_types.push_back(column.second);
	}
	return std::move(data);
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> Init(duckdb::ClientContext &context,
                                                          duckdb::TableFunctionInitInput &input) {
	auto &data = input.bind_data->Cast<OfflineBindData>();
	auto state = duckdb::make_uniq<RowTableState>();
	state->rows = data.function->rows(*context.db, data.path);
	return std::move(state);
}

} // namespace

void RegisterOfflineFunctions(duckdb::ExtensionLoader &loader) {
	for (auto &function : {LogRecords(), LogSummary(), LogGroups(), CatalogFile()}) {
		duckdb::TableFunction table(duckdb::Identifier(function.name), {LogicalType::VARCHAR}, ScanRowTable, Bind,
		                            Init);
		table.function_info = duckdb::make_shared_ptr<OfflineInfo>(function);
		loader.RegisterFunction(table);
	}
}

} // namespace sql
} // namespace quack
