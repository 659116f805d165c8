//! One DuckDB transaction of the applier, and the tables that it writes.
#pragma once

#include <map>
#include <set>

#include "duckdb.hpp"
#include "duckdb/storage/table/append_state.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/catalog/replica_core.hpp"

namespace duckdb {
class BoundConstraint;
class DataTable;
class DuckTableEntry;
} // namespace duckdb

namespace quack {
namespace catalog {

//! Thrown inside the applier: the entry is rejected, for a reason that every node finds alike.
struct Rejected {
	Status status;
};

//! A table as this transaction sees it. Dies at the next DDL action.
struct ApplyTable {
	duckdb::DuckTableEntry *entry = nullptr;
	duckdb::DataTable *storage = nullptr;
	//! Physical columns.
	duckdb::vector<duckdb::LogicalType> types;
	//! Foreign keys only: what depends on one row alone was checked by the executing node.
	duckdb::vector<duckdb::unique_ptr<duckdb::BoundConstraint>> foreign_keys;
	bool has_unique_index = false;
	//! Columns that an index covers: updating them in place would leave the index stale.
	std::set<uint32_t> indexed_columns;
	//! Null when no append is open.
	std::unique_ptr<duckdb::LocalAppendState> append;
};

//! Rolls back unless committed. Apply thread only.
class ApplySession {
public:
	explicit ApplySession(ReplicaCore &core_p);
	~ApplySession();
	ApplySession(const ApplySession &) = delete;
	ApplySession &operator=(const ApplySession &) = delete;

	//! Throws Rejected (SchemaChanged) when there is no such table.
	ApplyTable &Table(const ObjectName &name);
	void Append(ApplyTable &table, duckdb::DataChunk &rows);
	//! Must come before deletes, updates, DDL and commit.
	void FinishAppends();
	//! After DDL: tables are looked up again.
	void ForgetTables();
	//! Throws Rejected (SchemaChanged) when DDL touched the object in an entry behind `planned_version`.
	void RequireUnchanged(const ObjectName &name, raft::LogIndex planned_version) const;
	//! Throws what DuckDB throws.
	void Commit();

	duckdb::ClientContext &Context() {
		return *connection.context;
	}
	duckdb::Connection &GetConnection() {
		return connection;
	}
	duckdb::AttachedDatabase &Database() {
		return *database;
	}

private:
	std::unique_ptr<ApplyTable> OpenTable(const ObjectName &name);

	ReplicaCore &core;
	duckdb::shared_ptr<duckdb::AttachedDatabase> database;
	duckdb::Connection connection;
	std::map<std::string, std::unique_ptr<ApplyTable>> tables;
	bool active = false;
};

} // namespace catalog
} // namespace quack
