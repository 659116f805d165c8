#include "quack/catalog/replicated_catalog.hpp"

#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/parser/parsed_data/alter_table_info.hpp"
#include "duckdb/parser/parsed_data/attach_info.hpp"
#include "duckdb/parser/parsed_data/create_index_info.hpp"
#include "duckdb/parser/parsed_data/create_schema_info.hpp"
#include "duckdb/parser/statement/create_statement.hpp"
#include "duckdb/planner/binder.hpp"
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
	auto result = DuckCatalog::BindCreateIndex(binder, stmt, table, std::move(plan));
	return &binder.context == core->apply_context.load() ? std::move(result) : DeclareOnly(std::move(result));
}

duckdb::unique_ptr<duckdb::LogicalOperator> ReplicatedCatalog::BindAlterAddIndex(
    duckdb::Binder &binder, duckdb::TableCatalogEntry &table_entry, duckdb::unique_ptr<duckdb::LogicalOperator> plan,
    duckdb::unique_ptr<duckdb::CreateIndexInfo> create_info, duckdb::unique_ptr<duckdb::AlterTableInfo> alter_info) {
	auto result = DuckCatalog::BindAlterAddIndex(binder, table_entry, std::move(plan), std::move(create_info),
	                                             std::move(alter_info));
	return &binder.context == core->apply_context.load() ? std::move(result) : DeclareOnly(std::move(result));
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
