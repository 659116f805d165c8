#include "quack/catalog/applier.hpp"

#include <chrono>
#include <thread>

#include "duckdb/common/exception.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/transaction/duck_transaction_manager.hpp"
#include "quack/catalog/database_file.hpp"
#include "quack/catalog/equality_audit.hpp"
#include "quack/catalog/part_locks.hpp"
#include "quack/catalog/stream_apply.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

//! One DuckDB transaction takes at most this much; below a row group (122,880 rows), so that nothing is written to disk
//! before commit.
constexpr uint64_t BATCH_ROWS_MAX = 65536;
constexpr size_t BATCH_BYTES_MAX = 16 * 1024 * 1024;
constexpr size_t BATCH_ENTRIES_MAX = 4096;
//! Something local that still holds what an entry needs after this long means a bug.
constexpr MonotonicNs EVICTION_LIMIT = 20 * NS_PER_SECOND;
//! From these attempts on, writers of any table, respectively all transactions are evicted.
constexpr int EVICT_ALL_WRITERS = 2;
constexpr int EVICT_READERS = 5;
//! From this attempt on nothing local can be the reason.
constexpr int RESTORE_TABLES = 8;
constexpr auto EVICTION_PAUSE = std::chrono::milliseconds(1);

//! An index build gives local snapshots that block it this long to end, then evicts them.
constexpr MonotonicNs OLD_SNAPSHOT_PATIENCE = 500 * NS_PER_MS;
constexpr MonotonicNs OLD_SNAPSHOT_LIMIT = 30 * NS_PER_SECOND;

enum class Failure { LocalConflict, Deterministic, Fatal };

//! What an exception during apply means. Deterministic: depends on the entry and the replicated state alone.
Failure Classify(const duckdb::ErrorData &error) {
	using duckdb::ExceptionType;
	switch (error.Type()) {
	case ExceptionType::TRANSACTION:
		return Failure::LocalConflict;
	case ExceptionType::CONSTRAINT:
	case ExceptionType::CONVERSION:
	case ExceptionType::OUT_OF_RANGE:
	case ExceptionType::INVALID_INPUT:
	case ExceptionType::CATALOG:
	case ExceptionType::BINDER:
	case ExceptionType::DEPENDENCY:
	case ExceptionType::PARSER:
	case ExceptionType::NOT_IMPLEMENTED:
		return Failure::Deterministic;
	default:
		return Failure::Fatal;
	}
}

Status ToStatus(const duckdb::ErrorData &error, bool planned_on_current_catalog) {
	using duckdb::ExceptionType;
	switch (error.Type()) {
	case ExceptionType::CATALOG:
	case ExceptionType::BINDER:
	case ExceptionType::DEPENDENCY:
	case ExceptionType::PARSER:
	case ExceptionType::NOT_IMPLEMENTED:
		return planned_on_current_catalog
		           ? Status(ErrorCode::NotSupported, "the change cannot be replicated: " + error.RawMessage())
				   : Status(ErrorCode::SchemaChanged, error.RawMessage());
	default:
		return Status(ErrorCode::Constraint, error.RawMessage());
	}
}

bool IsOnly(const DecodedEntry &entry, EffectKind kind) {
	return entry.effects.size() == 1 && entry.effects.front().kind == kind;
}

//! Entries come from nodes of this cluster: what does not decode is damage, or a bug.
template <class T>
T Decoded(Result<T> result) {
	if (!result.IsOk()) {
		throw result.GetStatus();
	}
	return std::move(result.Value());
}

bool ChangesRows(const DecodedEntry &entry) {
	for (auto &effect : entry.effects) {
		if (effect.kind == EffectKind::DeleteRows || effect.kind == EffectKind::UpdateRows) {
			return true;
		}
	}
	return false;
}

} // namespace

