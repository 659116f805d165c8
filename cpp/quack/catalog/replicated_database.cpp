#include "quack/catalog/replicated_database.hpp"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection.hpp"
#include "quack/catalog/applier.hpp"
#include "quack/catalog/capture.hpp"
#include "quack/catalog/database_file.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/catalog/equality_audit.hpp"
#include "quack/catalog/group_commit.hpp"
#include "quack/catalog/meta_store.hpp"
#include "quack/catalog/replicated_catalog.hpp"
#include "quack/catalog/snapshot_image.hpp"
#include "quack/catalog/part_sweeper.hpp"
#include "quack/catalog/stream_sweeper.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

std::vector<node::AppliedPosition> Values(const std::map<raft::GroupId, node::AppliedPosition> &positions) {
	std::vector<node::AppliedPosition> values;
	for (auto &position : positions) {
		values.push_back(position.second);
	}
	return values;
}

//! Ok when it is committed and applied here.
Status ProposeOwn(ReplicaCore &core, const EffectWriter &effects, MonotonicNs deadline) {
	auto header = core.OwnHeader();
	header.request_id = NewRequestId(header.base_index);
	return ProposeAndWait(core, {header.request_id}, MakeSharedBytes(effects.Finish(header)), deadline, {}).status;
}

//! Of the file system that watches this database's files.
std::string WatchName(const ReplicaCore &core) {
	return "quack-catalog-" + std::to_string(core.incarnation);
}

} // namespace

ReplicatedDatabase::ReplicatedDatabase(std::shared_ptr<ReplicaCore> core_p)
    : core(std::move(core_p)), applier(std::make_unique<Applier>(*core)), audit(std::make_unique<EqualityAudit>(*core)),
      sweeper(std::make_unique<StreamSweeper>(*core)), part_sweeper(std::make_unique<PartSweeper>(*core)) {
	core->audit = audit.get();
}

ReplicatedDatabase::~ReplicatedDatabase() {
	Close();
	core->audit = nullptr;
}

Result<std::unique_ptr<ReplicatedDatabase>> ReplicatedDatabase::Open(duckdb::DatabaseInstance &instance,
                                                                     ReplicaOptions options) {
	auto core = std::make_shared<ReplicaCore>(instance, std::move(options));
	auto id = NewRequestId();
	memcpy(&core->incarnation, id.data(), sizeof(core->incarnation));
	core->incarnation |= 1;
	WatchFiles(instance, WatchName(*core), core->options.path, core->syncs, core->journal);
	auto status = AttachFile(*core, core);
	if (!status.IsOk()) {
		UnwatchFiles(instance, WatchName(*core));
		return status;
	}
	return std::unique_ptr<ReplicatedDatabase>(new ReplicatedDatabase(std::move(core)));
}

void ReplicatedDatabase::SetEngine(node::ConsensusEngine *engine) {
	core->engine = engine;
	if (engine != nullptr) {
		audit->Start();
		sweeper->Start();
		part_sweeper->Start();
	} else {
		sweeper->Stop();
		part_sweeper->Stop();
		audit->Stop();
	}
}

void ReplicatedDatabase::Close() {
	if (core->closing.exchange(true)) {
		return;
	}
	core->engine = nullptr;
	part_sweeper->Stop();
	sweeper->Stop();
	audit->Stop();
	auto status = WriteCheckpoint(*core);
	if (!status.IsOk()) {
		// Nothing is lost: the log replays from the last checkpoint.
		Log(LogLevel::Warn, "catalog", "final_checkpoint_failed", {{"reason", status.Message()}});
	}
	status = DetachFile(*core);
	if (!status.IsOk()) {
		Log(LogLevel::Warn, "catalog", "detach_failed", {{"reason", status.Message()}});
	}
	UnwatchFiles(core->instance, WatchName(*core));
}

