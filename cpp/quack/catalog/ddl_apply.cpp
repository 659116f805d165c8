#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_search_path.hpp"
#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/main/connection.hpp"
#include "duckdb/parser/parsed_data/alter_info.hpp"
#include "duckdb/parser/parsed_data/alter_table_info.hpp"
#include "duckdb/parser/parsed_data/create_index_info.hpp"
#include "duckdb/parser/parsed_data/create_info.hpp"
#include "duckdb/parser/parsed_data/create_macro_info.hpp"
#include "duckdb/parser/parsed_data/create_type_info.hpp"
#include "duckdb/parser/parsed_data/create_view_info.hpp"
#include "duckdb/parser/parsed_data/drop_info.hpp"
#include "duckdb/parser/statement/alter_statement.hpp"
#include "duckdb/parser/statement/create_statement.hpp"
#include "duckdb/parser/statement/drop_statement.hpp"
#include "duckdb/planner/binder.hpp"
#include "duckdb/planner/parsed_data/bound_create_table_info.hpp"
#include "quack/catalog/effect_apply.hpp"
#include "quack/catalog/query_rows.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::CatalogType;

duckdb::MemoryStream StreamOver(ByteView bytes) {
	return duckdb::MemoryStream(reinterpret_cast<duckdb::data_ptr_t>(const_cast<char *>(bytes.data())), bytes.size());
}

//! What a stored definition of an index carries beyond what its CREATE statement may.
void MakeBindable(duckdb::CreateIndexInfo &info) {
	info.column_ids.clear();
	info.scan_types.clear();
	info.names.clear();
	info.expressions.clear();
	for (auto &expression : info.parsed_expressions) {
		info.expressions.push_back(expression->Copy());
	}
}

duckdb::QualifiedName InCatalog(const ObjectName &name) {
	duckdb::vector<duckdb::Identifier> path;
	for (auto &part : name.schema) {
		path.emplace_back(part);
	}
	return duckdb::QualifiedName::FromCatalogSchema(duckdb::Identifier(CATALOG_NAME), std::move(path),
	                                                duckdb::Identifier(name.name));
}

//! Unqualified names in the definition mean what they meant to the session that executed it.
void SetSearchPath(ApplySession &session, const Effect &effect) {
	duckdb::vector<duckdb::CatalogSearchEntry> entries;
	duckdb::Identifier catalog(CATALOG_NAME);
	for (auto &schema : effect.search_path) {
		duckdb::vector<duckdb::Identifier> path;
		for (auto &part : schema) {
			path.emplace_back(part);
		}
		entries.push_back(duckdb::CatalogSearchEntry::FromSchemaPath(catalog, std::move(path)));
	}
	entries.emplace_back(catalog, duckdb::Identifier::DefaultSchema());
	auto &context = session.Context();
	duckdb::ClientData::Get(context).catalog_search_path =
	    duckdb::make_uniq<duckdb::CatalogSearchPath>(context, std::move(entries));
}

//! Tables, types, views and macros go into the catalog as they are in the entry: they were bound where they were
//! executed. Binding a view reads what it reads, and files may be out of this node's reach, or gone when the log is
//! replayed; binding what has only resolved types would lose which types it depends on.
bool CreatedUnbound(duckdb::ClientContext &context, duckdb::unique_ptr<duckdb::CreateInfo> &info) {
	auto &catalog = duckdb::Catalog::GetCatalog(context, duckdb::Identifier(CATALOG_NAME));
	switch (info->type) {
	case CatalogType::TABLE_ENTRY: {
		auto &path = info->GetQualifiedName().Path(); // catalog, schemas, name
		duckdb::vector<duckdb::Identifier> schema_path(path.begin() + 1, path.end() - 1);
		auto &schema = *catalog.GetSchema(catalog.GetCatalogTransaction(context), schema_path,
		                                  duckdb::OnEntryNotFound::THROW_EXCEPTION);
		auto bound = duckdb::Binder::BindCreateTableCheckpoint(std::move(info), schema);
		catalog.CreateTable(context, *bound);
		return true;
	}
	case CatalogType::TYPE_ENTRY:
		catalog.CreateType(context, info->Cast<duckdb::CreateTypeInfo>());
		return true;
	case CatalogType::VIEW_ENTRY:
		catalog.CreateView(context, info->Cast<duckdb::CreateViewInfo>());
		return true;
	case CatalogType::MACRO_ENTRY:
	case CatalogType::TABLE_MACRO_ENTRY:
		catalog.CreateFunction(context, info->Cast<duckdb::CreateMacroInfo>());
		return true;
	default:
		return false;
	}
}

//! DuckDB does not survive dependencies on what is not there.
void RequireDependencies(ApplySession &session, const duckdb::CreateInfo &info, raft::LogIndex planned_version) {
	for (auto &dependency : info.dependencies.Set()) {
		ObjectName name;
		for (auto &part : dependency.entry.schema_path) {
			name.schema.push_back(part.GetIdentifierName());
		}
		name.name = dependency.entry.name.GetIdentifierName();
		session.RequireUnchanged(name, planned_version);
	}
}