Status Applier::Apply(const std::vector<node::CommittedEntry> &entries) {
	decoded.clear();
	decoded.resize(entries.size());
	transactions.clear();
	rejections.clear();
	size_t next = 0;
	while (next < entries.size()) {
		auto applied = ApplySome(entries, next);
		if (!applied.IsOk()) {
			auto &entry = entries[next];
			return Status(applied.GetStatus().Code(), "applying entries from " + std::to_string(entry.entry.index) +
			                                              " of group " + std::to_string(entry.group) +
			                                              " failed: " + applied.GetStatus().Message());
		}
		for (size_t i = next; i < next + applied.Value(); i++) {
			decoded[i].reset();
		}
		next += applied.Value();
		try {
			TellAudit();
			CompactWhenLong();
		} catch (std::exception &exception) {
			return Status(ErrorCode::Internal,
			              "compacting the replication state failed: " + duckdb::ErrorData(exception).Message());
		}
	}
	return Status::Ok();
}

Result<size_t> Applier::ApplySome(const std::vector<node::CommittedEntry> &entries, size_t begin) {
	auto limit = entries.size();
	int conflicts = 0;
	SystemClock clock;
	auto start = clock.Now();
	MonotonicNs longest = 0; // attempt; a large transaction takes long
	GateScope gate(core.transactions);
	auto status = DecodeAt(entries, begin);
	if (!status.IsOk()) {
		return status;
	}
	for (;;) {
		auto begun = clock.Now();
		try {
			if (decoded[begin] && decoded[begin]->header.has_ddl) {
				AwaitOldSnapshots(*decoded[begin], [&]() { gate.Close(); });
			}
			attempt_objects.clear();
			return Attempt(entries, begin, limit);
		} catch (Stop &stop) {
			if (stop.position == begin) {
				if (!rejections.emplace(begin, stop.status).second) {
					return Status(ErrorCode::Internal, "a rejected entry cannot be skipped: " + stop.status.Message());
				}
			} else {
				limit = stop.position;
			}
		} catch (Status &failure) {
			return failure;
		} catch (std::exception &exception) {
			duckdb::ErrorData error(exception);
			longest = std::max(longest, clock.Now() - begun);
			if (Classify(error) != Failure::LocalConflict ||
			    clock.Now() - start > EVICTION_LIMIT + 2 * RESTORE_TABLES * longest) {
				return Status(ErrorCode::Internal, error.Message());
			}
			gate.Close();
			OnLocalConflict(++conflicts);
		}
	}
}

Status Applier::DecodeAt(const std::vector<node::CommittedEntry> &entries, size_t position) {
	auto &committed = entries[position].entry;
	if (committed.type != raft::EntryType::Normal || decoded[position] || transactions.count(position) != 0) {
		return Status::Ok();
	}
	ByteView payload(*committed.payload);
	if (node::IsTransactionEntry(payload)) {
		auto transaction = node::DecodeTransactionEntry(payload);
		if (!transaction.IsOk()) {
			return transaction.GetStatus();
		}
		payload = transaction.Value().body;
		auto is_release = transaction.Value().kind == node::TransactionEntryKind::Release;
		transactions[position] = std::move(transaction.Value());
		if (is_release) {
			return Status::Ok();
		}
	}
	auto entry = DecodeEntry(payload);
	if (!entry.IsOk()) {
		return entry.GetStatus();
	}
	decoded[position] = std::move(entry.Value());
	return Status::Ok();
}

size_t Applier::Attempt(const std::vector<node::CommittedEntry> &entries, size_t begin, size_t limit) {
	ApplySession session(core);
	Staged staged;
	auto position = begin;
	for (; position < limit; position++) {
		auto &committed = entries[position];
		auto applied = core.state.positions.find(committed.group);
		if (applied != core.state.positions.end() && committed.entry.index <= applied->second.index) {
			continue; // a replay that overlaps
		}
		auto status = DecodeAt(entries, position);
		if (!status.IsOk()) {
			throw status;
		}
		auto *entry = decoded[position].get();
		auto is_transaction = transactions.count(position) != 0;
		if (position > begin &&
		    (is_transaction || (entry != nullptr && MustStartTransaction(session, *entry, staged)))) {
			break;
		}
		ApplyEntry(session, committed, position, staged);
		if (staged.checksum || staged.has_ddl || staged.is_closed || staged.data_rows >= BATCH_ROWS_MAX ||
		    staged.bytes >= BATCH_BYTES_MAX || position + 1 - begin >= BATCH_ENTRIES_MAX) {
			position++;
			break;
		}
	}
	for (auto &change : staged.table_changes) {
		staged.state_rows.push_back(
		    {change.second, StateKind::TableChange, TableChangeName(change.first), EncodeIndex(change.second)});
	}
	if (staged.changes) {
		staged.changes->Finish(session, staged.state_rows);
	}
	AppendEntryRows(session, staged.rows);
	AppendStateRows(session, staged.state_rows);
	try {
		session.Commit();
	} catch (std::exception &exception) {
		duckdb::ErrorData error(exception);
		if (Classify(error) != Failure::Deterministic) {
			throw;
		}
		// A unique key that only the commit found.
		// The batch is cut until the guilty entry stands alone.
		throw Stop {position - 1, Status(ErrorCode::Constraint, error.RawMessage())};
	}
	NoteRowChanges(staged);
	Publish(staged);
	checksum = std::move(staged.checksum);
	checksum_index = staged.checksum_index;
	return position - begin;
}

