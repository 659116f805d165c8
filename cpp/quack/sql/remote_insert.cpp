#include "quack/sql/remote_insert.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/common/type_visitor.hpp"
#include "duckdb/execution/operator/projection/physical_projection.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/parser/parsed_data/create_table_info.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/operator/logical_create_table.hpp"
#include "duckdb/planner/operator/logical_delete.hpp"
#include "duckdb/planner/operator/logical_insert.hpp"
#include "duckdb/planner/operator/logical_merge_into.hpp"
#include "duckdb/planner/operator/logical_update.hpp"
#include "duckdb/planner/parsed_data/bound_create_table_info.hpp"

#include "quack/sql/remote_scan.hpp"
#include "quack/sql/remote_transaction.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;
using duckdb::DataChunk;
using duckdb::idx_t;
using duckdb::LogicalType;
using duckdb::NotImplementedException;
using duckdb::optional_ptr;
using duckdb::PhysicalOperator;
using duckdb::PhysicalPlanGenerator;

PhysicalRemoteInsert::PhysicalRemoteInsert(duckdb::PhysicalPlan &plan, duckdb::vector<LogicalType> types,
                                           idx_t estimated_cardinality, RemoteCatalog &catalog_p)
    : PhysicalOperator(plan, duckdb::PhysicalOperatorType::EXTENSION, std::move(types), estimated_cardinality),
      catalog(catalog_p) {
}

duckdb::InsertionOrderPreservingMap<std::string> PhysicalRemoteInsert::ParamsToString() const {
	duckdb::InsertionOrderPreservingMap<std::string> result;
	result["Node"] = catalog.GetName().GetIdentifierName();
	result["Target"] = target;
	return result;
}

namespace {

struct RemoteInsertState : public duckdb::GlobalSinkState {
	RemoteInsertState(const duckdb::vector<LogicalType> &types, const std::string &what) : reader(types, what) {
	}
	std::unique_ptr<RemoteRowSender> sender;
	std::unique_ptr<RemoteStream> result;
	RemoteChunkReader reader;
	DataChunk sent;
};

} // namespace

static std::string StreamSource(const PhysicalRemoteInsert &op, const std::string &stream_id) {
	std::string fields;
	for (idx_t i = 0; i < op.sent.size(); i++) {
		fields += (i == 0 ? "" : ", ") + duckdb::SQLIdentifier::ToString(op.names[i]) + " " + op.sent[i].ToString();
	}
	return "SELECT * FROM scan_data_from_quack_client('" + stream_id + "', NULL::STRUCT(" + fields +
	       "), ordered := true)";
}

duckdb::unique_ptr<duckdb::GlobalSinkState> PhysicalRemoteInsert::GetGlobalSinkState(ClientContext &context) const {
	auto state = duckdb::make_uniq<RemoteInsertState>(types, "the insert into " + target);
	auto &transaction = RemoteTransaction::Get(context, catalog);
	if (!ddl_before.empty()) {
		transaction.RequireExplicit(); // CREATE and rows are one unit
		catalog.ExecuteDdl(context, ddl_before);
	}
	RemoteStatement statement;
	auto stream_id = HugeintToUuid(RemoteCluster::RandomUuid());
	statement.sql = "INSERT INTO " + target + " " + StreamSource(*this, stream_id) + suffix;
	statement.effect = true;
	statement.returning = !suffix.empty();
	state->sender = transaction.OpenSender(context, statement, stream_id);
	state->sent.InitializeEmpty(sent);
	return std::move(state);
}

duckdb::SinkResultType PhysicalRemoteInsert::Sink(duckdb::ExecutionContext &context, DataChunk &chunk,
                                                  duckdb::OperatorSinkInput &input) const {
	auto &state = input.global_state.Cast<RemoteInsertState>();
	for (idx_t i = 0; i < columns.size(); i++) {
		state.sent.data[i].Reference(chunk.data[columns[i]]);
	}
	state.sent.SetChildCardinality(chunk.size());
	state.sender->Append(context.client, state.sent);
	return duckdb::SinkResultType::NEED_MORE_INPUT;
}

duckdb::SinkFinalizeType PhysicalRemoteInsert::Finalize(duckdb::Pipeline &, duckdb::Event &, ClientContext &context,
                                                        duckdb::OperatorSinkFinalizeInput &input) const {
	auto &state = input.global_state.Cast<RemoteInsertState>();
	state.result = state.sender->Finish(context);
	return duckdb::SinkFinalizeType::READY;
}

duckdb::SourceResultType PhysicalRemoteInsert::GetDataInternal(duckdb::ExecutionContext &context, DataChunk &chunk,
                                                               duckdb::OperatorSourceInput &) const {
	auto &state = sink_state->Cast<RemoteInsertState>();
	state.reader.Read(context.client, *state.result, chunk);
	return chunk.size() == 0 ? duckdb::SourceResultType::FINISHED : duckdb::SourceResultType::HAVE_MORE_OUTPUT;
}

//===----------------------------------------------------------------------===//
// Planning
//===----------------------------------------------------------------------===//

//! Types without a text form that the node would read back as the same type.
static void CheckSendable(const duckdb::vector<LogicalType> &types, const std::string &target) {
	for (auto &type : types) {
		if (duckdb::TypeVisitor::Contains(type, duckdb::LogicalTypeId::SQLNULL) ||
		    duckdb::TypeVisitor::Contains(type, duckdb::LogicalTypeId::UNKNOWN)) {
			throw NotImplementedException("not supported: sending a column of type %s to %s; cast it to a type the "
			                              "node can "
			                              "store",
			                              type.ToString(), target);
		}
	}
}

