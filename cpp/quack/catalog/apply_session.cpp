#include "quack/catalog/apply_session.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/common/enums/database_modification_type.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/parser/constraint.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/bound_constraint.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/data_table_info.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/meta_transaction.hpp"

namespace quack {
namespace catalog {
namespace {

duckdb::shared_ptr<duckdb::AttachedDatabase> AttachedOrThrow(ReplicaCore &core) {
	auto database = core.Attached();
	if (!database) {
		throw duckdb::InternalException("catalog \"%s\" is not attached", CATALOG_NAME);
	}
	return database;
}

} // namespace

ApplySession::ApplySession(ReplicaCore &core_p)
    : core(core_p), database(AttachedOrThrow(core_p)), connection(core_p.instance) {
	using Modification = duckdb::DatabaseModificationType;
	auto &context = Context();
	core.apply_context = &context;
	context.transaction.SetAutoCommit(false); // begins
	active = true;
	auto &meta = duckdb::MetaTransaction::Get(context);
	meta.ModifyDatabase(*database, Modification(Modification::INSERT_DATA | Modification::DELETE_DATA |
	                                            Modification::UPDATE_DATA));
	// Its commits must not checkpoint: checkpoints are taken at thresholds, off the apply path.
	meta.GetTransaction(*database).Cast<duckdb::DuckTransaction>().SetIsCheckpointTransaction();
}

ApplySession::~ApplySession() {
	if (active) {
		tables.clear();
		try {
			Context().transaction.Rollback(nullptr);
		} catch (std::exception &) { // NOLINT: the caller is handling the first failure already
		}
	}
	core.apply_context = nullptr;
}

ApplyTable &ApplySession::Table(const ObjectName &name) {
	auto key = name.Key();
	auto found = tables.find(key);
	if (found == tables.end()) {
		found = tables.emplace(key, OpenTable(name)).first;
	}
	return *found->second;
}

std::unique_ptr<ApplyTable> ApplySession::OpenTable(const ObjectName &name) {
	duckdb::vector<duckdb::Identifier> path;
	for (auto &part : name.schema) {
		path.emplace_back(part);
	}
	auto qualified = duckdb::QualifiedName::FromCatalogSchema(duckdb::Identifier(CATALOG_NAME), std::move(path),
	                                                          duckdb::Identifier(name.name));
	auto entry = duckdb::Catalog::GetEntry<duckdb::TableCatalogEntry>(Context(), qualified,
	                                                                  duckdb::OnEntryNotFound::RETURN_NULL);
	if (!entry || !entry->IsDuckTable()) {
		throw Rejected {Status(ErrorCode::SchemaChanged, "table \"" + name.ToString() + "\" no longer exists")};
	}
	auto table = std::make_unique<ApplyTable>();
	table->entry = &entry->Cast<duckdb::DuckTableEntry>();
	table->storage = &table->entry->GetStorage();
	table->types = table->storage->GetTypes();
	table->storage->BindIndexes(Context());
	table->has_unique_index = table->storage->HasUniqueIndexes();
	for (auto column : table->storage->GetDataTableInfo()->GetIndexes().GetIndexedColumns()) {
		table->indexed_columns.insert(uint32_t(column));
	}
	bool has_foreign_key = false;
	for (auto &constraint : table->entry->GetConstraints()) {
		has_foreign_key = has_foreign_key || constraint->type == duckdb::ConstraintType::FOREIGN_KEY;
	}
	if (has_foreign_key) {
		auto all = duckdb::Binder::CreateBinder(Context())->BindConstraints(*table->entry);
		for (auto &constraint : all) {
			if (constraint->type == duckdb::ConstraintType::FOREIGN_KEY) {
				table->foreign_keys.push_back(std::move(constraint));
			}
		}
	}
	return table;
}

void ApplySession::Append(ApplyTable &table, duckdb::DataChunk &rows) {
	if (!table.append) {
		table.append = std::make_unique<duckdb::LocalAppendState>();
		table.storage->InitializeLocalAppend(*table.append, *table.entry, Context(), table.foreign_keys);
	}
	table.storage->LocalAppend(*table.append, *table.entry, Context(), rows, false);
}

void ApplySession::FinishAppends() {
	for (auto &entry : tables) {
		auto &table = *entry.second;
		if (table.append) {
			table.storage->FinalizeLocalAppend(*table.append);
			table.append.reset();
		}
	}
}

void ApplySession::ForgetTables() {
	FinishAppends();
	tables.clear();
}

void ApplySession::RequireUnchanged(const ObjectName &name, raft::LogIndex planned_version) const {
	auto status = core.state.CheckUnchanged(name, planned_version);
	if (!status.IsOk()) {
		throw Rejected {status};
	}
}

void ApplySession::Commit() {
	ForgetTables();
	active = false;
	auto &transaction = Context().transaction;
	// Not TransactionContext::Commit: it turns every failure into a transaction error.
	auto error = transaction.ActiveTransaction().Commit();
	transaction.Rollback(nullptr); // nothing is left to roll back; this ends the shell around it
	if (error.HasError()) {
		error.Throw();
	}
}

} // namespace catalog
} // namespace quack