bool Applier::MustStartTransaction(ApplySession &session, const DecodedEntry &entry, const Staged &staged) const {
	if (entry.header.has_ddl || EndsStreams(entry, staged)) {
		return true;
	}
	for (auto &effect : entry.effects) {
		if (effect.kind == EffectKind::SequenceState || effect.kind == EffectKind::ReadTable ||
		    effect.kind == EffectKind::Checksum || effect.kind == EffectKind::Fragment) {
			continue;
		}
		bool changes = effect.kind != EffectKind::InsertRows;
		if (changes && staged.written.count(effect.object.Key()) != 0) {
			return true; // rows of this transaction cannot be found by key, nor be validated
		}
		if (changes || staged.has_changes) {
			try {
				// DuckDB checks foreign keys before the transaction's own deletes take effect.
				if (!session.Table(effect.object).foreign_keys.empty()) {
					return true;
				}
			} catch (Rejected &) {
				return false; // no such table: rejected without a trace
			}
		}
	}
	return false;
}

void Applier::ApplyEntry(ApplySession &session, const node::CommittedEntry &committed, size_t position,
                         Staged &staged) {
	auto &entry = committed.entry;
	staged.rows.push_back({committed.group, entry.index, entry.term, std::nullopt});
	auto known = core.state.positions.find(committed.group);
	auto &staged_position = staged.positions[committed.group];
	if (staged_position.index == 0 && known != core.state.positions.end()) {
		staged_position = known->second;
	}
	staged_position.group = committed.group;
	staged_position.index = entry.index;
	staged_position.term = entry.term;
	if (entry.type == raft::EntryType::Membership) {
		auto membership = raft::DecodeMembership(*entry.payload);
		if (!membership.IsOk()) {
			throw membership.GetStatus();
		}
		staged_position.membership = membership.Value();
		staged.state_rows.push_back({entry.index, StateKind::Membership, EncodeIndex(committed.group), *entry.payload});
	}
	if (entry.type == raft::EntryType::Normal && transactions.count(position) != 0) {
		ApplyTransaction(session, committed, position, staged);
	} else if (entry.type == raft::EntryType::Normal) {
		ApplyNormal(session, committed, position, staged);
	}
}

//! The first entry under an id in a group counts.
bool Applier::IsRepeated(const node::CommittedEntry &committed, const RequestId &id, const Staged &staged) const {
	return core.state.outcomes.Find(id, committed.group, committed.entry.index) != nullptr ||
	       staged.by_request.count({committed.group, id}) != 0;
}

