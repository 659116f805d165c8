#include "quack/catalog/meta_store.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection.hpp"
#include "quack/catalog/query_rows.hpp"

namespace quack {
namespace catalog {
namespace {

const ObjectName ENTRIES {{META_SCHEMA}, "entries"};
const ObjectName STATE {{META_SCHEMA}, "state"};

//! Throws Status.
ApplyTable &MetaTable(ApplySession &session, const ObjectName &name) {
	try {
		return session.Table(name);
	} catch (Rejected &) {
		throw Status(ErrorCode::Corruption, "table " + name.ToString() + " is missing");
	}
}

std::string StreamTable(const OpenStream &open, uint32_t number) {
	return "stream_" + RequestIdToString(open.stream) + "_" + std::to_string(number);
}

raft::LogIndex DecodeIndex(const std::string &value) {
	return ByteReader(value).GetU64();
}

SequenceUsers DecodeSequenceUsers(const std::string &value) {
	ByteReader reader(value);
	SequenceUsers users;
	users.last_user = reader.GetU64();
	users.last_index = reader.GetU64();
	users.other_index = reader.GetU64();
	users.usage_count = reader.GetU64();
	return users;
}

void LoadEntries(duckdb::Connection &connection, ReplicatedState &state) {
	// Only functions of DuckDB's core: an image is looked at in an instance of its own, which in a self-contained build
	// has no further ones.
	auto groups =
	    QueryRows(connection, "SELECT e.group_id, e.idx, e.term FROM cp.__quack.entries e JOIN (SELECT group_id, "
		                      "max(idx) AS idx FROM cp.__quack.entries GROUP BY group_id) last "
		                      "ON e.group_id = last.group_id AND e.idx = last.idx");
	for (auto &row : groups) {
		node::AppliedPosition position;
		position.group = row[0].GetValue<uint64_t>();
		position.index = row[1].GetValue<uint64_t>();
		position.term = row[2].GetValue<uint64_t>();
		state.positions[position.group] = position;
	}
	auto rows =
	    QueryRows(connection, "SELECT group_id, idx, request_id, code, message, base FROM cp.__quack.entries WHERE "
		                      "request_id IS NOT NULL ORDER BY group_id, idx");
	for (auto &row : rows) {
		CommitOutcome outcome;
		auto &id = duckdb::StringValue::Get(row[2]);
		outcome.group = row[0].GetValue<uint64_t>();
		outcome.index = row[1].GetValue<uint64_t>();
		std::copy_n(id.begin(), std::min(id.size(), outcome.request_id.size()), outcome.request_id.begin());
		outcome.status = Status(ErrorCode(row[3].GetValue<uint8_t>()), row[4].IsNull() ? "" : row[4].ToString());
		outcome.base = row[5].GetValue<uint64_t>();
		state.outcomes.Add(outcome);
	}
	for (auto &position : state.positions) {
		state.outcomes.Trim(position.first, position.second.index);
	}
}

//! A damaged row would make this node differ in silence. Throws Status.
template <class T>
T Intact(Result<T> result) {
	if (!result.IsOk()) {
		throw result.GetStatus();
	}
	return std::move(result.Value());
}

void LoadTableChange(const std::string &name, raft::LogIndex index, ReplicatedState &state) {
	ByteReader reader(name);
	TableInGroup table;
	table.first = reader.GetVarint();
	table.second = std::string(reader.GetBytes());
	state.table_changes[table] = index;
	auto &last = state.last_changes[table.first];
	last = std::max(last, index);
}

//! Rows come by index, so locks are granted again in the order of their prepares.
void LoadPrepared(const std::string &name, const std::string &value, ReplicatedState &state) {
	ByteReader names(name);
	auto group = names.GetU64();
	node::TransactionId id {};
	auto bytes = names.GetRaw(id.size());
	std::copy(bytes.begin(), bytes.end(), id.begin());
	if (value.empty()) {
		state.prepared.Release(group, id);
		return;
	}
	ByteReader reader(value);
	node::PreparedPart part;
	part.index = reader.GetU64();
	part.coordinator = reader.GetU64();
	part.locks = node::GetLocks(reader);
	part.body = std::string(reader.GetBytes());
	if (!names.Done() || !reader.Done()) {
		throw Status(ErrorCode::Corruption, "a prepared part in the replication state is malformed");
	}
	state.prepared.Restore(group, id, std::move(part));
}

//! What is about groups and placements; false for other kinds.
bool LoadGroupRow(StateKind kind, const std::string &name, const std::string &value, ReplicatedState &state) {
	switch (kind) {
	case StateKind::Group:
		state.placements.Restore(Intact(DecodeGroupInfo(value)));
		return true;
	case StateKind::NextGroup:
		state.placements.RestoreNextId(DecodeIndex(value));
		return true;
	case StateKind::Placement:
		if (value.empty()) {
			state.placements.Erase(name);
		} else {
			state.placements.Set(name, Intact(DecodePlacement(value)));
		}
		return true;
	case StateKind::Prepared:
		LoadPrepared(name, value, state);
		return true;
	case StateKind::Forgotten:
		state.outcomes.RestoreForgotten(DecodeIndex(name), DecodeIndex(value));
		return true;
	case StateKind::MultiraftSql:
		state.is_multiraft_sql_enabled = DecodeIndex(value) != 0;
		return true;
	default:
		return false;
	}
}

void LoadStateRow(StateKind kind, raft::LogIndex index, const std::string &name, const std::string &value,
                  LoadedMeta &loaded) {
	switch (kind) {
	case StateKind::ClusterId:
		loaded.cluster_id = value;
		break;
	case StateKind::Format:
		loaded.format = uint32_t(DecodeIndex(value));
		break;
	case StateKind::Membership: {
		auto membership = raft::DecodeMembership(value);
		auto position = loaded.state.positions.find(DecodeIndex(name));
		if (membership.IsOk() && position != loaded.state.positions.end()) {
			position->second.membership = membership.Value();
		}
		break;
	}
	case StateKind::CatalogVersion:
		loaded.state.catalog_version = DecodeIndex(value);
		break;
	case StateKind::Object:
		loaded.state.object_versions[name] = DecodeIndex(value);
		break;
	case StateKind::Sequence:
		loaded.state.sequences[name] = DecodeSequenceUsers(value);
		break;
	case StateKind::TableChange:
		LoadTableChange(name, DecodeIndex(value), loaded.state);
		break;
	case StateKind::Stream: {
		auto open = DecodeOpenStream(value);
		auto id = DecodeStreamId(name);
		if (open.IsOk()) {
			loaded.state.streams[open.Value().stream] = open.Value();
		} else if (id.IsOk()) {
			loaded.state.streams.erase(id.Value());
		}
		break;
	}
	default:
		if (!LoadGroupRow(kind, name, value, loaded.state)) {
			LoadChangeRow(kind, index, name, value, loaded.state.changes);
		}
		break;
	}
}

} // namespace

std::string EncodeIndex(raft::LogIndex index) {
	std::string out;
	ByteWriter(out).PutU64(index);
	return out;
}

std::string TableChangeName(const TableInGroup &table) {
	std::string out;
	ByteWriter writer(out);
	writer.PutVarint(table.first);
	writer.PutBytes(table.second);
	return out;
}

std::string PreparedName(raft::GroupId group, const node::TransactionId &id) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(group);
	writer.PutRaw(ByteView(reinterpret_cast<const char *>(id.data()), id.size()));
	return out;
}

std::string EncodePreparedPart(const node::PreparedPart &part) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(part.index);
	writer.PutU64(part.coordinator);
	node::PutLocks(writer, part.locks);
	writer.PutBytes(part.body);
	return out;
}

