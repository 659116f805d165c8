//! Reads the change feed of one table, in the order in which this node applied it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/storage/table/scan_state.hpp"
#include "quack/catalog/change_feed.hpp"
#include "quack/catalog/replicated_catalog.hpp"

namespace quack {
namespace catalog {

//! Columns in front of the table's own: change, commit_group, commit_index, commit_order, request_id.
constexpr duckdb::idx_t CHANGE_OWN_COLUMNS = 5;
extern const char *const CHANGE_OWN_NAMES[CHANGE_OWN_COLUMNS];
duckdb::LogicalType ChangeOwnType(duckdb::idx_t column);

//! Which changes: those behind `from` and up to `to`.
struct ChangeRange {
	AppliedVector from;
	AppliedVector to;
};

//! A batch of changed rows as it was kept.
struct StoredChange {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
	uint64_t sequence = 0;
	ChangeKind kind = ChangeKind::Insert;
	uint64_t row_count = 0;
	uint64_t bytes = 0;
	std::string request; //! bytes of the id
	std::shared_ptr<const ChangeDefinition> definition;
	std::string updated;
	std::string old_rows;
	std::string new_rows;
};

//! The kept batches of one table, of all groups, merged. Reads in the snapshot of the context's transaction, which
//! outlives it. Throws what DuckDB throws.
class ChangeScan {
public:
	//! Throws coded errors: NotSupported (the feed is off), Unavailable (`to` is not applied in the snapshot), NotFound
	//! (`from` is older than what is kept), InvalidArgument (`from` behind `to`). `from` not set: the oldest position
	//! that is kept; `to` not set: the snapshot's.
	ChangeScan(duckdb::ClientContext &context, ReplicatedCatalog &catalog, const ObjectName &table,
	           std::optional<AppliedVector> from, std::optional<AppliedVector> to);
	~ChangeScan();

	//! Null = the end. Valid until the next call.
	const StoredChange *Next();

	const ChangeRange &Range() const {
		return range;
	}

private:
	class Cursor;

	ChangeRange range;
	std::vector<std::unique_ptr<Cursor>> cursors;
	Cursor *current = nullptr;
};

//! Kept batches as rows of the table's present definition.
class ChangeRows {
public:
	//! `table_name`: for messages.
	ChangeRows(duckdb::ClientContext &context, std::unique_ptr<ChangeScan> scan, ChangeDefinition present,
	           std::string table_name);

	//! Up to STANDARD_VECTOR_SIZE rows; none = the end. Throws InvalidArgument, naming the column, when a value cannot
	//! be cast.
	void Read(duckdb::DataChunk &output);

private:
	void Load(const StoredChange &change);
	void Map(const StoredChange &change, duckdb::DataChunk &rows, duckdb::DataChunk &mapped);
	duckdb::idx_t Emit(duckdb::DataChunk &output, duckdb::idx_t filled);

	duckdb::ClientContext &context;
	const std::unique_ptr<ChangeScan> scan;
	const ChangeDefinition present;
	const std::string table_name;

	//! The batch that is being handed out.
	const StoredChange *change = nullptr;
	duckdb::DataChunk old_rows;
	duckdb::DataChunk new_rows;
	duckdb::idx_t emitted = 0;
	duckdb::idx_t row_count = 0;
	std::pair<raft::GroupId, raft::LogIndex> entry;
	uint64_t order = 0; //! of the next row within `entry`
};

} // namespace catalog
} // namespace quack