void Applier::ApplyNormal(ApplySession &session, const node::CommittedEntry &committed, size_t position,
                          Staged &staged) {
	auto &entry = *decoded[position];
	auto &id = entry.header.request_id;
	if (IsRepeated(committed, id, staged)) {
		return; // the first one's outcome stands
	}
	if (IsOnly(entry, EffectKind::Fragment)) {
		ApplyFragment(session, committed, entry, staged);
		return;
	}
	CommitOutcome outcome;
	outcome.request_id = id;
	outcome.group = committed.group;
	outcome.index = committed.entry.index;
	auto rejection = rejections.find(position);
	node::LockSet locks;
	AddTableLocksOf(entry.effects, locks);
	outcome.status = rejection != rejections.end() ? rejection->second
	                                               : CheckEntry(session, committed, entry, nullptr, locks, staged);
	if (outcome.status.IsOk() && entry.effects.empty()) {
		// ReplicatedDatabase::ResolveOutcome: whoever waits for this request will hear that it never comes.
		outcome.status = Status(ErrorCode::Cancelled, "the transaction was given up: its outcome was asked for before "
		                                              "it reached the log");
	} else if (outcome.status.IsOk() && entry.effects.front().kind == EffectKind::Checksum) {
		staged.checksum = std::string(entry.effects.front().content);
		staged.checksum_index = committed.entry.index;
	} else if (outcome.status.IsOk() && entry.effects.front().kind == EffectKind::StreamDrop) {
		auto stream = Decoded(DecodeStreamId(entry.effects.front().content));
		if (auto *open = FindStream(stream, staged)) {
			EndStream(session, *open, committed.entry.index, staged);
		}
	} else if (outcome.status.IsOk() && entry.EndsStream()) {
		ExecuteStream(session, committed, entry, position, staged, outcome);
	} else if (outcome.status.IsOk()) {
		EffectApplier effects(session, entry, BeginChanges(committed, entry.header, staged));
		Execute(effects, committed, entry, position, staged, outcome);
	}
	EndStreams(session, committed, id, staged);
	Conclude(committed, entry.header, std::move(outcome), staged);
	staged.bytes += entry.body.size();
}

void Applier::Conclude(const node::CommittedEntry &committed, const EntryHeader &header, CommitOutcome outcome,
                       Staged &staged) {
	outcome.base = header.base_index;
	staged.rejected += outcome.status.IsOk() ? 0 : 1;
	bool is_foreign = header.incarnation != core.incarnation;
	staged.foreign_conflicts += outcome.status.Code() == ErrorCode::Conflict && is_foreign ? 1 : 0;
	staged.by_request.insert({committed.group, outcome.request_id});
	staged.rows.back().outcome = outcome;
	staged.outcomes.push_back(std::move(outcome));
}

//! Rejections found before anything was touched go into `outcome`.
template <class APPLIER>
void Applier::Execute(APPLIER &effects, const node::CommittedEntry &committed, const DecodedEntry &entry,
                      size_t position, Staged &staged, CommitOutcome &outcome) {
	for (auto &effect : entry.effects) {
		if (effect.kind == EffectKind::ReadTable || effect.kind == EffectKind::FragmentsEnd) {
			continue;
		}
		attempt_objects[effect.object.Key()] = effect.object;
		for (auto &name : effect.touched) {
			attempt_objects[name.Key()] = name;
		}
	}
	bool touched = false;
	try {
		if (!entry.header.has_ddl) {
			effects.Locate();
		}
		touched = true;
		effects.Execute();
		staged.data_rows += effects.Rows();
		Stage(committed, entry, effects.TakeSequenceMoves(), staged);
		if (staged.changes && effects.Rows() > 0 &&
		    !core.state.changes.Takes(committed.group, committed.entry.index, entry.header.planned_version)) {
			staged.changes->Skip(committed);
		}
	} catch (Rejected &rejected) {
		if (touched) {
			throw Stop {position, rejected.status};
		}
		outcome.status = rejected.status;
	} catch (std::exception &exception) {
		duckdb::ErrorData error(exception);
		if (Classify(error) != Failure::Deterministic) {
			throw;
		}
		throw Stop {position, ToStatus(error, entry.header.planned_version == core.state.catalog_version)};
	}
}

//! Null when what the entry changes is not kept.
ChangeTee *Applier::BeginChanges(const node::CommittedEntry &committed, const EntryHeader &header,
                                 Staged &staged) const {
	if (!core.state.changes.IsOn()) {
		return nullptr;
	}
	if (!staged.changes) {
		staged.changes.emplace(core.state.changes);
	}
	return staged.changes->Begin(committed, header);
}

//! Null when nothing is held of it.
const OpenStream *Applier::FindStream(const StreamId &id, const Staged &staged) const {
	auto fresh = staged.streams.find(id);
	if (fresh != staged.streams.end()) {
		return fresh->second ? &*fresh->second : nullptr;
	}
	auto known = core.state.streams.find(id);
	return known == core.state.streams.end() ? nullptr : &known->second;
}

