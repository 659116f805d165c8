#include "quack/sql/remote_insert.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/common/type_visitor.hpp"
#include "duckdb/execution/operator/projection/physical_projection.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/parser/parsed_data/create_table_info.hpp"
#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/planner/expression/bound_constant_expression.hpp"
#include "duckdb/planner/expression/bound_reference_expression.hpp"
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
	return "scan_data_from_quack_client('" + stream_id + "', NULL::STRUCT(" + fields + "), ordered := true)";
}

duckdb::unique_ptr<duckdb::GlobalSinkState> PhysicalRemoteInsert::GetGlobalSinkState(ClientContext &context) const {
	auto state = duckdb::make_uniq<RemoteInsertState>(types, "the write to " + target);
	auto &transaction = RemoteTransaction::Get(context, catalog);
	if (!ddl_before.empty()) {
		transaction.RequireExplicit(); // CREATE and rows are one unit
		catalog.ExecuteDdl(context, ddl_before);
	}
	RemoteStatement statement;
	auto stream_id = HugeintToUuid(RemoteCluster::RandomUuid());
	statement.sql = prefix + StreamSource(*this, stream_id) + suffix;
	statement.effect = true;
	statement.returning = returning;
	statement.counts_itself = deferred;
	state->sender = transaction.OpenSender(context, statement, stream_id, deferred);
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
	insert.deferred = transaction.RegisterPiece(context, std::make_shared<RemoteStreamSlot>());
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
	insert.target = table.RemoteName();
	insert.prefix = "INSERT INTO " + table.RemoteName() + " (" + list + ") SELECT * FROM ";
	insert.returning = op.return_chunk;
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
	insert.deferred =
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
	insert.target = table;
	insert.prefix = "INSERT INTO " + table + " (" + list + ") SELECT * FROM ";
	insert.children.push_back(plan);
	return insert;
}

//! The operator that changes rows of `table` by their row ids, as the scan of the same transaction gave them.
static PhysicalRemoteInsert &MakeRowChange(ClientContext &context, PhysicalPlanGenerator &planner,
                                           RemoteCatalog &catalog, RemoteTableEntry &table, duckdb::LogicalOperator &op,
                                           PhysicalOperator &plan, bool return_chunk) {
	if (table.IsView()) {
		throw duckdb::BinderException("%s is a view: only tables can be changed", table.RemoteName());
	}
	auto &change =
	    planner.Make<PhysicalRemoteInsert>(op.types, op.estimated_cardinality, catalog).Cast<PhysicalRemoteInsert>();
	auto &transaction = RemoteTransaction::Get(context, catalog);
	change.snapshot = transaction.Snapshot(context, false);
	transaction.RegisterPiece(context, std::make_shared<RemoteStreamSlot>());
	change.deferred = true;
	change.target = table.RemoteName();
	change.returning = return_chunk;
	change.children.push_back(plan);
	return change;
}

static std::string ReturningList(const RemoteTableEntry &table, const char *alias) {
	std::string list;
	for (auto &column : table.GetColumns().Physical()) {
		list += (list.empty() ? " RETURNING " : ", ") + std::string(alias) + "." +
		        duckdb::SQLIdentifier::ToString(column.Name());
	}
	return list;
}

static void AddRowId(PhysicalRemoteInsert &change, idx_t index) {
	change.columns.push_back(index);
	change.names.push_back("row_id");
	change.sent.push_back(LogicalType::BIGINT);
}

PhysicalOperator &RemoteCatalog::PlanDelete(ClientContext &context, PhysicalPlanGenerator &planner,
                                            duckdb::LogicalDelete &op, PhysicalOperator &plan) {
	auto &table = op.table.Cast<RemoteTableEntry>();
	auto &change = MakeRowChange(context, planner, *this, table, op, plan, op.return_chunk);
	AddRowId(change, op.expressions[0]->Cast<duckdb::BoundReferenceExpression>().Index());
	change.prefix = "DELETE FROM " + table.RemoteName() + " AS quack_target WHERE rowid IN (SELECT row_id FROM ";
	// A DELETE also returns the virtual columns of its table.
	change.suffix = ")" + (op.return_chunk ? ReturningList(table, "quack_target") + ", quack_target.rowid" : "");
	return change;
}

PhysicalOperator &RemoteCatalog::PlanUpdate(ClientContext &context, PhysicalPlanGenerator &planner,
                                            duckdb::LogicalUpdate &op, PhysicalOperator &plan) {
	auto &table = op.table.Cast<RemoteTableEntry>();
	auto &change = MakeRowChange(context, planner, *this, table, op, plan, op.return_chunk);
	std::string set;
	for (idx_t i = 0; i < op.columns.size(); i++) {
		auto &column = table.GetColumns().GetColumn(op.columns[i]);
		auto name = duckdb::SQLIdentifier::ToString(column.Name());
		set += (set.empty() ? "" : ", ") + name + " = ";
		if (op.expressions[i]->GetExpressionType() == duckdb::ExpressionType::VALUE_DEFAULT) {
			set += "DEFAULT";
			continue;
		}
		auto index = op.expressions[i]->Cast<duckdb::BoundReferenceExpression>().Index();
		auto field = "value_" + std::to_string(i);
		set += "quack_change." + field;
		change.columns.push_back(index);
		change.names.push_back(field);
		change.sent.push_back(plan.types[index]);
	}
	CheckSendable(change.sent, table.RemoteName());
	AddRowId(change, plan.types.size() - 1);
	change.prefix = "UPDATE " + table.RemoteName() + " AS quack_target SET " + set + " FROM ";
	change.suffix = " AS quack_change WHERE quack_target.rowid = quack_change.row_id" +
	                (op.return_chunk ? ReturningList(table, "quack_target") : "");
	return change;
}

PhysicalOperator &RemoteCatalog::PlanMergeInto(ClientContext &context, PhysicalPlanGenerator &planner,
                                               duckdb::LogicalMergeInto &op, PhysicalOperator &plan) {
	if (op.return_chunk) {
		throw NotImplementedException(
		    "not supported: RETURNING of a MERGE or ON CONFLICT of %s with local rows. Copy the "
		    "local rows first (CREATE TABLE %s.x AS FROM …), then the whole statement runs on "
		    "the node",
		    op.table.Cast<RemoteTableEntry>().RemoteName(), GetName().GetIdentifierName());
	}
	// DuckDB plans each action through PlanInsert, PlanUpdate and PlanDelete above.
	return Catalog::PlanMergeInto(context, planner, op, plan);
}

} // namespace sql
} // namespace quack
