#include "quack/sql/remote_snapshot.hpp"

#include "duckdb/catalog/entry_lookup_info.hpp"
#include "duckdb/common/exception/transaction_exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/settings.hpp"
#include "duckdb/parser/constraints/unique_constraint.hpp"
#include "duckdb/parser/parsed_data/alter_info.hpp"
#include "duckdb/parser/parsed_data/create_function_info.hpp"
#include "duckdb/parser/parsed_data/create_index_info.hpp"
#include "duckdb/parser/parsed_data/create_sequence_info.hpp"
#include "duckdb/parser/parsed_data/create_table_info.hpp"
#include "duckdb/parser/parsed_data/create_type_info.hpp"
#include "duckdb/parser/parsed_data/create_view_info.hpp"
#include "duckdb/parser/parsed_data/drop_info.hpp"
#include "duckdb/parser/statement/alter_statement.hpp"
#include "duckdb/parser/statement/drop_statement.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_projection.hpp"
#include "duckdb/planner/operator/logical_update.hpp"
#include "duckdb/planner/parsed_data/bound_create_table_info.hpp"
#include "duckdb/storage/statistics/base_statistics.hpp"
#include "duckdb/storage/table_storage_info.hpp"

#include "quack/common/log.hpp"
#include "quack/sql/remote_catalog_entry.hpp"
#include "quack/sql/remote_client_state.hpp"
#include "quack/sql/remote_entries.hpp"
#include "quack/sql/remote_scan.hpp"
#include "quack/sql/remote_transaction.hpp"