std::string EncodeSequenceUsers(const SequenceUsers &users) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(users.last_user);
	writer.PutU64(users.last_index);
	writer.PutU64(users.other_index);
	writer.PutU64(users.usage_count);
	return out;
}

duckdb::Value BlobValue(ByteView bytes) {
	return duckdb::Value::BLOB(reinterpret_cast<duckdb::const_data_ptr_t>(bytes.data()), bytes.size());
}

void AppendMetaRows(ApplySession &session, const ObjectName &name, size_t count,
                    const std::function<std::vector<duckdb::Value>(size_t)> &row) {
	auto &table = MetaTable(session, name);
	for (size_t start = 0; start < count; start += STANDARD_VECTOR_SIZE) {
		auto rows = std::min<size_t>(STANDARD_VECTOR_SIZE, count - start);
		duckdb::DataChunk chunk;
		chunk.Initialize(duckdb::Allocator::DefaultAllocator(), table.types);
		for (size_t i = 0; i < rows; i++) {
			auto values = row(start + i);
			for (size_t c = 0; c < values.size(); c++) {
				chunk.data[c].SetValue(i, values[c]);
			}
		}
		chunk.SetChildCardinality(rows);
		session.Append(table, chunk);
	}
}

void AppendEntryRows(ApplySession &session, const std::vector<EntryRow> &rows) {
	AppendMetaRows(session, ENTRIES, rows.size(), [&](size_t i) {
		auto &row = rows[i];
		std::vector<duckdb::Value> values {duckdb::Value::UBIGINT(row.group), duckdb::Value::UBIGINT(row.index),
		                                   duckdb::Value::UBIGINT(row.term)};
		if (!row.outcome) {
			values.insert(values.end(),
			              {duckdb::Value(duckdb::LogicalType::BLOB), duckdb::Value(duckdb::LogicalType::UTINYINT),
			               duckdb::Value(duckdb::LogicalType::VARCHAR), duckdb::Value(duckdb::LogicalType::UBIGINT)});
			return values;
		}
		auto &id = row.outcome->request_id;
		auto &status = row.outcome->status;
		values.push_back(duckdb::Value::BLOB(id.data(), id.size()));
		values.push_back(duckdb::Value::UTINYINT(uint8_t(status.Code())));
		values.push_back(status.IsOk() ? duckdb::Value(duckdb::LogicalType::VARCHAR) : duckdb::Value(status.Message()));
		values.push_back(duckdb::Value::UBIGINT(row.outcome->base));
		return values;
	});
}

