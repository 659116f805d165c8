//! Reads rows of a table by their ids.
#pragma once

#include <vector>

#include "duckdb.hpp"
#include "duckdb/storage/table/row_group_collection.hpp"
#include "duckdb/transaction/transaction_data.hpp"
#include "quack/common/bytes.hpp"

namespace quack {
namespace catalog {

class RowReader {
public:
	//! `columns` are physical. The table keeps its definition while the reader lives.
	RowReader(duckdb::DataTable &table, const std::vector<uint32_t> &columns);

	//! The rows that `view` sees, in the order of `row_ids`; an id without such a row is left out. At most
	//! STANDARD_VECTOR_SIZE ids, none of a row that only its own transaction has. Valid until the next call.
	duckdb::DataChunk &Read(duckdb::TransactionData view, const int64_t *row_ids, duckdb::idx_t count);
	//! Of the rows that the last call found.
	const int64_t *FoundIds() const {
		return duckdb::FlatVector::GetData<int64_t>(found.data.back());
	}

private:
	//! DuckDB decodes compressed columns from the beginning of a segment for every single row that is fetched.
	void Fetch(duckdb::TransactionData view, const int64_t *row_ids, duckdb::idx_t count);
	//! Ids that ascend; reads everything from the first to the last.
	void Scan(duckdb::TransactionData view, const int64_t *row_ids, duckdb::idx_t count);
	duckdb::DataChunk &Scratch();

	duckdb::shared_ptr<duckdb::RowGroupCollection> collection;
	duckdb::vector<duckdb::StorageIndex> column_ids;
	//! Both end with the row id. A few rows far from each other, the common case, need no scratch.
	duckdb::DataChunk found;
	duckdb::DataChunk scratch;
	duckdb::DataChunk result; //! refers to `found`
};

//! All physical columns of a table, in order.
std::vector<uint32_t> AllColumns(const duckdb::DataTable &table);

} // namespace catalog
} // namespace quack
