//! Reads the effects of an open DuckDB transaction out of its undo buffer and local storage.
#pragma once

#include <set>
#include <unordered_map>

#include "duckdb.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "quack/catalog/part_writers.hpp"

namespace duckdb {
class DuckTableEntry;
struct DeleteInfo;
struct UpdateInfo;
struct SequenceValue;
struct DataTableInfo;
} // namespace duckdb

namespace quack {
namespace catalog {

//! Schema path and name of a catalog entry.
ObjectName NameOf(const duckdb::CatalogEntry &entry);

//! One use per transaction. Leaves the transaction as it is. Throws a DuckDB exception for what cannot be replicated
//! (the message says what and what to do instead).
class Capture {
public:
	explicit Capture(duckdb::DuckTransaction &transaction_p) : transaction(transaction_p) {
	}
	//! In execution order: row changes before a DDL action stay before it; inserts come after all DDL.
	void Run(PartWriters &out);

private:
	//! Changes of committed rows of one version of one table, since the last DDL action.
	struct TableRows {
		duckdb::DuckTableEntry *table = nullptr;
		std::set<int64_t> deleted;
		std::map<int64_t, std::set<uint32_t>> updated;
	};

	void ReadUndoRecords();
	void OnRecord(uint32_t kind, duckdb::data_ptr_t payload);
	TableRows &RowsOf(duckdb::DuckTableEntry &table);
	void OnDelete(duckdb::DeleteInfo &info);
	void OnUpdate(duckdb::UpdateInfo &info);
	void OnCatalogEntry(duckdb::CatalogEntry &entry, duckdb::data_ptr_t extra);
	void OnCreate(duckdb::CatalogEntry &created);
	void OnAlter(duckdb::CatalogEntry &before, duckdb::CatalogEntry &after, duckdb::data_ptr_t extra);
	void OnDrop(duckdb::CatalogEntry &dropped);
	void AddDdl(DdlAction action, duckdb::CatalogType type, const ObjectName &object, std::vector<ObjectName> touched,
	            ByteView definition, bool builds_index = false);
	void RefuseUpdatesBeforeIndex(const duckdb::DataTableInfo &table, const duckdb::vector<duckdb::column_t> &columns);
	void FlushRows();
	void WriteDeletes(TableRows &rows);
	void WriteDeletes(duckdb::DuckTableEntry &table, raft::GroupId group, const std::vector<int64_t> &row_ids);
	void WriteUpdates(TableRows &rows);
	void WriteUpdates(duckdb::DuckTableEntry &table, raft::GroupId group, const std::vector<uint32_t> &columns,
	                  const std::vector<int64_t> &row_ids);
	void WriteMoved(duckdb::DuckTableEntry &table, raft::GroupId group, const std::vector<int64_t> &row_ids);
	void WriteInserts(duckdb::LocalTableStorage &storage);
	void RefuseUniqueWithoutShardKey(const ObjectName &table, const std::vector<std::string> &columns) const;
	void RefuseShardKeyChange(const ObjectName &table, const duckdb::AlterInfo &alter) const;
	void WriteInserts();
	void WriteSequences();

	duckdb::DuckTransaction &transaction;
	PartWriters *parts = nullptr;
	//! Only what the transaction changes the meaning of is noted.
	bool is_looking_ahead = false;
	std::vector<std::unique_ptr<TableRows>> pending;
	std::vector<duckdb::SequenceValue *> sequences;
	std::set<const void *> dropped_sequences; //! their SequenceState
	//! Columns updated in place before a DDL action of the same transaction.
	std::map<const duckdb::DataTableInfo *, std::set<uint32_t>> updated_before_ddl;
};

} // namespace catalog
} // namespace quack