void AppendStateRows(ApplySession &session, const std::vector<StateRow> &rows) {
	AppendMetaRows(session, STATE, rows.size(), [&](size_t i) {
		auto &row = rows[i];
		return std::vector<duckdb::Value> {duckdb::Value::UBIGINT(row.index),
		                                   duckdb::Value::UTINYINT(uint8_t(row.kind)), BlobValue(row.name),
		                                   BlobValue(row.value)};
	});
}

void AppendFragment(ApplySession &session, const OpenStream &open, const Fragment &fragment) {
	auto name = StreamTable(open, open.tables - 1);
	if (open.last_table_bytes == fragment.bytes.size()) {
		session.ForgetTables();
		QueryRows(session.GetConnection(), "CREATE TABLE cp.__quack." + name + "(sequence UINTEGER, bytes BLOB)");
	}
	AppendMetaRows(session, {{META_SCHEMA}, name}, 1, [&](size_t) {
		return std::vector<duckdb::Value> {duckdb::Value::UINTEGER(fragment.sequence), BlobValue(fragment.bytes)};
	});
}

std::vector<std::string> ReadFragments(ApplySession &session, const OpenStream &open, uint32_t table) {
	auto name = StreamTable(open, table);
	MetaTable(session, {{META_SCHEMA}, name});
	std::vector<std::string> fragments;
	for (auto &row :
	     QueryRows(session.GetConnection(), "SELECT bytes FROM cp.__quack." + name + " ORDER BY sequence")) {
		fragments.push_back(duckdb::StringValue::Get(row[0]));
	}
	return fragments;
}

void DropFragments(ApplySession &session, const OpenStream &open) {
	session.ForgetTables();
	for (uint32_t table = 0; table < open.tables; table++) {
		QueryRows(session.GetConnection(), "DROP TABLE IF EXISTS cp.__quack." + StreamTable(open, table));
	}
}

bool LoadChangeRow(StateKind kind, raft::LogIndex index, const std::string &name, const std::string &value,
                   ChangeFeed &feed) {
	switch (kind) {
	case StateKind::ChangeSetting:
		LoadChangeSetting(value, feed);
		break;
	case StateKind::ChangeFloor:
		LoadChangeFloor(name, value, feed);
		break;
	case StateKind::ChangeSegment:
		LoadChangeSegment(name, value, feed);
		break;
	case StateKind::ChangeTable:
		LoadChangeTable(name, value, feed);
		break;
	default:
		return false;
	}
	feed.sequence = std::max(feed.sequence, index);
	return true;
}

