//! The tables of schema `__quack`: what is applied, what became of requests, versions and identity. Append-only between
//! compactions; written in the transactions whose effects they describe, so that any checkpoint holds both or neither.
//!
//!   entries(group_id, idx, term, request_id, code, message, base)   one row per log entry; largest idx = applied
//!   vector state(idx, kind, name, value)                             newest row per (kind, name) counts
//!   stream_<id>_<n>(sequence, bytes)                          fragments of a large transaction that has not ended
//!   changes_<group>_<n>                                       change_feed.hpp
#pragma once

#include "quack/catalog/apply_session.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

constexpr uint32_t FILE_FORMAT_VERSION = 2;

struct EntryRow {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
	raft::Term term = 0;
	//! Not set for no-ops, memberships and repeated requests.
	std::optional<CommitOutcome> outcome;
};

enum class StateKind : uint8_t {
	ClusterId = 0,
	Format = 1,
	Membership = 2,
	CatalogVersion = 3,
	Object = 4,
	Sequence = 5,
	TableChange = 6,
	Stream = 7, //! by stream id; an empty value = it has ended
	Group = 8,  //! by group
	NextGroup = 9,
	Placement = 10, //! by table; an empty value = the root group
	Prepared = 11,  //! by group and transaction id; an empty value = it was released
	Forgotten = 12, //! by group: OutcomeWindow::Forgotten
	MultiraftSql = 13,
	//! Of the change feed (change_feed.hpp); their idx is ChangeFeed::sequence.
	ChangeSetting = 14,
	ChangeFloor = 15,   //! by group; an empty value = the feed is off
	ChangeSegment = 16, //! by group and number; an empty value = it was dropped
	ChangeTable = 17    //! by table; an empty value = it was dropped, or has another name
};

struct StateRow {
	raft::LogIndex index = 0;
	StateKind kind = StateKind::ClusterId;
	std::string name;
	std::string value;
};

duckdb::Value BlobValue(ByteView bytes);
//! To any of these tables. Throws Status (Corruption) when it is missing, or what DuckDB throws.
void AppendMetaRows(ApplySession &session, const ObjectName &name, size_t count,
                    const std::function<std::vector<duckdb::Value>(size_t)> &row);
void AppendEntryRows(ApplySession &session, const std::vector<EntryRow> &rows);
void AppendStateRows(ApplySession &session, const std::vector<StateRow> &rows);

//! Into the newest table of the stream, which is made when this is its first fragment. Throws Status, or what DuckDB
//! throws.
void AppendFragment(ApplySession &session, const OpenStream &open, const Fragment &fragment);
//! The fragments in table `table` of the stream, in order. Throws Status, or what DuckDB throws.
std::vector<std::string> ReadFragments(ApplySession &session, const OpenStream &open, uint32_t table);
void DropFragments(ApplySession &session, const OpenStream &open);

std::string EncodeIndex(raft::LogIndex index);
//! Names of state rows.
std::string TableChangeName(const TableInGroup &table);
std::string PreparedName(raft::GroupId group, const node::TransactionId &id);
std::string EncodePreparedPart(const node::PreparedPart &part);
std::string EncodeSequenceUsers(const SequenceUsers &users);

//! True when the row is about the change feed.
bool LoadChangeRow(StateKind kind, raft::LogIndex index, const std::string &name, const std::string &value,
                   ChangeFeed &feed);

//! Creates the tables in a new file. Throws what DuckDB throws.
void CreateMetaTables(ReplicaCore &core);

struct LoadedMeta {
	ReplicatedState state;
	std::string cluster_id;
	uint32_t format = 0;
};

//! Reads the state from catalog `cp` through `connection`; NotFound when there is no `__quack` schema.
Result<LoadedMeta> LoadMeta(duckdb::Connection &connection);

//! Attaches the file as `cp`, replaces the cluster id, forgets memberships, writes a checkpoint and detaches. Throws
//! what DuckDB throws.
void GiveMetaToCluster(duckdb::Connection &connection, const std::string &path, const std::string &cluster_id);

//! Deletes rows that no longer count, in a transaction of its own.
void CompactMeta(ReplicaCore &core);

} // namespace catalog
} // namespace quack