std::vector<OpenStream> Applier::StreamsOf(const RequestId &request, const Staged &staged) const {
	std::vector<OpenStream> open;
	for (auto &stream : staged.streams) {
		if (stream.second && stream.second->request_id == request) {
			open.push_back(*stream.second);
		}
	}
	for (auto &stream : core.state.streams) {
		if (stream.second.request_id == request && staged.streams.count(stream.first) == 0) {
			open.push_back(stream.second);
		}
	}
	return open;
}

bool Applier::EndsStreams(const DecodedEntry &entry, const Staged &staged) const {
	return IsOnly(entry, EffectKind::StreamDrop) ||
	       (!IsOnly(entry, EffectKind::Fragment) && !StreamsOf(entry.header.request_id, staged).empty());
}

//! Changes nothing that anybody sees, and has no outcome: the entry that ends the stream decides.
void Applier::ApplyFragment(ApplySession &session, const node::CommittedEntry &committed, const DecodedEntry &entry,
                            Staged &staged) {
	auto fragment = Decoded(DecodeFragment(entry.effects.front().content));
	OpenStream open;
	if (auto *known = FindStream(fragment.stream, staged)) {
		open = *known;
	} else {
		// Whether the request was decided before can no longer be told when it is too late.
		if (!CheckWindow(committed, entry, staged).IsOk()) {
			return;
		}
		open.group = committed.group;
		open.stream = fragment.stream;
		open.request_id = entry.header.request_id;
	}
	if (open.request_id != entry.header.request_id || open.group != committed.group ||
	    !open.Take(fragment, committed.entry.index)) {
		return;
	}
	AppendFragment(session, open, fragment);
	staged.state_rows.push_back(
	    {committed.entry.index, StateKind::Stream, EncodeStreamId(open.stream), EncodeOpenStream(open)});
	staged.streams[open.stream] = open;
	staged.bytes += fragment.bytes.size();
}

//! `entry` ends it.
void Applier::ExecuteStream(ApplySession &session, const node::CommittedEntry &committed, const DecodedEntry &entry,
                            size_t position, Staged &staged, CommitOutcome &outcome) {
	auto end = Decoded(DecodeFragmentsEnd(entry.effects.front().content));
	auto *open = FindStream(end.stream, staged);
	outcome.status = open == nullptr ? StreamIsGone() : open->Check(end);
	if (!outcome.status.IsOk()) {
		return;
	}
	auto *changes = BeginChanges(committed, entry.header, staged);
	auto space = ReserveForRows(core, changes == nullptr ? end.plain_bytes : 2 * end.plain_bytes);
	if (!space.IsOk()) {
		throw space;
	}
	if (changes != nullptr) {
		changes->OpenSegment(session);
	}
	StreamApplier effects(session, entry, *open, changes);
	Execute(effects, committed, entry, position, staged, outcome);
}

//! The request is decided: whatever else was on its way for it is of no use.
void Applier::EndStreams(ApplySession &session, const node::CommittedEntry &committed, const RequestId &id,
                         Staged &staged) {
	for (auto &open : StreamsOf(id, staged)) {
		EndStream(session, open, committed.entry.index, staged);
	}
}

void Applier::EndStream(ApplySession &session, const OpenStream &open, raft::LogIndex index, Staged &staged) {
	const auto stream = open.stream; // `open` may live in staged.streams
	DropFragments(session, open);
	staged.state_rows.push_back({index, StateKind::Stream, EncodeStreamId(stream), std::string()});
	staged.streams[stream] = std::nullopt;
	staged.is_closed = true;
}

void Applier::StageSequence(const DecodedEntry &entry, raft::LogIndex index, SequenceMove move, Staged &staged) {
	auto key = move.effect->object.Key();
	auto known = core.state.sequences.find(key);
	auto before = known != core.state.sequences.end() ? known->second : SequenceUsers();
	auto &users = staged.sequences.emplace(key, before).first->second;
	bool newest = users.Record(entry.header.incarnation, index, move.use.usage_count);
	staged.state_rows.push_back({index, StateKind::Sequence, key, EncodeSequenceUsers(users)});
	// The node that drew the values stands there or further already.
	if (newest && entry.header.incarnation != core.incarnation) {
		staged.sequence_moves.push_back(std::move(move));
	}
}

