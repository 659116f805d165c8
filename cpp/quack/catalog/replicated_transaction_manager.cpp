#include "quack/catalog/replicated_transaction_manager.hpp"

#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/storage/checkpoint/checkpoint_options.hpp"
#include "duckdb/storage/storage_manager.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#include "quack/catalog/capture.hpp"
#include "quack/catalog/fragment_sender.hpp"
#include "quack/catalog/group_commit.hpp"
#include "quack/catalog/part_writers.hpp"
#include "quack/catalog/read_set.hpp"
#include "quack/common/limits.hpp"

namespace quack {
namespace catalog {
namespace {

duckdb::ErrorData ToError(const CommitOutcome &outcome) {
	return duckdb::ErrorData(duckdb::ExceptionType::TRANSACTION, CommitErrorText(outcome));
}

//! What a session without a deadline of its own expects of the slowest node that executes a large transaction.
constexpr uint64_t APPLY_BYTES_PER_SECOND = 1024 * 1024;

std::string SpoolDirectory(const std::string &catalog_path) {
	auto end = catalog_path.find_last_of('/');
	return end == std::string::npos ? "." : catalog_path.substr(0, end + 1);
}

Status CaptureFailure(const duckdb::ErrorData &error) {
	auto is_callers =
	    error.Type() == duckdb::ExceptionType::PERMISSION || error.Type() == duckdb::ExceptionType::INVALID_INPUT;
	return Status(is_callers ? ErrorCode::InvalidArgument : ErrorCode::NotSupported, error.RawMessage());
}

} // namespace

std::string CommitErrorText(const CommitOutcome &outcome) {
	return std::string("quack ") + ErrorCodeName(outcome.status.Code()) + ": " + outcome.status.Message() +
	       " (transaction " + RequestIdToString(outcome.request_id) + ")";
}

ReplicatedTransactionManager::ReplicatedTransactionManager(duckdb::AttachedDatabase &database,
                                                           std::shared_ptr<ReplicaCore> core_p)
    : DuckTransactionManager(database), core(std::move(core_p)) {
}

bool ReplicatedTransactionManager::PassThrough(duckdb::ClientContext &context) const {
	return &context == core->apply_context.load() || !db.GetStorageManager().IsLoaded();
}

duckdb::Transaction &ReplicatedTransactionManager::StartTransaction(duckdb::ClientContext &context) {
	if (PassThrough(context)) {
		return DuckTransactionManager::StartTransaction(context);
	}
	if (!NoBarrierScope::Active()) {
		WaitForConsistency(*core, context);
		core->transactions.WaitAtGate(context);
	}
	OpenTransaction open;
	open.context = context.shared_from_this();
	open.opened_at = SystemClock().Now();
	open.is_serializable = IsSerializable(context);
	// Read before the snapshot is taken: too old is refused at apply and retried, too new would go unnoticed.
	{
		std::lock_guard<std::mutex> guard(core->state_lock);
		open.snapshot = core->applied_vector;
		open.snapshot_index = core->root_applied;
		open.planned_version = core->catalog_version;
	}
	auto &transaction = DuckTransactionManager::StartTransaction(context).Cast<duckdb::DuckTransaction>();
	core->transactions.Add(transaction, std::move(open));
	if (!context.transaction.IsAutoCommit() && !NoBarrierScope::Active()) {
		// A row id read by one statement must name the same row in the next: clients update by row id. The lock that
		// deletes take keeps checkpoints from moving rows.
		transaction.SetModifications(duckdb::DatabaseModificationType(duckdb::DatabaseModificationType::DELETE_DATA));
	}
	SessionState::Get(context).NoteStart(duckdb::MetaTransaction::Get(context).global_transaction_id);
	return transaction;
}

void ReplicatedTransactionManager::RollbackTransaction(duckdb::Transaction &transaction) {
	EndingScope ending(core->transactions, transaction.Cast<duckdb::DuckTransaction>());
	DuckTransactionManager::RollbackTransaction(transaction);
}

duckdb::ErrorData ReplicatedTransactionManager::CommitTransaction(duckdb::ClientContext &context,
                                                                  duckdb::Transaction &transaction_p) {
	auto &transaction = transaction_p.Cast<duckdb::DuckTransaction>();
	if (PassThrough(context)) {
		return DuckTransactionManager::CommitTransaction(context, transaction_p);
	}
	auto doomed = SessionState::Get(context).Doomed();
	if (!doomed.IsOk()) {
		return Fail(context, transaction, doomed);
	}
	if (SessionState::Get(context).LostEffects()) {
		return Fail(context, transaction,
		            Status(ErrorCode::Conflict, "the transaction was aborted in its middle, because this node needed "
		                                        "what it held or took over a snapshot; nothing of it was committed"));
	}
	if (!transaction.ChangesMade() && !core->transactions.HasPlacements(transaction)) {
		EndingScope ending(core->transactions, transaction);
		return DuckTransactionManager::CommitTransaction(context, transaction_p);
	}
	return CommitReplicated(context, transaction);
}

duckdb::ErrorData ReplicatedTransactionManager::Fail(duckdb::ClientContext &context,
                                                     duckdb::DuckTransaction &transaction, const Status &status) {
	RollbackTransaction(transaction);
	CommitOutcome outcome;
	auto &session = SessionState::Get(context);
	outcome.request_id = session.TakeRequestId();
	outcome.status = status;
	session.SetLastCommit(outcome);
	return ToError(outcome);
}

duckdb::ErrorData ReplicatedTransactionManager::CommitReplicated(duckdb::ClientContext &context,
                                                                 duckdb::DuckTransaction &transaction) {
	auto open = core->transactions.BeginCommit(transaction);
	if (!open.doomed.IsOk()) {
		return Fail(context, transaction, open.doomed);
	}
	auto &session = SessionState::Get(context);
	Captured captured;
	GroupTransaction over_groups;
	std::string payload;
	FragmentPlan plan;
	auto &header = plan.header;
	try {
		captured = CaptureChanges(transaction, open, session.ReadsWereHidden());
		if (captured.parts->IsEmpty()) {
			if (transaction.GetUndoProperties().has_catalog_changes) {
				throw duckdb::NotImplementedException("this change of the catalog is not replicated");
			}
			// Nothing is left of its changes, and a commit might begin a checkpoint, in which a closed gate would stop
			// it.
			RollbackTransaction(transaction);
			return duckdb::ErrorData();
		}
		CheckPlan(open, *captured.parts);
		header.request_id = session.TakeRequestId(&header.base_index);
		header.incarnation = core->incarnation;
		header.planned_version = open.planned_version;
		header.base_index = header.base_index == UINT64_MAX ? core->request_base.load() : header.base_index;
		if (auto group = captured.parts->SingleGroup()) {
			plan.group = *group;
			header.snapshot_index = SnapshotIndex(open, *group);
			payload = FinishPart(header, *group, captured, plan);
		} else {
			over_groups = MakeParts(open, header, captured, plan);
		}
	} catch (Status &failure) {
		return Fail(context, transaction, failure);
	} catch (std::exception &error) {
		return Fail(context, transaction, CaptureFailure(duckdb::ErrorData(error)));
	}
	auto size = CheckEntryBytes(payload.size(), "the transaction's list of changed objects");
	for (auto &part : over_groups.parts) {
		size = size.IsOk() ? CheckEntryBytes(part.body.size(), "the transaction's part in one group") : size;
	}
	if (!size.IsOk()) {
		return Fail(context, transaction, Status(size.Code(), size.Message() + "; change less in one transaction"));
	}
	RollbackTransaction(transaction);
	auto outcome = Commit(context, plan, *captured.spool, std::move(payload), std::move(over_groups));
	session.SetLastCommit(outcome);
	return outcome.status.IsOk() ? duckdb::ErrorData() : ToError(outcome);
}

ReplicatedTransactionManager::Captured
ReplicatedTransactionManager::CaptureChanges(duckdb::DuckTransaction &transaction, const OpenTransaction &open,
                                             bool are_reads_hidden) {
	try {
		return CaptureChanges(PartLayout::Spread, transaction, open, are_reads_hidden);
	} catch (TooLargeToSpread &) {
		return CaptureChanges(PartLayout::OneStream, transaction, open, are_reads_hidden);
	}
}

ReplicatedTransactionManager::Captured
ReplicatedTransactionManager::CaptureChanges(PartLayout layout, duckdb::DuckTransaction &transaction,
                                             const OpenTransaction &open, bool are_reads_hidden) {
	Captured captured;
	captured.spool = std::make_unique<SpoolFile>(SpoolDirectory(core->options.path));
	std::shared_ptr<const Placements> placements;
	{
		std::lock_guard<std::mutex> guard(core->state_lock);
		placements = core->placements;
	}
	auto &spool = *captured.spool;
	captured.parts = std::make_unique<PartWriters>(
	    layout, std::move(placements), [this] { return RootMembership(); }, core->options.split_bytes,
	    [this, &spool](ByteView frame) {
		    auto status = spool.Append(frame);
		    if (!status.IsOk()) {
			    throw Status(status.Code(), (status.Code() == ErrorCode::DiskFull ? "no space on " : "on ") +
				                                core->options.node_id + ": " + status.Message());
		    }
	    });
	auto &parts = *captured.parts;
	for (auto &placed : open.placed) {
		parts.AddPlacement(placed.second.first, placed.second.second);
	}
	for (auto &pair : open.joined) {
		parts.AddForeignKey(pair.first, pair.second);
	}
	Capture(transaction).Run(parts);
	if (open.is_serializable && !parts.IsEmpty()) {
		AddReads(open, are_reads_hidden, parts);
	}
	parts.CheckSplit();
	return captured;
}

//! Groups were chosen by where tables live now. Throws Status when one of them has changed since the transaction began:
//! an entry planned before the change must not come into a group that the table lives in only since.
void ReplicatedTransactionManager::CheckPlan(const OpenTransaction &open, const PartWriters &parts) const {
	std::lock_guard<std::mutex> guard(core->state_lock);
	for (auto &table : parts.Used()) {
		if (core->state.IsChangedSince(table, open.planned_version)) {
			throw Status(ErrorCode::SchemaChanged,
			             "a table that this transaction uses was changed by another transaction; retry");
		}
	}
}

raft::Membership ReplicatedTransactionManager::RootMembership() const {
	auto *engine = core->engine.load();
	if (engine == nullptr) {
		throw Status(ErrorCode::Unavailable, "this node's consensus engine is not running");
	}
	auto membership = engine->RootMembership();
	if (!membership.IsOk()) {
		throw membership.GetStatus();
	}
	return membership.Value();
}

//! What a serializable transaction read, in each group that it was read from; and in the root group for the catalog.
void ReplicatedTransactionManager::AddReads(const OpenTransaction &open, bool are_hidden, PartWriters &parts) {
	std::shared_ptr<const Placements> placements;
	{
		std::lock_guard<std::mutex> guard(core->state_lock);
		placements = core->placements;
	}
	if (are_hidden) {
		parts.Root().AddRead(ObjectName());
		for (auto &group : placements->Groups()) {
			parts.For(group.first).AddRead(ObjectName());
		}
	}
	for (auto &table : open.read) {
		for (auto group : placements->GroupsOf(table.first)) {
			parts.For(group).AddRead(table.second);
		}
	}
	// A part in the root group checks that the catalog is the same.
	if (parts.Groups().count(raft::ROOT_GROUP) == 0) {
		parts.Root().AddRead(ObjectName {{META_SCHEMA}, "state"});
	}
}

raft::LogIndex ReplicatedTransactionManager::SnapshotIndex(const OpenTransaction &open, raft::GroupId group) {
	auto found = open.snapshot->find(group);
	return found == open.snapshot->end() ? 0 : found->second;
}

//! The part's payload. Of a large one this is the entry that ends its stream, and `plan` says how the stream is sent.
std::string ReplicatedTransactionManager::FinishPart(const EntryHeader &header, raft::GroupId group, Captured &captured,
                                                     FragmentPlan &plan) const {
	auto &effects = captured.parts->For(group);
	if (!effects.IsSplit()) {
		return effects.Finish(header);
	}
	effects.FinishFrames();
	plan.group = group;
	PlanFragments(*core, *captured.spool, plan);
	plan.end.plain_bytes = effects.FramedBytes();
	return effects.Finish(header, plan.end);
}

GroupTransaction ReplicatedTransactionManager::MakeParts(const OpenTransaction &open, EntryHeader header,
                                                         Captured &captured, FragmentPlan &plan) const {
	GroupTransaction transaction;
	transaction.id = header.request_id;
	transaction.planned_version = header.planned_version;
	transaction.base = header.base_index;
	for (auto group : captured.parts->Groups()) {
		header.snapshot_index = SnapshotIndex(open, group);
		node::TransactionPart part;
		part.group = group;
		part.locks = captured.parts->LocksIn(group);
		part.body = FinishPart(header, group, captured, plan);
		transaction.parts.push_back(std::move(part));
	}
	return transaction;
}

//! Of a large transaction first the fragments; nothing of them shows before the entry that ends them is applied.
CommitOutcome ReplicatedTransactionManager::Commit(duckdb::ClientContext &context, FragmentPlan &plan,
                                                   const SpoolFile &spool, std::string payload,
                                                   GroupTransaction over_groups) {
	auto &session = SessionState::Get(context);
	auto &id = plan.header.request_id;
	// In whatever group: the request may have been applied in an earlier life of its session, or given up.
	if (auto known = KnownOutcome(*core, id)) {
		return *known;
	}
	auto interrupted = [&context] {
		return context.IsInterrupted();
	};
	auto is_large = plan.end.count > 0;
	if (is_large) {
		auto operation = session.OperationDeadline();
		plan.patience = operation - SystemClock().Now();
		plan.deadline = session.HasDeadline() ? operation : 0;
		std::optional<CommitOutcome> known;
		CommitOutcome failed;
		failed.request_id = id;
		failed.status = SendFragments(*core, plan, spool, interrupted, known);
		if (known || !failed.status.IsOk()) {
			return known.value_or(failed);
		}
	}
	auto deadline = session.OperationDeadline();
	if (is_large && !session.HasDeadline()) {
		deadline += MonotonicNs(plan.end.bytes / APPLY_BYTES_PER_SECOND) * NS_PER_SECOND;
	}
	if (!over_groups.parts.empty()) {
		// To send a stream again is dearer than to wait for one group after the other.
		over_groups.in_turn = is_large || session.IsInTurn();
		return CommitOverGroups(*core, std::move(over_groups), deadline, interrupted);
	}
	return ProposeAndWait(*core, {id, plan.group}, MakeSharedBytes(std::move(payload)), deadline, interrupted);
}

void ReplicatedTransactionManager::Checkpoint(duckdb::ClientContext &context, bool force) {
	(void)context;
	(void)force;
	throw duckdb::NotImplementedException("CHECKPOINT of catalog \"%s\" is done by its node, at thresholds of log size "
	                                      "and time",
	                                      CATALOG_NAME);
}

void ReplicatedTransactionManager::WriteCheckpoint(duckdb::ClientContext &context) {
	duckdb::CheckpointOptions options;
	options.action = duckdb::CheckpointAction::ALWAYS_CHECKPOINT;
	if (GetLastCommit() >= LowestVisibilityBound()) {
		options.type = duckdb::CheckpointType::CONCURRENT_CHECKPOINT; // an open reader needs older versions
	}
	NoBarrierScope no_barrier; // for the checkpoint's own transaction
	db.GetStorageManager().CreateCheckpoint(context, options);
}

} // namespace catalog
} // namespace quack
