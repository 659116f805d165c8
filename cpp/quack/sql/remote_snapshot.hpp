//! The remote schema at one moment: schemas, tables, views and the rest, as DuckDB catalog entries. Loaded by one
//! query; entries are made when first looked up.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/function/table_function.hpp"

namespace quack {
namespace sql {

class RemoteCatalog;
class RemoteSnapshot;

//! One row of the schema query.
struct RemoteObject {
	std::string kind; //! table, view, index, sequence, type, macro, table_macro
	std::string name;
	std::string sql;
	std::string comment; //! with has_comment
	bool has_comment = false;
	std::vector<std::string> column_names;
	std::vector<std::string> column_types;
	std::vector<std::string> column_comments; //! "" = none
	uint64_t estimated_rows = 0;
};

//! A table or view of the cluster; also what views look like to mixed local and remote queries.
class RemoteTableEntry : public duckdb::TableCatalogEntry {
public:
	RemoteTableEntry(duckdb::Catalog &catalog, duckdb::SchemaCatalogEntry &schema, duckdb::CreateTableInfo &info,
	                 bool is_view, uint64_t estimated_rows, std::string unusable_reason);

	const duckdb::ColumnList &GetColumns() const override {
		return columns;
	}
	duckdb::unique_ptr<duckdb::BaseStatistics> GetStatistics(duckdb::ClientContext &context,
	                                                         duckdb::column_t column_id) override;
	duckdb::TableFunction GetScanFunction(duckdb::ClientContext &context,
	                                      duckdb::unique_ptr<duckdb::FunctionData> &bind_data) override;
	duckdb::TableStorageInfo GetStorageInfo(duckdb::ClientContext &context) override;
	void BindUpdateConstraints(duckdb::Binder &binder, duckdb::LogicalGet &get, duckdb::LogicalProjection &proj,
	                           duckdb::LogicalUpdate &update, duckdb::ClientContext &context) override;

	bool IsView() const {
		return is_view;
	}
	uint64_t EstimatedRows() const {
		return estimated_rows;
	}
	//! Empty, or why rows of this table cannot be read into this session (a type it does not know).
	const std::string &UnusableReason() const {
		return unusable_reason;
	}
	//! "schema"."name" as the node knows it.
	std::string RemoteName() const;

private:
	//! Throws, and asks DuckDB to plan again, when `newest` has other columns for this table.
	void CheckCurrent(duckdb::ClientContext &context, RemoteSnapshot &newest);

	duckdb::ColumnList columns;
	const bool is_view;
	const uint64_t estimated_rows;
	const std::string unusable_reason;
};

class RemoteSchemaEntry : public duckdb::SchemaCatalogEntry {
public:
	RemoteSchemaEntry(duckdb::Catalog &catalog, duckdb::CreateSchemaInfo &info);

	void AddObject(RemoteObject object);
	//! Makes the entry of a name on first use. Null when there is none.
	duckdb::optional_ptr<duckdb::CatalogEntry> Find(duckdb::ClientContext &context, duckdb::CatalogType type,
	                                                const std::string &name);

	void Scan(duckdb::ClientContext &context, duckdb::CatalogType type,
	          const std::function<void(duckdb::CatalogEntry &)> &callback) override;
	void Scan(duckdb::CatalogType type, const std::function<void(duckdb::CatalogEntry &)> &callback) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> LookupEntry(duckdb::CatalogTransaction transaction,
	                                                       const duckdb::EntryLookupInfo &lookup_info) override;

	//! DDL that DuckDB did not push as a whole statement (COPY FROM DATABASE, optimizer off) goes as SQL text.
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateIndex(duckdb::CatalogTransaction transaction,
	                                                       duckdb::CreateIndexInfo &info,
	                                                       duckdb::TableCatalogEntry &table) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateFunction(duckdb::CatalogTransaction transaction,
	                                                          duckdb::CreateFunctionInfo &info) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateTable(duckdb::CatalogTransaction transaction,
	                                                       duckdb::BoundCreateTableInfo &info) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateView(duckdb::CatalogTransaction transaction,
	                                                      duckdb::CreateViewInfo &info) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateSequence(duckdb::CatalogTransaction transaction,
	                                                          duckdb::CreateSequenceInfo &info) override;
	duckdb::optional_ptr<duckdb::CatalogEntry> CreateType(duckdb::CatalogTransaction transaction,
	                                                      duckdb::CreateTypeInfo &info) override;
	void DropEntry(duckdb::ClientContext &context, duckdb::DropInfo &info) override;
	void Alter(duckdb::CatalogTransaction transaction, duckdb::AlterInfo &info) override;

private:
	struct Slot {
		RemoteObject object;
		duckdb::unique_ptr<duckdb::CatalogEntry> entry; //! as LookupEntry returns it
		duckdb::unique_ptr<duckdb::CatalogEntry> shown; //! as Scan lists it, when that differs (views)
		bool failed = false;
	};
	using Slots = std::map<std::string, Slot>; //! by lower-case name

	Slots *SlotsOf(duckdb::CatalogType type);
	duckdb::optional_ptr<duckdb::CatalogEntry> Materialize(duckdb::ClientContext &context, Slot &slot, bool listing);

	//! The table macro query(sql), as in the official client.
	duckdb::optional_ptr<duckdb::CatalogEntry> QueryMacro(duckdb::ClientContext &context);

	duckdb::unique_ptr<duckdb::CatalogEntry> query_macro;
	std::mutex lock; //! guards the making of entries; held while a CREATE text is parsed and bound
	Slots relations; //! tables and views share names
	Slots indexes;
	Slots sequences;
	Slots types;
	Slots macros;
	Slots table_macros;
};

//! Immutable but for lazily made entries. Kept alive by every transaction, plan and scan that uses its entries.
class RemoteSnapshot : public std::enable_shared_from_this<RemoteSnapshot> {
public:
	RemoteSnapshot(duckdb::Catalog &catalog, uint64_t version);

	//! The query whose rows AddRow takes.
	static const char *Query();
	void AddRows(duckdb::DataChunk &chunk);

	duckdb::optional_ptr<RemoteSchemaEntry> FindSchema(const std::string &name);
	void ScanSchemas(const std::function<void(duckdb::SchemaCatalogEntry &)> &callback);
	uint64_t Version() const {
		return version;
	}

private:
	RemoteSchemaEntry &EnsureSchema(const std::string &name, const std::string &comment, bool has_comment);

	duckdb::Catalog &catalog;
	const uint64_t version;
	std::map<std::string, duckdb::unique_ptr<RemoteSchemaEntry>> schemas; //! by lower-case name
};

} // namespace sql
} // namespace quack
