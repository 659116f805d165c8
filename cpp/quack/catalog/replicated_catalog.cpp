#include "quack/catalog/replicated_catalog.hpp"

#include <algorithm>

#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/parser/constraints/foreign_key_constraint.hpp"
#include "duckdb/parser/parsed_data/alter_table_info.hpp"
#include "duckdb/parser/parsed_data/attach_info.hpp"
#include "duckdb/parser/parsed_data/create_index_info.hpp"
#include "duckdb/parser/parsed_data/create_schema_info.hpp"
#include "duckdb/parser/statement/create_statement.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/parsed_data/bound_create_table_info.hpp"
#include "duckdb/planner/operator/logical_delete.hpp"
#include "duckdb/planner/operator/logical_insert.hpp"
#include "duckdb/planner/operator/logical_merge_into.hpp"
#include "duckdb/planner/operator/logical_update.hpp"
#include "duckdb/storage/storage_extension.hpp"
#include "duckdb/storage/storage_manager.hpp"
#include "quack/catalog/capture.hpp"
#include "quack/catalog/index_declaration.hpp"
#include "quack/catalog/read_set.hpp"
#include "quack/catalog/replicated_transaction_manager.hpp"

namespace quack {
namespace catalog {
namespace {

std::mutex permit_lock;
//! Set while an AttachPermit lives. DuckDB may run the ATTACH on any of its threads.
std::mutex permitted_lock;
std::shared_ptr<ReplicaCore> permitted_core;

void SetPermitted(std::shared_ptr<ReplicaCore> core) {
	std::lock_guard<std::mutex> guard(permitted_lock);
	permitted_core = std::move(core);
}

std::shared_ptr<ReplicaCore> PermittedFor(duckdb::AttachedDatabase &database, const std::string &path) {
	std::lock_guard<std::mutex> guard(permitted_lock);
	bool match =
	    permitted_core && &database.GetDatabase() == &permitted_core->instance && path == permitted_core->options.path;
	return match ? permitted_core : nullptr;
}

duckdb::unique_ptr<duckdb::Catalog> Attach(duckdb::optional_ptr<duckdb::StorageExtensionInfo>, duckdb::ClientContext &,
                                           duckdb::AttachedDatabase &database, const duckdb::string &,
                                           duckdb::AttachInfo &info, duckdb::AttachOptions &) {
	auto core = PermittedFor(database, info.path);
	if (!core) {
		throw duckdb::PermissionException("ATTACH ... (TYPE %s) is reserved for the node itself; clients use "
		                                  "ATTACH 'quack:<host>:<port>' AS <name> (TYPE quack, ...)",
		                                  STORAGE_TYPE);
	}
	return duckdb::make_uniq<ReplicatedCatalog>(database, std::move(core));
}

duckdb::unique_ptr<duckdb::TransactionManager>
CreateTransactionManager(duckdb::optional_ptr<duckdb::StorageExtensionInfo>, duckdb::AttachedDatabase &database,
                         duckdb::Catalog &catalog) {
	auto &core = static_cast<ReplicatedCatalog &>(catalog).Core();
	return duckdb::make_uniq<ReplicatedTransactionManager>(database, core);
}

} // namespace

AttachPermit::AttachPermit(std::shared_ptr<ReplicaCore> core) : exclusive(permit_lock) {
	SetPermitted(std::move(core));
}

AttachPermit::~AttachPermit() {
	SetPermitted(nullptr);
}

void RegisterReplicaStorage(duckdb::DBConfig &config) {
	auto extension = duckdb::make_shared_ptr<duckdb::StorageExtension>();
	extension->attach = Attach;
	extension->create_transaction_manager = CreateTransactionManager;
	duckdb::StorageExtension::Register(config, STORAGE_TYPE, std::move(extension));
	RegisterReadSets(config);
}

ReplicatedCatalog::ReplicatedCatalog(duckdb::AttachedDatabase &database, std::shared_ptr<ReplicaCore> core_p)
    : DuckCatalog(database), core(std::move(core_p)) {
}

duckdb::optional_ptr<duckdb::CatalogEntry> ReplicatedCatalog::CreateSchema(duckdb::CatalogTransaction transaction,
                                                                           duckdb::CreateSchemaInfo &info) {
	bool by_user = transaction.HasContext() && GetAttached().GetStorageManager().IsLoaded() &&
	               &transaction.GetContext() != core->apply_context.load();
	if (by_user && info.SchemaName() == duckdb::Identifier(META_SCHEMA)) {
		throw duckdb::PermissionException("schema name \"%s\" is reserved", META_SCHEMA);
	}
	return DuckCatalog::CreateSchema(transaction, info);
}

duckdb::unique_ptr<duckdb::LogicalOperator>
ReplicatedCatalog::BindCreateIndex(duckdb::Binder &binder, duckdb::CreateStatement &stmt,
                                   duckdb::TableCatalogEntry &table, duckdb::unique_ptr<duckdb::LogicalOperator> plan) {
	CheckUniqueKey(binder.context, table, stmt.info->Cast<duckdb::CreateIndexInfo>());
	auto result = DuckCatalog::BindCreateIndex(binder, stmt, table, std::move(plan));
	return &binder.context == core->apply_context.load() ? std::move(result) : DeclareOnly(std::move(result));
}

duckdb::unique_ptr<duckdb::LogicalOperator> ReplicatedCatalog::BindAlterAddIndex(
    duckdb::Binder &binder, duckdb::TableCatalogEntry &table_entry, duckdb::unique_ptr<duckdb::LogicalOperator> plan,
    duckdb::unique_ptr<duckdb::CreateIndexInfo> create_info, duckdb::unique_ptr<duckdb::AlterTableInfo> alter_info) {
	CheckUniqueKey(binder.context, table_entry, *create_info);
	auto result = DuckCatalog::BindAlterAddIndex(binder, table_entry, std::move(plan), std::move(create_info),
	                                             std::move(alter_info));
	return &binder.context == core->apply_context.load() ? std::move(result) : DeclareOnly(std::move(result));
}

//! Groups are for those who asked for them.
void ReplicatedCatalog::RequireGroupStatements() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	if (!core->state.is_multiraft_sql_enabled) {
		throw duckdb::NotImplementedException("tables are placed in groups only after SELECT "
		                                      "quack_multiraft_sql_set_enabled(true); (on any node, for the "
		                                      "whole cluster)");
	}
}

//! A table that this transaction has made or changed may have had another name, or be another table under the name of
//! one with a place: then COMMIT, which follows the changes, has to tell.
static bool IsPlaceKnown(const duckdb::TableCatalogEntry &table) {
	return table.timestamp.load() < duckdb::TRANSACTION_ID_START || table.tags.find(PLACEMENT_TAG) != table.tags.end();
}

//! Where the table will live when the session's transaction commits now.
TablePlace ReplicatedCatalog::PlaceOf(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table) {
	auto name = NameOf(table);
	auto wish = core->transactions.PlacementOf(duckdb::DuckTransaction::Get(context, *this), name);
	auto tag = table.tags.find(PLACEMENT_TAG);
	if (!wish && tag != table.tags.end()) {
		auto request = PlacementFromTag(tag->second);
		wish = request.IsOk() ? std::make_optional(request.Value()) : std::nullopt;
	}
	std::lock_guard<std::mutex> guard(core->state_lock);
	auto &placements = core->state.placements;
	return PlaceAfter(wish ? &*wish : nullptr, placements.Of(name.Key()), placements);
}

//! Throws BinderException: what a foreign key points to must be decided in the same log.
void ReplicatedCatalog::CheckForeignKey(duckdb::ClientContext &context, const ObjectName &table,
                                        const TablePlace &place, const ObjectName &other) {
	duckdb::vector<duckdb::Identifier> path(other.schema.begin(), other.schema.end());
	auto name = duckdb::QualifiedName::FromCatalogSchema(GetName(), std::move(path), duckdb::Identifier(other.name));
	auto entry = GetEntry<duckdb::TableCatalogEntry>(context, name, duckdb::OnEntryNotFound::RETURN_NULL);
	if (!entry) {
		return; // DuckDB says so
	}
	if (IsPlaceKnown(*entry)) {
		CheckForeignKeyPlaces(table.name, place, other.name, PlaceOf(context, *entry));
	}
}

void ReplicatedCatalog::CheckCreate(duckdb::ClientContext &context, duckdb::BoundCreateTableInfo &info) {
	auto is_foreign_key = [](const duckdb::unique_ptr<duckdb::Constraint> &constraint) {
		return constraint->type == duckdb::ConstraintType::FOREIGN_KEY;
	};
	auto &base = info.Base();
	auto &constraints = base.constraints;
	if (&context == core->apply_context.load() ||
	    std::none_of(constraints.begin(), constraints.end(), is_foreign_key)) {
		return;
	}
	auto copy = base.Copy();
	auto request = TakePlacementOptions(copy->Cast<duckdb::CreateTableInfo>());
	auto table = NameOf(info.schema);
	table.schema.push_back(table.name);
	table.name = base.GetTableName().GetIdentifierName();
	if (request) {
		RequireGroupStatements();
		CheckPlacementRequest(table.name, base.columns, constraints, *request);
	}
	auto place = PlaceAfter(request ? &*request : nullptr, nullptr, Placements());
	for (auto &constraint : constraints) {
		auto other = table;
		if (is_foreign_key(constraint)) {
			other.name = constraint->Cast<duckdb::ForeignKeyConstraint>().info.table.GetIdentifierName();
		}
		if (other.Key() != table.Key()) {
			CheckForeignKey(context, table, place, other);
		}
	}
}

duckdb::ErrorData ReplicatedCatalog::SupportsCreateTable(duckdb::BoundCreateTableInfo &info) {
	auto &base = info.Base();
	try {
		auto request = TakePlacementOptions(base);
		if (request) {
			RequireGroupStatements();
			CheckPlacementRequest(base.GetTableName().GetIdentifierName(), base.columns, base.constraints, *request);
			base.tags[PLACEMENT_TAG] = PlacementToTag(*request);
		}
	} catch (std::exception &error) {
		return duckdb::ErrorData(error);
	}
	return DuckCatalog::SupportsCreateTable(info);
}

void ReplicatedCatalog::Place(duckdb::ClientContext &context, duckdb::DuckTableEntry &table, PlacementRequest request) {
	RequireGroupStatements();
	auto name = NameOf(table);
	if (table.timestamp.load() >= duckdb::TRANSACTION_ID_START) {
		throw duckdb::BinderException("table \"%s\" was created or altered in this transaction: COMMIT before it gets "
		                              "another place, or say its place in CREATE TABLE ... WITH",
		                              name.ToString());
	}
	if (request.kind == PlacementRequest::Kind::Resized && !PlaceOf(context, table).IsSharded()) {
		throw duckdb::
		    BinderException("table \"%s\" is not sharded, so it has no number of groups: SET GROUPS is for tables "
			                "created WITH (quack_shard_key = ..., quack_initial_groups = ...)",
			                name.ToString());
	}
	auto &transaction = duckdb::DuckTransaction::Get(context, *this);
	for (auto &constraint : table.GetConstraints()) {
		auto other = name;
		if (constraint->type == duckdb::ConstraintType::FOREIGN_KEY) {
			other.name = constraint->Cast<duckdb::ForeignKeyConstraint>().info.table.GetIdentifierName();
		}
		if (other.Key() == name.Key()) {
			continue;
		}
		if (context.transaction.IsAutoCommit()) {
			CheckForeignKey(context, name, PlaceAfter(&request, nullptr, Placements()), other);
		}
		core->transactions.NoteForeignKey(transaction, name, other);
	}
	OnWrite(context, table);
	core->transactions.NotePlacement(transaction, name, std::move(request));
}

//! Throws BinderException: a unique key of a sharded table must hold its shard key.
void ReplicatedCatalog::CheckUniqueKey(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table,
                                       const duckdb::CreateIndexInfo &index) {
	if (index.constraint_type == duckdb::IndexConstraintType::NONE || !IsPlaceKnown(table)) {
		return;
	}
	auto place = PlaceOf(context, table);
	if (!place.IsSharded()) {
		return;
	}
	CheckUniqueHoldsShardKey(table.name.GetIdentifierName(), place.shard_key, UniqueColumns(index.parsed_expressions),
	                         "the unique index");
}

void ReplicatedCatalog::OnWrite(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table) {
	if (&context == core->apply_context.load()) {
		return;
	}
	auto name = NameOf(table);
	if (duckdb::StringUtil::CIEquals(name.schema[0], META_SCHEMA)) {
		throw duckdb::PermissionException("schema \"%s\" holds the replication state and is read-only", META_SCHEMA);
	}
	core->transactions.NoteWrite(duckdb::DuckTransaction::Get(context, *this), name);
}

void ReplicatedCatalog::NoteRead(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table) {
	if (&context != core->apply_context.load() && IsSerializable(context)) {
		core->transactions.NoteRead(duckdb::DuckTransaction::Get(context, *this), NameOf(table));
	}
}

duckdb::PhysicalOperator &ReplicatedCatalog::PlanInsert(duckdb::ClientContext &context,
                                                        duckdb::PhysicalPlanGenerator &planner,
                                                        duckdb::LogicalInsert &op,
                                                        duckdb::optional_ptr<duckdb::PhysicalOperator> plan) {
	OnWrite(context, op.table);
	return DuckCatalog::PlanInsert(context, planner, op, plan);
}

duckdb::PhysicalOperator &ReplicatedCatalog::PlanDelete(duckdb::ClientContext &context,
                                                        duckdb::PhysicalPlanGenerator &planner,
                                                        duckdb::LogicalDelete &op, duckdb::PhysicalOperator &plan) {
	OnWrite(context, op.table);
	return DuckCatalog::PlanDelete(context, planner, op, plan);
}

duckdb::PhysicalOperator &ReplicatedCatalog::PlanUpdate(duckdb::ClientContext &context,
                                                        duckdb::PhysicalPlanGenerator &planner,
                                                        duckdb::LogicalUpdate &op, duckdb::PhysicalOperator &plan) {
	OnWrite(context, op.table);
	return DuckCatalog::PlanUpdate(context, planner, op, plan);
}

duckdb::PhysicalOperator &ReplicatedCatalog::PlanMergeInto(duckdb::ClientContext &context,
                                                           duckdb::PhysicalPlanGenerator &planner,
                                                           duckdb::LogicalMergeInto &op,
                                                           duckdb::PhysicalOperator &plan) {
	OnWrite(context, op.table);
	return DuckCatalog::PlanMergeInto(context, planner, op, plan);
}

} // namespace catalog
} // namespace quack
