//! Finds the rows that an effect means. Row ids differ between nodes, so the values decide: the hinted row id when the
//! row there is bit-exactly the old row, else a unique index, else a scan.
#pragma once

#include <unordered_set>

#include "quack/catalog/apply_session.hpp"
#include "quack/catalog/row_reader.hpp"

namespace quack {
namespace catalog {

class RowLocator {
public:
	//! `name` is for messages.
	RowLocator(ApplySession &session_p, ApplyTable &table_p, const ObjectName &name_p)
	    : session(session_p), table(table_p), name(name_p), reader(*table_p.storage, AllColumns(*table_p.storage)) {
	}

	//! One row id per old row, each row used once over the locator's life. Throws Rejected (Conflict) when one is gone.
	std::vector<int64_t> Locate(duckdb::DataChunk &old_rows, const std::vector<int64_t> &hints);

private:
	void TryRowIds(const std::vector<int64_t> &row_ids, const std::vector<size_t> &wanted_by);
	void TryHints(const std::vector<int64_t> &hints);
	void TryUniqueIndex(duckdb::DataChunk &old_rows);
	void TryScan();
	bool Take(size_t wanted, int64_t row_id);
	Status MissingRow(duckdb::DataChunk &old_rows) const;

	ApplySession &session;
	ApplyTable &table;
	const ObjectName &name;
	RowReader reader;
	std::unordered_set<int64_t> used;
	//! Per old row of the current call.
	std::vector<std::string> images;
	std::vector<int64_t> located;
	size_t missing = 0;
};

} // namespace catalog
} // namespace quack