void CreateMetaTables(ReplicaCore &core) {
	ApplySession session(core);
	auto &connection = session.GetConnection();
	QueryRows(connection, "CREATE SCHEMA cp.__quack");
	QueryRows(connection,
	          "CREATE TABLE cp.__quack.entries(group_id UBIGINT, idx UBIGINT, term UBIGINT, request_id BLOB, "
	          "code UTINYINT, message VARCHAR, base UBIGINT)");
	QueryRows(connection, "CREATE TABLE cp.__quack.state(idx UBIGINT, kind UTINYINT, name BLOB, value BLOB)");
	AppendStateRows(session, {{0, StateKind::ClusterId, "", core.options.cluster_id},
	                          {0, StateKind::Format, "", EncodeIndex(FILE_FORMAT_VERSION)}});
	session.Commit();
}

Result<LoadedMeta> LoadMeta(duckdb::Connection &connection) {
	auto exists =
	    QueryRows(connection, "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'cp' AND schema_name = "
		                      "'__quack' AND table_name IN ('entries', 'state')");
	if (exists[0][0].GetValue<int64_t>() != 2) {
		return Status(ErrorCode::NotFound, "the file has no replication state");
	}
	LoadedMeta loaded;
	LoadEntries(connection, loaded.state);
	auto rows = QueryRows(connection, "SELECT kind, idx, name, value FROM cp.__quack.state ORDER BY idx");
	for (auto &row : rows) {
		LoadStateRow(StateKind(row[0].GetValue<uint8_t>()), row[1].GetValue<uint64_t>(),
		             duckdb::StringValue::Get(row[2]), duckdb::StringValue::Get(row[3]), loaded);
	}
	return loaded;
}

void GiveMetaToCluster(duckdb::Connection &connection, const std::string &path, const std::string &cluster_id) {
	auto kind = [](StateKind value) {
		return std::to_string(static_cast<int>(value));
	};
	QueryRows(connection, "ATTACH " + SqlString(path) + " AS cp");
	QueryRows(connection, "BEGIN");
	QueryRows(connection, "DELETE FROM cp.__quack.state WHERE kind = " + kind(StateKind::Membership));
	QueryRows(connection, "UPDATE cp.__quack.state SET value = encode(" + SqlString(cluster_id) +
	                          ") WHERE kind = " + kind(StateKind::ClusterId));
	QueryRows(connection, "COMMIT");
	QueryRows(connection, "CHECKPOINT cp");
	QueryRows(connection, "DETACH cp");
}

void CompactMeta(ReplicaCore &core) {
	ApplySession session(core);
	auto &connection = session.GetConnection();
	std::vector<StateRow> forgotten;
	for (auto &group : core.state.outcomes.Forgotten()) {
		auto applied = core.state.positions.find(group.first);
		if (applied != core.state.positions.end()) {
			forgotten.push_back(
			    {applied->second.index, StateKind::Forgotten, EncodeIndex(group.first), EncodeIndex(group.second)});
		}
	}
	AppendStateRows(session, forgotten);
	session.FinishAppends();
	QueryRows(connection, "DELETE FROM cp.__quack.entries WHERE idx + " + std::to_string(OUTCOME_WINDOW) +
	                          " < (SELECT max(e.idx) FROM cp.__quack.entries e WHERE e.group_id = entries.group_id)");
	QueryRows(connection,
	          "DELETE FROM cp.__quack.state WHERE idx < (SELECT max(n.idx) FROM cp.__quack.state n WHERE n.kind = "
	          "state.kind AND n.name = state.name)");
	std::string ending;
	for (auto kind : {StateKind::Stream, StateKind::Placement, StateKind::Prepared, StateKind::ChangeFloor,
	                  StateKind::ChangeSegment, StateKind::ChangeTable}) {
		ending += (ending.empty() ? "" : ", ") + std::to_string(static_cast<int>(kind));
	}
	QueryRows(connection, "DELETE FROM cp.__quack.state WHERE kind IN (" + ending + ") AND value = ''::BLOB");
	session.Commit();
}

} // namespace catalog
} // namespace quack
