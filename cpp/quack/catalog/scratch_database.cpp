#include "quack/catalog/scratch_database.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/collate_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/scalar_function_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/type_catalog_entry.hpp"
#include "duckdb/parser/parsed_data/create_collation_info.hpp"
#include "duckdb/parser/parsed_data/create_scalar_function_info.hpp"
#include "duckdb/parser/parsed_data/create_type_info.hpp"

namespace quack {
namespace catalog {

using duckdb::CatalogType;

ScratchDatabase::ScratchDatabase(duckdb::DatabaseInstance &host) : database(nullptr), session(database) {
	auto from = duckdb::CatalogTransaction::GetSystemTransaction(host);
	auto to = duckdb::CatalogTransaction::GetSystemTransaction(*database.instance);
	auto &system = duckdb::Catalog::GetSystemCatalog(*database.instance);
	auto &theirs = duckdb::Catalog::GetSystemCatalog(host).GetSchema(from, duckdb::Identifier::DefaultSchema());
	auto &ours = system.GetSchema(to, duckdb::Identifier::DefaultSchema());
	theirs.Scan(CatalogType::SCALAR_FUNCTION_ENTRY, [&](duckdb::CatalogEntry &entry) {
		if (entry.type != CatalogType::SCALAR_FUNCTION_ENTRY) {
			return; // aggregates and macros live in the same set
		}
		duckdb::CreateScalarFunctionInfo info(entry.Cast<duckdb::ScalarFunctionCatalogEntry>().functions);
		info.internal = true;
		info.on_conflict = duckdb::OnCreateConflict::ALTER_ON_CONFLICT;
		ours.CreateFunction(to, info);
	});
	theirs.Scan(CatalogType::COLLATION_ENTRY, [&](duckdb::CatalogEntry &entry) {
		auto &collation = entry.Cast<duckdb::CollateCatalogEntry>();
		duckdb::CreateCollationInfo info(collation.name, collation.function, collation.combinable,
		                                 collation.not_required_for_equality);
		info.internal = true;
		info.on_conflict = duckdb::OnCreateConflict::IGNORE_ON_CONFLICT;
		ours.CreateCollation(to, info);
	});
	theirs.Scan(CatalogType::TYPE_ENTRY, [&](duckdb::CatalogEntry &entry) {
		auto info = entry.GetInfo();
		info->internal = true;
		info->on_conflict = duckdb::OnCreateConflict::IGNORE_ON_CONFLICT;
		ours.CreateType(to, info->Cast<duckdb::CreateTypeInfo>());
	});
}

} // namespace catalog
} // namespace quack