Status ReplicatedDatabase::Apply(const std::vector<node::CommittedEntry> &entries) {
	if (core->closing) {
		return Status(ErrorCode::Unavailable, "the database is closed");
	}
	return applier->Apply(entries);
}

std::vector<node::AppliedPosition> ReplicatedDatabase::Applied() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	return Values(core->state.positions);
}

std::vector<node::AppliedPosition> ReplicatedDatabase::Durable() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	return core->durable;
}

MonotonicNs ReplicatedDatabase::SyncingSince() const {
	return core->syncs->Since();
}

std::string ReplicatedDatabase::Place() const {
	return core->options.path;
}

Status ReplicatedDatabase::Checkpoint() {
	if (core->closing) {
		return Status(ErrorCode::Unavailable, "the database is closed");
	}
	return WriteCheckpoint(*core);
}

Result<std::unique_ptr<node::StateMachine::SnapshotImage>> ReplicatedDatabase::OpenSnapshot() {
	return CopySnapshot(*core);
}

std::vector<std::unique_ptr<node::StateMachine::SnapshotImage>> ReplicatedDatabase::RetainedSnapshots() {
	return FindRetainedImages({core->options.path, core->options.cluster_id});
}

Status ReplicatedDatabase::InstallSnapshot(const std::string &path) {
	if (core->closing) {
		return Status(ErrorCode::Unavailable, "the database is closed");
	}
	auto status = InstallFile(*core, core, path);
	applier->OnInstalled();
	audit->OnInstalled();
	return status;
}

std::vector<TransactionInfo> ReplicatedDatabase::Transactions() const {
	auto postponed_at = core->postponed_at.load();
	auto list = core->transactions.List();
	for (auto &info : list) {
		info.holds_checkpoint = info.opened_at <= postponed_at;
	}
	return list;
}

std::vector<ChecksumRow> ReplicatedDatabase::Checksums() const {
	return audit->Rows();
}

void ReplicatedDatabase::StopAudit() {
	audit->Stop();
}

std::optional<CommitOutcome> ReplicatedDatabase::Outcome(const RequestId &id) const {
	return KnownOutcome(*core, id);
}

//! The root group first: whoever plans behind that entry knows of it, and whoever planned before can only name groups
//! that exist there.
CommitOutcome ReplicatedDatabase::ResolveOutcome(const RequestId &id, raft::LogIndex base, MonotonicNs deadline) {
	auto entry_base = std::min<uint64_t>(base, core->request_base);
	auto outcome = ProposeAndWait(*core, {id, raft::ROOT_GROUP}, VoidEntry(*core, id, entry_base), deadline, {});
	if (outcome.status.IsOk() || outcome.index == 0) {
		return outcome;
	}
	std::vector<raft::GroupId> groups;
	{
		std::lock_guard<std::mutex> guard(core->state_lock);
		for (auto &group : core->state.placements.Groups()) {
			groups.push_back(group.first);
		}
	}
	for (auto group : groups) {
		auto there = ProposeAndWait(*core, {id, group}, VoidEntry(*core, id, entry_base), deadline, {});
		if (there.status.IsOk() || there.index == 0) {
			return there;
		}
		if (there.status.Code() != ErrorCode::Cancelled) {
			outcome = there;
		}
	}
	return outcome;
}

bool ReplicatedDatabase::IsMultiraftSqlEnabled() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	return core->state.is_multiraft_sql_enabled;
}

Status ReplicatedDatabase::SetMultiraftSql(bool is_enabled, MonotonicNs deadline) {
	EffectWriter effects;
	effects.AddSetting(SETTING_MULTIRAFT_SQL, is_enabled ? "on" : "off");
	return ProposeOwn(*core, effects, deadline);
}

Status ReplicatedDatabase::SetChangesRetention(uint64_t bytes, MonotonicNs deadline) {
	EffectWriter effects;
	effects.AddChangesRetention(bytes);
	return ProposeOwn(*core, effects, deadline);
}

