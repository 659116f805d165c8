//! What is kept of the changes that were applied (DESIGN.md, "Change feed"): the part of the replicated state that says
//! so. Part of it are rows of `__quack.state`; the changes themselves lie in tables, one per segment:
//!
//!   changes_<group>_<number>(idx, sequence, ordinal, kind, table_id, definition, row_count, bytes, request_id,
//!   columns, old_rows, new_rows)
//!
//! A row holds a batch of changed rows as it came in the log, or (kind Definition) what the rows behind it are.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "quack/catalog/position_text.hpp"
#include "quack/common/bytes.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace catalog {

//! A segment takes entries until it holds this much; whole segments are dropped. Fixed, so that a group's log alone
//! decides where they end.
constexpr uint64_t CHANGE_SEGMENT_BYTES = 4 * 1024 * 1024;
//! What a stored batch counts besides its rows.
constexpr uint64_t CHANGE_BATCH_BYTES = 64;

enum class ChangeKind : uint8_t { Definition = 0, Insert = 1, Delete = 2, Update = 3 };

//! Columns of a segment's table.
enum ChangeColumn : uint8_t {
	CHANGE_INDEX,
	CHANGE_SEQUENCE,   //! orders the entries of all groups as this node applied them; another one on other nodes
	CHANGE_ORDINAL,    //! of the batch within its entry
	CHANGE_KIND,       //! ChangeKind
	CHANGE_TABLE,      //! ChangeFeed::TableId
	CHANGE_DEFINITION, //! hash of the definition that the rows have
	CHANGE_ROW_COUNT,
	CHANGE_BYTES,
	CHANGE_REQUEST,
	CHANGE_UPDATED,  //! Update: physical indexes of the columns in new_rows, u32 each
	CHANGE_OLD_ROWS, //! Delete, Update: chunk_codec.hpp
	CHANGE_NEW_ROWS, //! Insert, Update: chunk_codec.hpp; Definition: EncodeDefinition
	CHANGE_COLUMN_COUNT
};

struct ChangeSegment {
	raft::LogIndex last = 0; //! of its entries
	uint64_t bytes = 0;
};

struct ChangeGroup {
	//! All changes of later entries are kept.
	raft::LogIndex floor = 0;
	std::map<uint64_t, ChangeSegment> segments; //! by number; the oldest is first
	//! Hashes that the newest segment is known to hold. Not persisted: a definition may be stored again.
	std::set<std::string> definitions;

	uint64_t Bytes() const;
};

struct ChangeFeed {
	//! Bytes that each group keeps at least, when it had so many; 0 = the feed is off.
	uint64_t retention = 0;
	//! Root index of the entry that switched it on.
	raft::LogIndex since = 0;
	//! The last one used. Numbers entries with changes, and rows of `__quack.state` about the feed.
	uint64_t sequence = 0;
	//! Of tables that were created or renamed since: what TableId says, by ObjectName::Key().
	std::map<std::string, std::string> tables;
	std::map<raft::GroupId, ChangeGroup> groups;

	bool IsOn() const {
		return retention != 0;
	}
	//! Whether the changes of an entry are kept; a function of the log alone. Entries of other groups count when they
	//! were planned after the feed was switched on: every node has done so before it applies them.
	bool Takes(raft::GroupId group, raft::LogIndex index, raft::LogIndex planned_version) const {
		return IsOn() && (group == raft::ROOT_GROUP ? index > since : planned_version >= since);
	}
	//! Names a table from its creation to its end, whatever it is called.
	std::string TableId(const std::string &key) const;
	//! NotFound: changes after this position were dropped.
	Status CheckKept(const AppliedVector &from) const;
	//! The oldest position from which everything is kept.
	AppliedVector Floors() const;
};

std::string ChangeTableName(raft::GroupId group, uint64_t segment);

//! Rows of `__quack.state` about the feed; kinds are meta_store.hpp's.
std::string EncodeChangeSetting(uint64_t retention, raft::LogIndex since);
std::string ChangeSegmentName(raft::GroupId group, uint64_t number);
std::string EncodeChangeSegment(const ChangeSegment &segment);
void LoadChangeSetting(const std::string &value, ChangeFeed &feed);
void LoadChangeFloor(const std::string &name, const std::string &value, ChangeFeed &feed);
//! An empty value = it was dropped.
void LoadChangeSegment(const std::string &name, const std::string &value, ChangeFeed &feed);
void LoadChangeTable(const std::string &name, const std::string &value, ChangeFeed &feed);

//! Physical columns of a table at one time.
struct ChangeDefinition {
	std::vector<std::string> names;
	duckdb::vector<duckdb::LogicalType> types;
};

ChangeDefinition DefinitionOf(const duckdb::TableCatalogEntry &table);
std::string EncodeDefinition(const ChangeDefinition &definition);
//! Throws what DuckDB throws.
ChangeDefinition DecodeDefinition(ByteView bytes);

} // namespace catalog
} // namespace quack