//! Notes what the executed entry changed.
void Applier::Stage(const node::CommittedEntry &committed, const DecodedEntry &entry, std::vector<SequenceMove> moves,
                    Staged &staged) {
	auto index = committed.entry.index;
	for (auto &move : moves) {
		StageSequence(entry, index, std::move(move), staged);
	}
	for (auto &effect : entry.effects) {
		auto key = effect.object.Key();
		if (effect.kind == EffectKind::SequenceState || effect.kind == EffectKind::ReadTable ||
		    effect.kind == EffectKind::FragmentsEnd) {
			continue;
		}
		if (effect.kind == EffectKind::Placement || effect.kind == EffectKind::Setting) {
			StageGroups(effect, index, staged);
		} else if (effect.kind == EffectKind::Ddl) {
			staged.has_ddl = true;
			for (auto &name : effect.touched) {
				staged.touched.push_back(name.Key());
				staged.table_changes[{committed.group, name.Key()}] = index;
			}
			StagePlacement(effect, index, staged);
		} else {
			staged.written.insert(key);
			staged.table_changes[{committed.group, key}] = index;
			if (effect.kind != EffectKind::InsertRows) {
				staged.changed.insert(key);
			}
		}
	}
	staged.has_changes = staged.has_changes || ChangesRows(entry);
	if (!staged.has_ddl) {
		return;
	}
	std::set<std::string> names(staged.touched.begin(), staged.touched.end());
	for (auto &name : names) {
		staged.state_rows.push_back({index, StateKind::Object, name, EncodeIndex(index)});
	}
	staged.state_rows.push_back({index, StateKind::CatalogVersion, "", EncodeIndex(index)});
	staged.catalog_version = index;
}

void Applier::Publish(Staged &staged) {
	for (auto &move : staged.sequence_moves) {
		std::lock_guard<duckdb::mutex> guard(move.state->lock);
		auto &data = move.state->data;
		data.usage_count = std::max<uint64_t>(data.usage_count, move.use.usage_count);
		data.counter = move.use.counter;
		if (move.use.has_last_value) {
			data.last_value = move.use.last_value;
		}
	}
	{
		std::lock_guard<std::mutex> guard(core.state_lock);
		auto &state = core.state;
		for (auto &position : staged.positions) {
			state.positions[position.first] = position.second;
		}
		for (auto &outcome : staged.outcomes) {
			state.outcomes.Add(outcome);
		}
		for (auto &sequence : staged.sequences) {
			state.sequences[sequence.first] = sequence.second;
		}
		for (auto &stream : staged.streams) {
			if (stream.second) {
				state.streams[stream.first] = *stream.second;
			} else {
				state.streams.erase(stream.first);
			}
		}
		for (auto &change : staged.table_changes) {
			state.table_changes[change.first] = change.second;
			auto &last = state.last_changes[change.first.first];
			last = std::max(last, change.second);
		}
		for (auto &name : staged.touched) {
			state.object_versions[name] = staged.catalog_version;
		}
		if (staged.has_ddl) {
			state.catalog_version = staged.catalog_version;
		}
		for (auto &position : staged.positions) {
			state.outcomes.Trim(position.first, position.second.index);
		}
		PublishGroups(staged);
		core.PublishCopies();
	}
	core.entries_applied += staged.rows.size();
	core.entries_rejected += staged.rejected;
	core.foreign_conflicts += staged.foreign_conflicts;
	core.rows_applied += staged.data_rows;
	core.transactions_applied++;
	rows_since_compaction += staged.rows.size() + staged.state_rows.size();
	core.DeliverOutcomes(staged.outcomes);
	core.DeliverPrepared(staged.prepare_outcomes);
}

void Applier::OnInstalled() {
	row_changes.clear(); // commit numbers of the attachment that is gone
}

void Applier::OnLocalConflict(int attempt) {
	EvictLocal(attempt);
	if (attempt >= EVICT_READERS) {
		std::this_thread::sleep_for(EVICTION_PAUSE);
	}
	if (attempt >= RESTORE_TABLES && core.transactions.IsEmpty()) {
		RestoreMainTables();
	}
}

