#include "quack/catalog/index_declaration.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/execution/operator/scan/physical_dummy_scan.hpp"
#include "duckdb/execution/physical_operator.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/parser/parsed_data/alter_table_info.hpp"
#include "duckdb/parser/parsed_data/create_index_info.hpp"
#include "duckdb/planner/operator/logical_create_index.hpp"
#include "duckdb/planner/operator/logical_extension_operator.hpp"
#include "duckdb/storage/data_table.hpp"

namespace quack {
namespace catalog {
namespace {

duckdb::optional_ptr<duckdb::CatalogEntry> FindIndex(duckdb::ClientContext &context, duckdb::TableCatalogEntry &table,
                                                     const duckdb::CreateIndexInfo &info) {
	auto &schema = table.schema;
	return schema.GetEntry(schema.GetCatalogTransaction(context), duckdb::CatalogType::INDEX_ENTRY,
	                       info.GetIndexName());
}

class PhysicalDeclareIndex final : public duckdb::PhysicalOperator {
public:
	PhysicalDeclareIndex(duckdb::PhysicalPlan &plan, duckdb::LogicalCreateIndex &create)
	    : PhysicalOperator(plan, duckdb::PhysicalOperatorType::EXTENSION, {duckdb::LogicalType::BIGINT}, 0),
	      table(create.table.Cast<duckdb::DuckTableEntry>()), info(std::move(create.info)),
	      alter_info(std::move(create.alter_table_info)) {
		for (auto column : info->column_ids) {
			physical_columns.push_back(table.GetColumns().LogicalToPhysical(duckdb::LogicalIndex(column)).index);
		}
	}

	duckdb::string GetName() const override {
		return "DECLARE_INDEX";
	}
	bool IsSource() const override {
		return true;
	}

protected:
	duckdb::SourceResultType GetDataInternal(duckdb::ExecutionContext &context, duckdb::DataChunk &,
	                                         duckdb::OperatorSourceInput &) const override {
		auto &client = context.client;
		if (!table.GetStorage().IsMainTable()) {
			throw duckdb::TransactionException(
			    "Transaction conflict: cannot add an index to a table that has been altered or dropped");
		}
		info->column_ids = physical_columns;
		if (!alter_info) {
			auto &schema = table.schema;
			schema.CreateIndex(schema.GetCatalogTransaction(client), *info, table);
			return duckdb::SourceResultType::FINISHED;
		}
		auto &constraint = *alter_info->Cast<duckdb::AddConstraintInfo>().constraint;
		constraint.SetBackingIndexOid(duckdb::DatabaseManager::Get(client).NextOid());
		table.catalog.Alter(client, *alter_info);
		return duckdb::SourceResultType::FINISHED;
	}

private:
	duckdb::DuckTableEntry &table;
	duckdb::unique_ptr<duckdb::CreateIndexInfo> info;
	duckdb::unique_ptr<duckdb::AlterTableInfo> alter_info;
	duckdb::vector<duckdb::column_t> physical_columns;
};

class LogicalDeclareIndex final : public duckdb::LogicalExtensionOperator {
public:
	explicit LogicalDeclareIndex(duckdb::unique_ptr<duckdb::LogicalOperator> plan_p) : plan(std::move(plan_p)) {
	}

	//! The same refusals as DuckDB's own plan.
	duckdb::PhysicalOperator &CreatePlan(duckdb::ClientContext &context,
	                                     duckdb::PhysicalPlanGenerator &planner) override {
		auto &create = plan->Cast<duckdb::LogicalCreateIndex>();
		if (!create.alter_table_info && FindIndex(context, create.table, *create.info)) {
			if (create.info->on_conflict != duckdb::OnCreateConflict::IGNORE_ON_CONFLICT) {
				throw duckdb::CatalogException("Index with name %s already exists!", create.info->GetIndexName());
			}
			return planner.Make<duckdb::PhysicalDummyScan>(types, 0);
		}
		for (auto &expression : create.unbound_expressions) {
			if (!expression->IsConsistent() || expression->RequiresRebind()) {
				throw duckdb::BinderException("Index keys cannot contain expressions with side effects.");
			}
		}
		if (!context.db->config.GetIndexTypes().FindByName(create.info->index_type)) {
			throw duckdb::BinderException("Unknown index type: %s", create.info->index_type);
		}
		planner.dependencies.AddDependency(create.table);
		return planner.Make<PhysicalDeclareIndex>(create);
	}

	duckdb::string GetExtensionName() const override {
		return "quack";
	}
	duckdb::vector<duckdb::ColumnBinding> GetColumnBindings() override {
		return {duckdb::ColumnBinding(duckdb::TableIndex(0), duckdb::ProjectionIndex(0))};
	}

protected:
	void ResolveTypes() override {
		types = {duckdb::LogicalType::BIGINT};
	}

private:
	duckdb::unique_ptr<duckdb::LogicalOperator> plan;
};

} // namespace

duckdb::unique_ptr<duckdb::LogicalOperator> DeclareOnly(duckdb::unique_ptr<duckdb::LogicalOperator> create_index) {
	if (create_index->type != duckdb::LogicalOperatorType::LOGICAL_CREATE_INDEX) {
		throw duckdb::InternalException("CREATE INDEX was bound to an unknown plan");
	}
	return duckdb::make_uniq<LogicalDeclareIndex>(std::move(create_index));
}

} // namespace catalog
} // namespace quack
