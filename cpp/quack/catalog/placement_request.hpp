//! What a user asks for when a table is placed: options of CREATE TABLE ... WITH (...), ALTER TABLE ... SET GROUP(S).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/parser/column_list.hpp"
#include "duckdb/parser/constraint.hpp"
#include "duckdb/parser/constraints/unique_constraint.hpp"
#include "duckdb/parser/parsed_data/create_table_info.hpp"
#include "duckdb/parser/parsed_expression.hpp"
#include "quack/catalog/placements.hpp"

namespace quack {
namespace catalog {

struct PlacementRequest {
	enum class Kind : uint8_t {
		Root = 0,    //! SET GROUP DEFAULT
		Pinned = 1,  //! WITH (quack_group = 'g'), SET GROUP 'g'
		Sharded = 2, //! WITH (quack_shard_key = 'a,b', quack_initial_groups = n)
		Resized = 3, //! SET GROUPS n of a sharded table
	};
	Kind kind = Kind::Root;
	//! Pinned.
	std::string group;
	//! Sharded: columns, as the user wrote them.
	std::vector<std::string> shard_key;
	//! Sharded, resized.
	uint32_t groups = 0;
};

std::string EncodePlacementRequest(const PlacementRequest &request);
//! Corruption.
Result<PlacementRequest> DecodePlacementRequest(ByteView bytes);

//! Content of an EffectKind::Placement.
struct PlacementChange {
	PlacementRequest request;
	//! Of the root group as the executing node knew it: what groups that this change creates start with. They follow
	//! the root group's own from there.
	raft::Membership membership;
};

std::string EncodePlacementChange(const PlacementChange &change);
//! Corruption.
Result<PlacementChange> DecodePlacementChange(ByteView bytes);

//! Equal values of the type have equal bytes, so that their rows get the same slot.
bool MayBeShardKey(const duckdb::LogicalType &type);
//! The types above in words.
extern const char *const SHARD_KEY_TYPES;

//! Takes the options of this extension out of the statement; nothing when there are none. Throws BinderException for
//! unknown ones, bad values, and options that do not go together.
std::optional<PlacementRequest> TakePlacementOptions(duckdb::CreateTableInfo &info);

//! Throws BinderException with the reason when a table of this definition cannot be placed so: unknown or unfit shard
//! key columns, unique keys without the shard key, foreign keys. Shard key columns get the names they have in the
//! definition.
void CheckPlacementRequest(const std::string &table, const duckdb::ColumnList &columns,
                           const duckdb::vector<duckdb::unique_ptr<duckdb::Constraint>> &constraints,
                           PlacementRequest &request);

//! Names of the columns of a unique constraint of a table with these columns.
std::vector<std::string> UniqueColumns(const duckdb::UniqueConstraint &unique, const duckdb::ColumnList &columns);
//! Names of the columns of an index; of an expression that is no column, its text.
std::vector<std::string> UniqueColumns(const duckdb::vector<duckdb::unique_ptr<duckdb::ParsedExpression>> &expressions);

//! Throws BinderException: the unique key of a sharded table does not hold its shard key.
void CheckUniqueHoldsShardKey(const std::string &table, const std::vector<std::string> &shard_key,
                              const std::vector<std::string> &unique_columns, const std::string &what);

//! Where a table lives, or will live after a COMMIT; the root group unless something else is said.
struct TablePlace {
	//! Of one that is not sharded.
	std::string group = ROOT_GROUP_NAME;
	//! Empty when it is not sharded.
	std::vector<std::string> shard_key;

	bool IsSharded() const {
		return !shard_key.empty();
	}
};

//! `wish` of a transaction for the table, or null; `now` = what is committed, or null for the root group.
TablePlace PlaceAfter(const PlacementRequest *wish, const Placement *now, const Placements &placements);

//! Throws BinderException: a foreign key joins the two, so what happens to one must be decided in the other's log.
void CheckForeignKeyPlaces(const std::string &table, const TablePlace &place, const std::string &other,
                           const TablePlace &other_place);

//! Throws BinderException unless the number of groups is allowed.
void CheckGroupCount(uint64_t groups);

//! What the new placement is, once the group names have their numbers: of names in the order that the request needs
//! them (see GroupNamesOf).
std::vector<std::string> GroupNamesOf(const PlacementRequest &request);

//! The mark of a request on a table that a local transaction creates, until its COMMIT (duckdb_tables().tags).
constexpr const char *PLACEMENT_TAG = "quack_placement";
std::string PlacementToTag(const PlacementRequest &request);
Result<PlacementRequest> PlacementFromTag(const std::string &tag);

} // namespace catalog
} // namespace quack