void ApplyCreate(ApplySession &session, const Effect &effect, raft::LogIndex planned_version) {
	auto stream = StreamOver(effect.definition);
	duckdb::BinaryDeserializer deserializer(stream);
	deserializer.Set<duckdb::DatabaseInstance &>(*session.Context().db);
	deserializer.Set<duckdb::ClientContext &>(session.Context());
	deserializer.Begin();
	auto info = duckdb::CreateInfo::Deserialize(deserializer);
	deserializer.End();
	if (info->type == CatalogType::SCHEMA_ENTRY) {
		auto path = info->GetQualifiedName().Path();
		if (!(path[0] == duckdb::Identifier(CATALOG_NAME))) {
			path.insert(path.begin(), duckdb::Identifier(CATALOG_NAME));
		}
		info->SetQualifiedName(duckdb::QualifiedName::FromPath(std::move(path)));
	}
	if (info->type == CatalogType::INDEX_ENTRY) {
		MakeBindable(info->Cast<duckdb::CreateIndexInfo>());
	}
	RequireDependencies(session, *info, planned_version);
	if (CreatedUnbound(session.Context(), info)) {
		return;
	}
	auto statement = duckdb::make_uniq<duckdb::CreateStatement>();
	statement->info = std::move(info);
	RunStatement(session.GetConnection(), std::move(statement));
}

duckdb::unique_ptr<duckdb::AlterInfo> ReadAlter(duckdb::ClientContext &context, const Effect &effect) {
	auto stream = StreamOver(effect.definition);
	duckdb::BinaryDeserializer deserializer(stream);
	deserializer.Set<duckdb::DatabaseInstance &>(*context.db);
	deserializer.Set<duckdb::ClientContext &>(context);
	deserializer.Begin();
	deserializer.ReadProperty<duckdb::string>(100, "column_name");
	auto parsed = deserializer.ReadProperty<duckdb::unique_ptr<duckdb::ParseInfo>>(101, "alter_info");
	deserializer.End();
	return duckdb::unique_ptr_cast<duckdb::ParseInfo, duckdb::AlterInfo>(std::move(parsed));
}

void ApplyAlter(ApplySession &session, const Effect &effect) {
	auto info = ReadAlter(session.Context(), effect);
	info->SetQualifiedName(InCatalog(effect.object));
	auto statement = duckdb::make_uniq<duckdb::AlterStatement>();
	statement->info = std::move(info);
	RunStatement(session.GetConnection(), std::move(statement));
}

void DropTrigger(ApplySession &session, const Effect &effect) {
	auto table = effect.object;
	table.name = std::string(effect.definition);
	auto &entry = duckdb::Catalog::GetEntry<duckdb::TableCatalogEntry>(session.Context(), InCatalog(table));
	auto transaction = entry.catalog.GetCatalogTransaction(session.Context());
	entry.Cast<duckdb::DuckTableEntry>().DropTrigger(transaction, duckdb::Identifier(effect.object.name), false);
}

void ApplyDrop(ApplySession &session, const Effect &effect) {
	if (CatalogType(effect.catalog_type) == CatalogType::TRIGGER_ENTRY) {
		DropTrigger(session, effect);
		return;
	}
	auto info = duckdb::make_uniq<duckdb::DropInfo>();
	info->type = CatalogType(effect.catalog_type);
	if (info->type == CatalogType::SCHEMA_ENTRY) {
		duckdb::vector<duckdb::Identifier> path;
		path.emplace_back(CATALOG_NAME);
		for (auto &part : effect.object.schema) {
			path.emplace_back(part);
		}
		path.emplace_back(effect.object.name);
		info->SetQualifiedName(duckdb::QualifiedName::FromPath(std::move(path)));
	} else {
		info->SetQualifiedName(InCatalog(effect.object));
	}
	// CASCADE is replicated as the drop of each object, what depends on others first. What still depends on this one
	// was made by a transaction that the dropping one did not see: DuckDB refuses.
	info->cascade = false;
	info->if_not_found = duckdb::OnEntryNotFound::RETURN_NULL;
	auto statement = duckdb::make_uniq<duckdb::DropStatement>();
	statement->info = std::move(info);
	RunStatement(session.GetConnection(), std::move(statement));
}

} // namespace

std::optional<std::string> RenamedTo(duckdb::ClientContext &context, const Effect &effect) {
	auto info = ReadAlter(context, effect);
	if (info->type != duckdb::AlterType::ALTER_TABLE ||
	    info->Cast<duckdb::AlterTableInfo>().alter_table_type != duckdb::AlterTableType::RENAME_TABLE) {
		return std::nullopt;
	}
	return info->Cast<duckdb::RenameTableInfo>().new_table_name.GetIdentifierName();
}

void ApplyDdl(ApplySession &session, const Effect &effect, raft::LogIndex planned_version) {
	SetSearchPath(session, effect);
	switch (effect.action) {
	case DdlAction::Create:
		ApplyCreate(session, effect, planned_version);
		break;
	case DdlAction::Alter:
		ApplyAlter(session, effect);
		break;
	case DdlAction::Drop:
		ApplyDrop(session, effect);
		break;
	}
}

} // namespace catalog
} // namespace quack