//! DuckDB 2.0.1 marks a table as altered before its ALTER is entered into the catalog; an ALTER that then meets a
//! conflict leaves the mark behind, and nobody can write the table any more. When no local transaction is left, what
//! the catalog shows is the table.
void Applier::RestoreMainTables() {
	ApplySession session(core);
	for (auto &object : attempt_objects) {
		try {
			auto &storage = *session.Table(object.second).storage;
			if (!storage.IsMainTable()) {
				storage.SetAsMainTable();
				Log(LogLevel::Warn, "catalog", "table_mark_restored", {{"table", object.second.ToString()}});
			}
		} catch (Rejected &) { // NOLINT: not a table, or a new one
		}
	}
}

void Applier::EvictLocal(int attempt) {
	auto database = core.Attached();
	if (!database) {
		return;
	}
	EvictionScope scope;
	scope.readers_too = attempt >= EVICT_READERS;
	if (attempt < EVICT_ALL_WRITERS) {
		for (auto &object : attempt_objects) {
			scope.tables.insert(object.first);
		}
	}
	std::string names;
	for (auto &object : attempt_objects) {
		names += (names.empty() ? "\"" : ", \"") + object.second.ToString() + "\"";
	}
	auto evicted = core.transactions.Evict(*database, scope,
	                                       Status(ErrorCode::Conflict, "a committed transaction that changed " + names +
	                                                                       " needed rows or catalog entries that this "
	                                                                       "transaction held; retry"));
	core.local_evictions += evicted;
	if (evicted > 0) {
		Log(LogLevel::Debug, "catalog", "local_transactions_evicted", {{"count", std::to_string(evicted)}});
	}
}

void Applier::NoteRowChanges(const Staged &staged) {
	auto database = core.Attached();
	auto commit = duckdb::DuckTransactionManager::Get(*database).GetLastCommit();
	for (auto &table : staged.changed) {
		row_changes[table] = commit;
	}
	// A renamed table keeps its history.
	uint64_t newest = 0;
	for (auto &name : staged.touched) {
		auto found = row_changes.find(name);
		newest = std::max(newest, found == row_changes.end() ? 0 : found->second);
	}
	for (auto &name : staged.touched) {
		row_changes[name] = newest;
	}
}

//! DuckDB 2.0.1 loses the whole instance when it cleans up a delete after an index was created on its table ("Failed to
//! delete all rows from index"), and refuses to build one over updates that are not cleaned up. Cleaning up waits for
//! snapshots that are older than the change; they end by themselves or are evicted.
void Applier::AwaitOldSnapshots(const DecodedEntry &entry, const std::function<void()> &close_gate) {
	uint64_t commit = 0;
	for (auto &effect : entry.effects) {
		for (auto &name : effect.touched) {
			auto found = effect.builds_index ? row_changes.find(name.Key()) : row_changes.end();
			commit = std::max(commit, found == row_changes.end() ? 0 : found->second);
		}
	}
	auto database = core.Attached();
	if (commit == 0 || !database) {
		return;
	}
	auto &manager = duckdb::DuckTransactionManager::Get(*database);
	SystemClock clock;
	auto start = clock.Now();
	bool evicted = false;
	while (commit >= manager.LowestVisibilityBound()) {
		close_gate();
		auto waited = clock.Now() - start;
		if (waited > OLD_SNAPSHOT_LIMIT) {
			throw Status(ErrorCode::Internal, "old snapshots do not end, an index cannot be built");
		}
		if (waited > OLD_SNAPSHOT_PATIENCE && !evicted) {
			evicted = true;
			EvictLocal(EVICT_READERS);
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	// Ends a transaction of our own: DuckDB cleans up at the end of transactions, one thread at a time.
	ApplySession session(core);
}

//! The state is that of the entry just applied: the audit takes its snapshot here.
void Applier::TellAudit() {
	if (!checksum) {
		return;
	}
	auto content = std::move(*checksum);
	checksum.reset();
	if (core.audit == nullptr) {
		return;
	}
	if (content.empty()) {
		core.audit->OnMark(checksum_index);
		return;
	}
	auto report = DecodeChecksumReport(content);
	if (report.IsOk()) {
		core.audit->OnReport(std::move(report.Value()));
	} else {
		Log(LogLevel::Error, "catalog", "checksum_report_unreadable", {{"message", report.GetStatus().Message()}});
	}
}

void Applier::CompactWhenLong() {
	if (rows_since_compaction > 2 * OUTCOME_WINDOW) {
		rows_since_compaction = 0;
		CompactMeta(core);
	}
}

} // namespace catalog
} // namespace quack
