#include "quack/catalog/read_set.hpp"

#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/optimizer/optimizer.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/planner/operator/logical_create_table.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_insert.hpp"
#include "duckdb/planner/operator/logical_merge_into.hpp"
#include "quack/catalog/replicated_catalog.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr const char *SNAPSHOT = "snapshot";
constexpr const char *SERIALIZABLE = "serializable";

void CheckIsolation(duckdb::ClientContext &, duckdb::SetScope, duckdb::Value &value) {
	auto text = value.IsNull() ? std::string() : duckdb::StringUtil::Lower(value.ToString());
	if (text != SNAPSHOT && text != SERIALIZABLE) {
		throw duckdb::InvalidInputException("%s: expected '%s' or '%s', got '%s'", SETTING_ISOLATION, SNAPSHOT,
		                                    SERIALIZABLE, value.ToString());
	}
	value = duckdb::Value(text);
}

void NoteTable(duckdb::ClientContext &context, const duckdb::TableCatalogEntry &table) {
	auto *catalog = dynamic_cast<ReplicatedCatalog *>(&table.catalog);
	if (catalog != nullptr) {
		catalog->NoteRead(context, table);
	}
}

void NoteReads(duckdb::ClientContext &context, duckdb::LogicalOperator &op) {
	using duckdb::LogicalOperatorType;
	switch (op.type) {
	case LogicalOperatorType::LOGICAL_GET:
		if (auto table = op.Cast<duckdb::LogicalGet>().GetTable()) {
			NoteTable(context, *table);
		}
		break;
	case LogicalOperatorType::LOGICAL_INSERT: {
		// ON CONFLICT decides by rows that it finds through an index.
		auto &insert = op.Cast<duckdb::LogicalInsert>();
		if (insert.on_conflict_info.action_type != duckdb::OnConflictAction::THROW) {
			NoteTable(context, insert.table);
		}
		break;
	}
	case LogicalOperatorType::LOGICAL_MERGE_INTO:
		NoteTable(context, op.Cast<duckdb::LogicalMergeInto>().table);
		break;
	default:
		break;
	}
	for (auto &child : op.children) {
		NoteReads(context, *child);
	}
}

//! CREATE TABLE itself is not told whose transaction it is in.
void CheckCreates(duckdb::ClientContext &context, duckdb::LogicalOperator &op) {
	if (op.type == duckdb::LogicalOperatorType::LOGICAL_CREATE_TABLE) {
		auto &create = op.Cast<duckdb::LogicalCreateTable>();
		if (auto *catalog = dynamic_cast<ReplicatedCatalog *>(&create.schema.catalog)) {
			catalog->CheckCreate(context, *create.info);
		}
	}
	for (auto &child : op.children) {
		CheckCreates(context, *child);
	}
}

void BeforeOptimize(duckdb::OptimizerExtensionInput &input, duckdb::unique_ptr<duckdb::LogicalOperator> &plan) {
	NoteReads(input.context, *plan);
	CheckCreates(input.context, *plan);
}

} // namespace

void RegisterReadSets(duckdb::DBConfig &config) {
	config.AddExtensionOption(SETTING_ISOLATION,
	                          "Isolation of transactions on the replicated catalog: 'snapshot', or 'serializable': a "
	                          "transaction that writes commits only when no table that it read was changed meanwhile",
	                          duckdb::LogicalType::VARCHAR, duckdb::Value(SNAPSHOT), CheckIsolation);
	duckdb::OptimizerExtension extension;
	extension.pre_optimize_function = BeforeOptimize;
	duckdb::OptimizerExtension::Register(config, std::move(extension));
}

bool IsSerializable(duckdb::ClientContext &context) {
	duckdb::Value value;
	return context.TryGetCurrentSetting(SETTING_ISOLATION, value) && !value.IsNull() &&
	       value.ToString() == SERIALIZABLE;
}

bool ReadsAreHidden(duckdb::ClientContext &context) {
	return duckdb::Optimizer::OptimizerDisabled(context, duckdb::OptimizerType::EXTENSION);
}

} // namespace catalog
} // namespace quack