PhysicalOperator &RemoteCatalog::PlanInsert(ClientContext &context, PhysicalPlanGenerator &planner,
                                            duckdb::LogicalInsert &op, optional_ptr<PhysicalOperator> plan) {
	auto &table = op.table.Cast<RemoteTableEntry>();
	if (op.on_conflict_info.action_type != duckdb::OnConflictAction::THROW) {
		throw NotImplementedException("not supported: ON CONFLICT with local rows into %s. Insert them into a remote "
		                              "table "
		                              "first, then use INSERT … SELECT … ON CONFLICT on the node",
		                              table.RemoteName());
	}
	auto &insert =
	    planner.Make<PhysicalRemoteInsert>(op.types, op.estimated_cardinality, *this).Cast<PhysicalRemoteInsert>();
	auto &transaction = RemoteTransaction::Get(context, *this);
	insert.snapshot = transaction.Snapshot(context, false);
	transaction.RegisterPiece(context, std::make_shared<RemoteStreamSlot>());
	auto projection =
	    plan->type == duckdb::PhysicalOperatorType::PROJECTION ? &plan->Cast<duckdb::PhysicalProjection>() : nullptr;
	std::string list, all;
	for (auto &column : table.GetColumns().Physical()) {
		auto index = column.StorageOid();
		auto name = duckdb::SQLIdentifier::ToString(column.Name());
		all += (all.empty() ? "" : ", ") + name;
		// The binder moved the default into the plan for a column the statement leaves out: the server fills it.
		if (index < op.bound_defaults.size() && !op.bound_defaults[index]) {
			if (projection) {
				projection->select_list[index] =
				    duckdb::make_uniq<duckdb::BoundConstantExpression>(duckdb::Value(column.Type()));
			}
			continue;
		}
		list += (list.empty() ? "" : ", ") + name;
		insert.columns.push_back(index);
		insert.names.push_back(column.Name().GetIdentifierName());
		insert.sent.push_back(plan->types[index]);
	}
	if (insert.columns.empty()) {
		throw NotImplementedException("not supported: local rows that name no column of %s", table.RemoteName());
	}
	CheckSendable(insert.sent, table.RemoteName());
	insert.target = table.RemoteName() + " (" + list + ")";
	insert.suffix = op.return_chunk ? " RETURNING " + all : "";
	insert.children.push_back(*plan);
	return insert;
}

PhysicalOperator &RemoteCatalog::PlanCreateTableAs(ClientContext &context, PhysicalPlanGenerator &planner,
                                                   duckdb::LogicalCreateTable &op, PhysicalOperator &plan) {
	auto &info = op.info->Base().Cast<duckdb::CreateTableInfo>();
	auto copy = duckdb::unique_ptr_cast<duckdb::CreateInfo, duckdb::CreateTableInfo>(info.Copy());
	copy->StripCatalogQualification();
	copy->query.reset();
	auto schema = op.schema.name.GetIdentifierName();
	auto table = duckdb::SQLIdentifier::ToString(schema) + "." +
	             duckdb::SQLIdentifier::ToString(info.GetTableName().GetIdentifierName());
	auto &insert =
	    planner.Make<PhysicalRemoteInsert>(op.types, op.estimated_cardinality, *this).Cast<PhysicalRemoteInsert>();
	RemoteTransaction::Get(context, *this).RegisterPiece(context, std::make_shared<RemoteStreamSlot>());
	insert.ddl_before = copy->ToString();
	std::string list;
	for (auto &column : info.columns.Physical()) {
		auto index = column.StorageOid();
		list += (list.empty() ? "" : ", ") + duckdb::SQLIdentifier::ToString(column.Name());
		insert.columns.push_back(index);
		insert.names.push_back(column.Name().GetIdentifierName());
		insert.sent.push_back(plan.types[index]);
	}
	CheckSendable(insert.sent, table);
	insert.target = table + " (" + list + ")";
	insert.children.push_back(plan);
	return insert;
}

[[noreturn]] static void RefuseLocalData(const char *what, const duckdb::Catalog &catalog) {
	auto &name = catalog.GetName().GetIdentifierName();
	throw NotImplementedException("not supported: %s of a remote table with local data (tables, files, data frames or "
	                              "functions of this session). Copy the local rows first (CREATE TABLE %s.x AS FROM "
	                              "…), then "
	                              "the whole statement runs on the node",
	                              what, name);
}

PhysicalOperator &RemoteCatalog::PlanDelete(ClientContext &, PhysicalPlanGenerator &, duckdb::LogicalDelete &,
                                            PhysicalOperator &) {
	RefuseLocalData("DELETE", *this);
}

PhysicalOperator &RemoteCatalog::PlanUpdate(ClientContext &, PhysicalPlanGenerator &, duckdb::LogicalUpdate &,
                                            PhysicalOperator &) {
	RefuseLocalData("UPDATE", *this);
}

PhysicalOperator &RemoteCatalog::PlanMergeInto(ClientContext &, PhysicalPlanGenerator &, duckdb::LogicalMergeInto &,
                                               PhysicalOperator &) {
	RefuseLocalData("MERGE or ON CONFLICT", *this);
}

} // namespace sql
} // namespace quack
