//! The catalog behind `ATTACH 'quack:…'`: whole statements are pushed to a node, the rest is answered from a snapshot
//! of the remote schema.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "duckdb.hpp"
#include "duckdb/catalog/catalog.hpp"

#include "quack/sql/remote_cluster.hpp"
#include "quack/sql/remote_snapshot.hpp"

namespace quack {
namespace sql {

class RemoteCatalog : public duckdb::Catalog {
public:
	static constexpr const char *TYPE = "quack";

	RemoteCatalog(duckdb::AttachedDatabase &db, std::shared_ptr<RemoteCluster> cluster, std::string path);
	~RemoteCatalog() override;

	void Initialize(bool load_builtin) override {
		(void)load_builtin;
	}
	void OnDetach(duckdb::ClientContext &context) override;
	std::string GetCatalogType() override {
		return TYPE;
	}
	duckdb::optional_idx GetCatalogVersion(duckdb::ClientContext &context) override;
	bool InMemory() override {
		return false;
	}
	std::string GetDBPath() override {
		return path;
	}
	duckdb::DatabaseSize GetDatabaseSize(duckdb::ClientContext &context) override;
	duckdb::optional<duckdb::Identifier> GetDefaultSchema() const override;
	bool SupportsMultipleDMLCTEs() const override {
		return true;
	}

	duckdb::optional_ptr<duckdb::SchemaCatalogEntry> LookupSchema(duckdb::CatalogTransaction transaction,
	                                                              const duckdb::EntryLookupInfo &schema_lookup,
	                                                              duckdb::OnEntryNotFound if_not_found) override;
	void ScanSchemas(duckdb::ClientContext &context,
	                 std::function<void(duckdb::SchemaCatalogEntry &)> callback) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateSchema(duckdb::CatalogTransaction transaction,
	                                                        duckdb::CreateSchemaInfo &info) override;

	//! The node judges options and all else.
	duckdb::ErrorData SupportsCreateTable(duckdb::BoundCreateTableInfo &info) override;
	bool Supports(duckdb::RemoteCapability capability) const override;
	duckdb::unique_ptr<duckdb::TableRef> RemoteExecute(duckdb::ClientContext &context,
	                                                   duckdb::unique_ptr<duckdb::QueryNode> node) override;
	duckdb::unique_ptr<duckdb::TableRef> RemoteExecute(duckdb::ClientContext &context,
	                                                   duckdb::unique_ptr<duckdb::SQLStatement> statement) override;
	duckdb::unique_ptr<duckdb::TableRef> RemoteExecute(duckdb::ClientContext &context, const std::string &sql) override;
	bool SupportsPushdown(const duckdb::ParsedExpression &expression) override;
	bool SupportsPushdown(const duckdb::TableRef &ref) override;

	duckdb::PhysicalOperator &PlanCreateTableAs(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                            duckdb::LogicalCreateTable &op,
	                                            duckdb::PhysicalOperator &plan) override;
	duckdb::PhysicalOperator &PlanInsert(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                     duckdb::LogicalInsert &op,
	                                     duckdb::optional_ptr<duckdb::PhysicalOperator> plan) override;
	duckdb::PhysicalOperator &PlanDelete(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                     duckdb::LogicalDelete &op, duckdb::PhysicalOperator &plan) override;
	duckdb::PhysicalOperator &PlanUpdate(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                     duckdb::LogicalUpdate &op, duckdb::PhysicalOperator &plan) override;
	duckdb::PhysicalOperator &PlanMergeInto(duckdb::ClientContext &context, duckdb::PhysicalPlanGenerator &planner,
	                                        duckdb::LogicalMergeInto &op, duckdb::PhysicalOperator &plan) override;

	const std::shared_ptr<RemoteCluster> &Cluster() const {
		return cluster;
	}
	//! The shared snapshot of the newest version anyone loaded; null before the first load.
	std::shared_ptr<RemoteSnapshot> Shared();
	void SetShared(std::shared_ptr<RemoteSnapshot> snapshot);
	//! Learns the newest catalog version by one small request. Throws when no node answers within the budget.
	void CheckVersion(const RemoteBudget &budget);
	//! Runs DDL text in the context's transaction and forgets the schema it knew.
	void ExecuteDdl(duckdb::ClientContext &context, const std::string &sql);
	//! Schema that unqualified names mean in this session; empty = the node's default.
	std::string SearchSchema(duckdb::ClientContext &context);

private:
	void DropSchema(duckdb::ClientContext &context, duckdb::DropInfo &info) override;

	std::shared_ptr<RemoteCluster> cluster;
	const std::string path;
	std::mutex lock; //! guards shared
	std::shared_ptr<RemoteSnapshot> shared;
};

//! Null when `name` is no remote attachment.
duckdb::optional_ptr<RemoteCatalog> FindRemoteCatalog(duckdb::ClientContext &context, const std::string &name);

} // namespace sql
} // namespace quack
