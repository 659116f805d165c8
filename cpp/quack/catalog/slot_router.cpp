#include "quack/catalog/slot_router.hpp"

#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "quack/catalog/row_image.hpp"

namespace quack {
namespace catalog {

std::vector<uint32_t> SlotsOf(duckdb::DataChunk &keys) {
	std::vector<uint32_t> slots;
	slots.reserve(keys.size());
	RowImages images(keys, keys.ColumnCount());
	std::string image;
	for (duckdb::idx_t i = 0; i < keys.size(); i++) {
		image.clear();
		images.Append(i, image);
		slots.push_back(static_cast<uint32_t>(HashBytes(image).low % SLOT_COUNT));
	}
	return slots;
}

SlotRouter::SlotRouter(const duckdb::DuckTableEntry &table, const Placement &placement_p) : placement(placement_p) {
	auto &columns = table.GetColumns();
	for (auto &name : placement.shard_key) {
		if (!columns.ColumnExists(duckdb::Identifier(name))) {
			throw duckdb::InternalException("table \"%s\" has lost column \"%s\" of its shard key",
			                                table.name.GetIdentifierName(), name);
		}
		key_columns.push_back(static_cast<uint32_t>(columns.GetColumn(duckdb::Identifier(name)).Physical().index));
	}
}

std::vector<raft::GroupId> SlotRouter::GroupsOfRows(duckdb::DataChunk &rows) const {
	duckdb::vector<duckdb::LogicalType> types;
	for (auto column : key_columns) {
		types.push_back(rows.data[column].GetType());
	}
	duckdb::DataChunk keys;
	keys.InitializeEmpty(types);
	for (size_t i = 0; i < key_columns.size(); i++) {
		keys.data[i].Reference(rows.data[key_columns[i]]);
	}
	keys.SetChildCardinality(rows.size());
	return GroupsOfKeys(keys);
}

std::vector<raft::GroupId> SlotRouter::GroupsOfKeys(duckdb::DataChunk &keys) const {
	std::vector<raft::GroupId> groups;
	groups.reserve(keys.size());
	for (auto slot : SlotsOf(keys)) {
		groups.push_back(placement.GroupOfSlot(slot));
	}
	return groups;
}

} // namespace catalog
} // namespace quack
