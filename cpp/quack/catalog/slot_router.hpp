//! Which rows of a sharded table belong to which group. The hash is part of the log's meaning: golden values are held
//! by sql_tests/types/slots.test, never change it.
#pragma once

#include <map>
#include <vector>

#include "duckdb.hpp"
#include "quack/catalog/placements.hpp"

namespace duckdb {
class DuckTableEntry;
} // namespace duckdb

namespace quack {
namespace catalog {

//! Slot of each row by all columns of the chunk: the low 64 bits of HashBytes(image of the columns, row_image.hpp)
//! modulo SLOT_COUNT. Flattens the chunk.
std::vector<uint32_t> SlotsOf(duckdb::DataChunk &keys);

class SlotRouter {
public:
	//! Throws InternalException when the table lacks a column of the shard key.
	SlotRouter(const duckdb::DuckTableEntry &table, const Placement &placement);

	//! Physical indexes of the shard key, in its order.
	const std::vector<uint32_t> &KeyColumns() const {
		return key_columns;
	}
	//! Group of each row. `rows` has all physical columns of the table.
	std::vector<raft::GroupId> GroupsOfRows(duckdb::DataChunk &rows) const;
	//! Group of each row; `keys` has the columns of the shard key alone.
	std::vector<raft::GroupId> GroupsOfKeys(duckdb::DataChunk &keys) const;

private:
	const Placement placement;
	std::vector<uint32_t> key_columns;
};

} // namespace catalog
} // namespace quack
