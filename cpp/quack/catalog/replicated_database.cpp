#include "quack/catalog/replicated_database.hpp"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection.hpp"
#include "quack/catalog/applier.hpp"
#include "quack/catalog/database_file.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/catalog/equality_audit.hpp"
#include "quack/catalog/meta_store.hpp"
#include "quack/catalog/replicated_catalog.hpp"
#include "quack/catalog/snapshot_image.hpp"
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

//! Of the file system that watches this database's files.
std::string WatchName(const ReplicaCore &core) {
	return "quack-catalog-" + std::to_string(core.incarnation);
}

} // namespace

ReplicatedDatabase::ReplicatedDatabase(std::shared_ptr<ReplicaCore> core_p)
    : core(std::move(core_p)), applier(std::make_unique<Applier>(*core)), audit(std::make_unique<EqualityAudit>(*core)),
      sweeper(std::make_unique<StreamSweeper>(*core)) {
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
	} else {
		sweeper->Stop();
		audit->Stop();
	}
}

void ReplicatedDatabase::Close() {
	if (core->closing.exchange(true)) {
		return;
	}
	core->engine = nullptr;
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

CommitOutcome ReplicatedDatabase::ResolveOutcome(const RequestId &id, raft::LogIndex base, MonotonicNs deadline) {
	auto header = core->OwnHeader();
	header.request_id = id;
	header.base_index = std::min(base, header.base_index);
	return ProposeAndWait(*core, id, MakeSharedBytes(EffectWriter().Finish(header)), deadline, {});
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