namespace quack {
namespace sql {

using duckdb::CatalogEntry;
using duckdb::CatalogTransaction;
using duckdb::CatalogType;
using duckdb::ClientContext;
using duckdb::NotImplementedException;
using duckdb::optional_ptr;
using duckdb::StringUtil;

//===----------------------------------------------------------------------===//
// RemoteTableEntry
//===----------------------------------------------------------------------===//

RemoteTableEntry::RemoteTableEntry(duckdb::Catalog &catalog, duckdb::SchemaCatalogEntry &schema,
                                   duckdb::CreateTableInfo &info, bool is_view_p, uint64_t estimated_rows_p,
                                   std::string unusable_reason_p)
    : TableCatalogEntry(catalog, schema, info), columns(std::move(info.columns)), is_view(is_view_p),
      estimated_rows(estimated_rows_p), unusable_reason(std::move(unusable_reason_p)) {
}

duckdb::unique_ptr<duckdb::BaseStatistics> RemoteTableEntry::GetStatistics(ClientContext &, duckdb::column_t) {
	return nullptr;
}

std::string RemoteTableEntry::RemoteName() const {
	return duckdb::SQLIdentifier::ToString(schema.name) + "." + duckdb::SQLIdentifier::ToString(name);
}

duckdb::TableFunction RemoteTableEntry::GetScanFunction(ClientContext &context,
                                                        duckdb::unique_ptr<duckdb::FunctionData> &bind_data) {
	if (!unusable_reason.empty()) {
		throw NotImplementedException("not supported: reading %s here: %s. Statements that run on the node as a whole "
		                              "still work, e.g. FROM %s.query('FROM %s')",
		                              RemoteName(), unusable_reason, catalog.GetName().GetIdentifierName(),
		                              RemoteName());
	}
	auto &remote = catalog.Cast<RemoteCatalog>();
	auto &transaction = RemoteTransaction::Get(context, remote);
	transaction.RegisterPiece(context, std::make_shared<RemoteStreamSlot>());
	auto snapshot = transaction.Snapshot(context, true);
	CheckCurrent(context, *snapshot);
	return MakeRemoteScan(*this, remote, std::move(snapshot), bind_data);
}

void RemoteTableEntry::CheckCurrent(ClientContext &context, RemoteSnapshot &newest) {
	auto newest_schema = newest.FindSchema(schema.name.GetIdentifierName());
	auto entry =
	    newest_schema ? newest_schema->Find(context, CatalogType::TABLE_ENTRY, name.GetIdentifierName()) : nullptr;
	if (entry.get() == this) {
		return;
	}
	bool same = entry && entry->Cast<RemoteTableEntry>().columns.LogicalColumnCount() == columns.LogicalColumnCount();
	for (duckdb::idx_t i = 0; same && i < columns.LogicalColumnCount(); i++) {
		auto &now = entry->Cast<RemoteTableEntry>().columns.GetColumn(duckdb::LogicalIndex(i));
		auto &then = columns.GetColumn(duckdb::LogicalIndex(i));
		same = now.Name() == then.Name() && now.Type() == then.Type();
	}
	if (!same) {
		RemoteClientState::Get(context).RequestRebind();
		throw duckdb::TransactionException("the table %s changed while the statement was planned; run it again",
		                                   RemoteName());
	}
}

duckdb::TableStorageInfo RemoteTableEntry::GetStorageInfo(ClientContext &) {
	duckdb::TableStorageInfo result;
	result.cardinality = estimated_rows;
	for (auto &constraint : constraints) {
		if (constraint->type != duckdb::ConstraintType::UNIQUE) {
			continue;
		}
		auto &unique = constraint->Cast<duckdb::UniqueConstraint>();
		duckdb::IndexInfo info;
		info.is_unique = true;
		info.is_primary = unique.IsPrimaryKey();
		info.is_foreign = false;
		for (auto &index : unique.GetLogicalIndexes(columns)) {
			info.column_set.insert(columns.GetColumn(index).Physical().index);
		}
		result.index_info.push_back(info);
	}
	return result;
}

void RemoteTableEntry::BindUpdateConstraints(duckdb::Binder &, duckdb::LogicalGet &, duckdb::LogicalProjection &,
                                             duckdb::LogicalUpdate &, ClientContext &) {
	// The node checks constraints; nothing to bind here.
}

//===----------------------------------------------------------------------===//
// RemoteSchemaEntry: lookup
//===----------------------------------------------------------------------===//

RemoteSchemaEntry::RemoteSchemaEntry(duckdb::Catalog &catalog, duckdb::CreateSchemaInfo &info)
    : SchemaCatalogEntry(catalog, info) {
}

void RemoteSchemaEntry::AddObject(RemoteObject object) {
	Slots *target = nullptr;
	if (object.kind == "table" || object.kind == "view") {
		target = &relations;
	} else if (object.kind == "index") {
		target = &indexes;
	} else if (object.kind == "sequence") {
		target = &sequences;
	} else if (object.kind == "type") {
		target = &types;
	} else {
		target = object.kind == "macro" ? &macros : &table_macros;
	}
	auto &slot = (*target)[StringUtil::Lower(object.name)];
	slot.object = std::move(object);
}

RemoteSchemaEntry::Slots *RemoteSchemaEntry::SlotsOf(CatalogType type) {
	switch (type) {
	case CatalogType::TABLE_ENTRY:
	case CatalogType::VIEW_ENTRY:
		return &relations;
	case CatalogType::INDEX_ENTRY:
		return &indexes;
	case CatalogType::SEQUENCE_ENTRY:
		return &sequences;
	case CatalogType::TYPE_ENTRY:
		return &types;
	case CatalogType::MACRO_ENTRY:
	case CatalogType::SCALAR_FUNCTION_ENTRY:
		return &macros;
	case CatalogType::TABLE_MACRO_ENTRY:
	case CatalogType::TABLE_FUNCTION_ENTRY:
		return &table_macros;
	default:
		return nullptr;
	}
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::Materialize(ClientContext &context, Slot &slot, bool listing) {
	std::lock_guard<std::mutex> guard(lock);
	bool is_view = slot.object.kind == "view";
	auto &target = is_view && listing ? slot.shown : slot.entry;
	if (target || slot.failed) {
		return target.get();
	}
	try {
		if (is_view && listing) {
			target = MakeViewEntry(context, *this, slot.object);
		} else if (is_view || slot.object.kind == "table") {
			target = MakeTableEntry(context, *this, slot.object);
		} else {
			target = MakeOtherEntry(context, *this, slot.object);
		}
	} catch (const std::exception &error) {
		// One object this session cannot understand must not hide the others.
		Log(LogLevel::Warn, "sql", "remote_object_unreadable",
		    {{"kind", slot.object.kind},
		     {"name", slot.object.name},
		     {"reason", duckdb::ErrorData(error).RawMessage()}});
		slot.failed = true;
	}
	return target.get();
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::Find(ClientContext &context, CatalogType type, const std::string &name) {
	auto slots = SlotsOf(type);
	if (!slots) {
		return nullptr;
	}
	auto slot = slots->find(StringUtil::Lower(name));
	if (slot == slots->end()) {
		return nullptr;
	}
	return Materialize(context, slot->second, false);
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::QueryMacro(ClientContext &context) {
	std::lock_guard<std::mutex> guard(lock);
	if (!query_macro) {
		query_macro = MakeQueryMacro(context, *this);
	}
	return query_macro.get();
}

static bool IsRelation(CatalogType type) {
	return type == CatalogType::TABLE_ENTRY || type == CatalogType::VIEW_ENTRY;
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::LookupEntry(CatalogTransaction transaction,
                                                          const duckdb::EntryLookupInfo &lookup_info) {
	auto type = lookup_info.GetCatalogType();
	auto &entry_name = lookup_info.GetEntryName();
	if (type == CatalogType::TABLE_FUNCTION_ENTRY && transaction.HasContext() &&
	    StringUtil::CIEquals(entry_name, "query")) {
		return QueryMacro(transaction.GetContext());
	}
	if (!transaction.HasContext() || !SlotsOf(type) || type == CatalogType::TABLE_FUNCTION_ENTRY ||
	    type == CatalogType::TABLE_MACRO_ENTRY) {
		return nullptr; // table functions and table macros stay on the node
	}
	auto &context = transaction.GetContext();
	if (!IsRelation(type) && IsBuiltin(context, type, entry_name)) {
		return nullptr;
	}
	auto &remote_transaction = RemoteTransaction::Get(context, catalog);
	// The pushdown optimizer asks first, without a place in the text; the node itself checks what it then pushes.
	// Whoever asks again, or with a place, will use the columns.
	bool again = remote_transaction.NoteLookup(context, GetSchemaName() + "." + entry_name);
	bool binder = lookup_info.GetErrorContext().query_location.IsValid();
	bool fresh = again || binder || !duckdb::Settings::Get<duckdb::EnableOptimizerSetting>(context) ||
	             RemoteClientState::Get(context).ShowsDefinitions();
	while (true) {
		auto snapshot = remote_transaction.Snapshot(context, fresh);
		auto schema_entry = snapshot->FindSchema(name.GetIdentifierName());
		auto entry = schema_entry ? schema_entry->Find(context, type, entry_name) : nullptr;
		if (entry && type == CatalogType::SEQUENCE_ENTRY) {
			throw NotImplementedException("not supported: the remote sequence %s outside of a statement that runs on "
			                              "the "
			                              "node as a whole. Use FROM %s.query('SELECT nextval(''%s'')')",
			                              entry_name, catalog.GetName().GetIdentifierName(), entry_name);
		}
		if (entry && entry->type == CatalogType::MACRO_ENTRY && !IsSelfContainedMacro(context, *entry)) {
			return nullptr; // bound here it would see this session's tables instead of the cluster's
		}
		if (entry || fresh) {
			return entry;
		}
		fresh = true;
	}
}

void RemoteSchemaEntry::Scan(ClientContext &context, CatalogType type,
                             const std::function<void(CatalogEntry &)> &callback) {
	auto slots = type == CatalogType::SCALAR_FUNCTION_ENTRY || type == CatalogType::TABLE_FUNCTION_ENTRY ||
	                     type == CatalogType::MACRO_ENTRY || type == CatalogType::TABLE_MACRO_ENTRY
	                 ? nullptr
	                 : SlotsOf(type);
	if (type == CatalogType::SCALAR_FUNCTION_ENTRY || type == CatalogType::MACRO_ENTRY) {
		slots = &macros;
	} else if (type == CatalogType::TABLE_FUNCTION_ENTRY || type == CatalogType::TABLE_MACRO_ENTRY) {
		slots = &table_macros;
	}
	if (!slots) {
		return;
	}
	for (auto &item : *slots) {
		if (auto entry = Materialize(context, item.second, true)) {
			callback(*entry);
		}
	}
}

void RemoteSchemaEntry::Scan(CatalogType type, const std::function<void(CatalogEntry &)> &callback) {
	auto slots = SlotsOf(type);
	if (!slots) {
		return;
	}
	std::lock_guard<std::mutex> guard(lock);
	for (auto &item : *slots) {
		if (item.second.entry) {
			callback(*item.second.entry);
		}
	}
}

//===----------------------------------------------------------------------===//
// RemoteSchemaEntry: DDL that was not pushed as a statement
//===----------------------------------------------------------------------===//

static void CreateRemotely(CatalogTransaction transaction, duckdb::Catalog &catalog, const duckdb::CreateInfo &info) {
	auto copy = info.Copy();
	copy->StripCatalogQualification();
	catalog.Cast<RemoteCatalog>().ExecuteDdl(transaction.GetContext(), copy->ToString());
}

static optional_ptr<CatalogEntry> FindAfterCreate(CatalogTransaction transaction, duckdb::Catalog &catalog,
                                                  const std::string &schema, CatalogType type,
                                                  const std::string &name) {
	auto &context = transaction.GetContext();
	auto snapshot = RemoteTransaction::Get(context, catalog).Snapshot(context, true);
	auto entry = snapshot->FindSchema(schema);
	return entry ? entry->Find(context, type, name) : nullptr;
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::CreateIndex(CatalogTransaction transaction, duckdb::CreateIndexInfo &info,
                                                          duckdb::TableCatalogEntry &) {
	CreateRemotely(transaction, catalog, info);
	return nullptr;
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::CreateFunction(CatalogTransaction transaction,
                                                             duckdb::CreateFunctionInfo &info) {
	CreateRemotely(transaction, catalog, info);
	return nullptr;
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::CreateTable(CatalogTransaction transaction,
                                                          duckdb::BoundCreateTableInfo &info) {
	CreateRemotely(transaction, catalog, info.Base());
	return FindAfterCreate(transaction, catalog, name.GetIdentifierName(), CatalogType::TABLE_ENTRY,
	                       info.Base().GetQualifiedName().Name().GetIdentifierName());
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::CreateView(CatalogTransaction transaction, duckdb::CreateViewInfo &info) {
	CreateRemotely(transaction, catalog, info);
	return nullptr;
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::CreateSequence(CatalogTransaction transaction,
                                                             duckdb::CreateSequenceInfo &info) {
	CreateRemotely(transaction, catalog, info);
	return nullptr;
}

optional_ptr<CatalogEntry> RemoteSchemaEntry::CreateType(CatalogTransaction transaction, duckdb::CreateTypeInfo &info) {
	CreateRemotely(transaction, catalog, info);
	return nullptr;
}

void RemoteSchemaEntry::DropEntry(ClientContext &context, duckdb::DropInfo &info) {
	duckdb::DropStatement statement;
	statement.info = duckdb::unique_ptr_cast<duckdb::ParseInfo, duckdb::DropInfo>(info.Copy());
	statement.info->SetQualifiedName(statement.info->GetQualifiedName().WithCatalog(duckdb::Identifier()));
	catalog.Cast<RemoteCatalog>().ExecuteDdl(context, statement.ToString());
}

void RemoteSchemaEntry::Alter(CatalogTransaction transaction, duckdb::AlterInfo &info) {
	duckdb::AlterStatement statement;
	statement.info = info.Copy();
	statement.info->SetQualifiedName(statement.info->GetQualifiedName().WithCatalog(duckdb::Identifier()));
	catalog.Cast<RemoteCatalog>().ExecuteDdl(transaction.GetContext(), statement.ToString());
}

} // namespace sql
} // namespace quack