ChangeFeedStatus ReplicatedDatabase::ChangesStatus() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	ChangeFeedStatus status;
	status.retention = core->state.changes.retention;
	for (auto &position : *core->applied_vector) {
		status.groups.push_back({position.first, core->state.placements.NameOf(position.first), 0, 0, position.second});
	}
	for (auto &row : status.groups) {
		auto known = core->state.changes.groups.find(row.group);
		if (known != core->state.changes.groups.end()) {
			row.bytes = known->second.Bytes();
			row.oldest = known->second.floor;
		}
	}
	return status;
}

std::shared_ptr<const Placements> ReplicatedDatabase::GetPlacements() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	return core->placements;
}

std::map<std::string, ObjectName> ReplicatedDatabase::TableNames() {
	std::map<std::string, ObjectName> names;
	auto database = core->Attached();
	if (!database) {
		return names;
	}
	try {
		duckdb::Connection connection(core->instance);
		auto &context = *connection.context;
		SessionState::Get(context).SetConsistency(Consistency::Eventual);
		auto note = [&](duckdb::CatalogEntry &entry) {
			auto name = NameOf(entry);
			names.emplace(name.Key(), std::move(name));
		};
		context.RunFunctionInTransaction([&]() {
			database->GetCatalog().ScanSchemas(context, [&](duckdb::SchemaCatalogEntry &schema) {
				schema.Scan(context, duckdb::CatalogType::TABLE_ENTRY, note);
			});
		});
	} catch (std::exception &) {
		names.clear();
	}
	return names;
}

uint64_t ReplicatedDatabase::RequestBaseNow() const {
	return core->request_base;
}

std::vector<node::Position> ReplicatedDatabase::Needs(const node::CommittedEntry &entry) const {
	if (entry.entry.type != raft::EntryType::Normal) {
		return {};
	}
	if (node::IsTransactionEntry(*entry.entry.payload)) {
		auto transaction = node::DecodeTransactionEntry(*entry.entry.payload);
		return transaction.IsOk() ? node::NeedsOf(transaction.Value(), entry.group) : std::vector<node::Position>();
	}
	auto planned = entry.group == raft::ROOT_GROUP ? 0 : PlannedVersionOf(*entry.entry.payload);
	return planned == 0 ? std::vector<node::Position>() : std::vector<node::Position> {{raft::ROOT_GROUP, planned}};
}

std::vector<node::GroupDefinition> ReplicatedDatabase::Groups() const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	std::vector<node::GroupDefinition> groups;
	for (auto &group : core->state.placements.Groups()) {
		groups.push_back({group.first, group.second.name, group.second.membership});
	}
	return groups;
}

uint64_t ReplicatedDatabase::GroupsVersion() const {
	return core->groups_version;
}

raft::LogIndex ReplicatedDatabase::CatalogVersion() const {
	return core->catalog_version;
}

ReplicaStatistics ReplicatedDatabase::Statistics() const {
	ReplicaStatistics statistics;
	statistics.entries_applied = core->entries_applied;
	statistics.entries_rejected = core->entries_rejected;
	statistics.foreign_conflicts = core->foreign_conflicts;
	statistics.rows_applied = core->rows_applied;
	statistics.transactions_applied = core->transactions_applied;
	statistics.local_evictions = core->local_evictions;
	statistics.checkpoints = core->checkpoints;
	statistics.checkpoint_last_ms = core->checkpoint_last_ms;
	statistics.checkpoint_max_ms = core->checkpoint_max_ms;
	statistics.checkpoints_postponed = core->checkpoints_postponed;
	{
		std::lock_guard<std::mutex> guard(core->state_lock);
		for (auto &open : core->state.streams) {
			statistics.open_streams++;
			statistics.open_stream_bytes += open.second.bytes;
		}
	}
	std::lock_guard<std::mutex> guard(core->waiters_lock);
	statistics.waiting_commits = core->waiters.size();
	return statistics;
}

} // namespace catalog
} // namespace quack
