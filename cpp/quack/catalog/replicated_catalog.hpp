//! The catalog `cp`: DuckDB's own, except that writes to the schema `__quack` are refused and that local transactions
//! declare indexes without building them.
#pragma once

#include "duckdb.hpp"
#include "duckdb/catalog/duck_catalog.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

class ReplicatedCatalog final : public duckdb::DuckCatalog {
public:
	ReplicatedCatalog(duckdb::AttachedDatabase &database, std::shared_ptr<ReplicaCore> core_p);

	duckdb::string GetCatalogType() override {
		return STORAGE_TYPE;
	}
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateSchema(duckdb::CatalogTransaction transaction,
	                                                        duckdb::CreateSchemaInfo &info) override;
	duckdb::PhysicalOperator &PlanInsert(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                     duckdb::LogicalInsert &op,
	                                     duckdb::optional_ptr<duckdb::PhysicalOperator> plan) override;
	duckdb::PhysicalOperator &PlanDelete(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                     duckdb::LogicalDelete &op, duckdb::PhysicalOperator &plan) override;
	duckdb::PhysicalOperator &PlanUpdate(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                     duckdb::LogicalUpdate &op, duckdb::PhysicalOperator &plan) override;
	duckdb::PhysicalOperator &PlanMergeInto(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                        duckdb::LogicalMergeInto &op, duckdb::PhysicalOperator &plan) override;

	duckdb::unique_ptr<duckdb::LogicalOperator>
	BindCreateIndex(duckdb::Binder &binder, duckdb::CreateStatement &stmt, duckdb::TableCatalogEntry &table,
	                duckdb::unique_ptr<duckdb::LogicalOperator> plan) override;
	duckdb::unique_ptr<duckdb::LogicalOperator>
	BindAlterAddIndex(duckdb::Binder &binder, duckdb::TableCatalogEntry &table_entry,
	                  duckdb::unique_ptr<duckdb::LogicalOperator> plan,
	                  duckdb::unique_ptr<duckdb::CreateIndexInfo> create_info,
	                  duckdb::unique_ptr<duckdb::AlterTableInfo> alter_info) override;

	//! Takes the options of this extension; the table gets its place at COMMIT.
	duckdb::ErrorData SupportsCreateTable(duckdb::BoundCreateTableInfo &info) override;
	//! When CREATE TABLE is planned. Throws BinderException when a foreign key would leave the table's group. What
	//! other statements of the transaction may still change is looked at again at COMMIT.
	void CheckCreate(duckdb::ClientContext &context, duckdb::BoundCreateTableInfo &info);
	//! At the COMMIT of the session's transaction the table gets another place. Throws BinderException when it cannot;
	//! within BEGIN ... COMMIT foreign keys are looked at at COMMIT, so that tables that they join can move together.
	void Place(duckdb::ClientContext &context, duckdb::DuckTableEntry &table, PlacementRequest request);

	//! A statement of a serializable transaction may read the table.
	void NoteRead(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table);

	const std::shared_ptr<ReplicaCore> &Core() const {
		return core;
	}

private:
	void RequireGroupStatements() const;
	TablePlace PlaceOf(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table);
	void CheckForeignKey(duckdb::ClientContext &context, const ObjectName &table, const TablePlace &place,
	                     const ObjectName &other);
	void CheckUniqueKey(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table,
	                    const duckdb::CreateIndexInfo &index);
	//! Refuses writes to `__quack`; notes others for eviction.
	void OnWrite(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table);

	std::shared_ptr<ReplicaCore> core;
};

//! While it lives, the storage type accepts one ATTACH, for this core. One per process at a time.
class AttachPermit {
public:
	explicit AttachPermit(std::shared_ptr<ReplicaCore> core);
	~AttachPermit();
	AttachPermit(const AttachPermit &) = delete;
	AttachPermit &operator=(const AttachPermit &) = delete;

private:
	std::unique_lock<std::mutex> exclusive;
};

} // namespace catalog
} // namespace quack
