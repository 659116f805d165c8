#include "quack/catalog/replica_core.hpp"

#include <algorithm>
#include <chrono>

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/database_manager.hpp"
#include "quack/catalog/commit_proposals.hpp"
#include "quack/catalog/effects.hpp"

namespace quack {
namespace catalog {
namespace {

//! How often a waiting session looks for an interrupt.
constexpr MonotonicNs POLL_INTERVAL = 20 * NS_PER_MS;
//! How long a read waits until this node is as fresh as it has to be.
constexpr MonotonicNs CONSISTENCY_WAIT_MAX = 5 * NS_PER_SECOND;

[[noreturn]] void ThrowConsistency(ReplicaCore &core, raft::GroupId group, const std::string &what,
                                   const Status &status) {
	// A wait that ended did nothing: for the reader it is the same as no quorum.
	auto code = status.Code() == ErrorCode::DeadlineExceeded ? ErrorCode::Unavailable : status.Code();
	std::string reason;
	if (auto *engine = core.engine.load()) {
		for (auto &row : engine->GetStatus()) {
			if (row.group == group && !row.reason.empty()) {
				reason = "; " + row.reason;
			}
		}
	}
	throw duckdb::TransactionException("quack %s: %s of group %s failed on node %s: %s%s", ErrorCodeName(code), what,
	                                   core.GroupName(group), core.options.node_id, status.Message(), reason);
}

void WaitUntilApplied(ReplicaCore &core, duckdb::ClientContext &context, raft::GroupId group, raft::LogIndex index,
                      MonotonicNs deadline, const char *what) {
	SystemClock clock;
	for (;;) {
		if (group == raft::ROOT_GROUP && core.root_applied >= index) {
			return;
		}
		auto *engine = core.engine.load();
		auto now = clock.Now();
		if (engine == nullptr) {
			ThrowConsistency(core, group, what, Status(ErrorCode::Unavailable, "the consensus engine is not running"));
		}
		if (now >= deadline) {
			ThrowConsistency(core, group, what,
			                 Status(ErrorCode::DeadlineExceeded,
			                        "index " + std::to_string(index) + " was not applied in time"));
		}
		auto status = engine->WaitApplied(group, index, std::min(POLL_INTERVAL, deadline - now));
		if (status.IsOk()) {
			return;
		}
		if (status.Code() != ErrorCode::DeadlineExceeded) {
			ThrowConsistency(core, group, what, status);
		}
		if (!engine->HungDisk().empty()) {
			ThrowConsistency(core, group, what,
			                 Status(ErrorCode::Unavailable,
			                        "index " + std::to_string(index) + " is not applied here; use another node"));
		}
		context.InterruptCheck();
	}
}

//! The answer of a read barrier; outlives the session that asked.
struct BarrierAnswer {
	std::mutex lock;
	std::condition_variable changed;
	std::optional<Result<std::vector<node::Position>>> result;
};

//! What was committed in all groups when it was asked.
std::vector<node::Position> ReadBarriers(ReplicaCore &core, duckdb::ClientContext &context, MonotonicNs deadline) {
	SystemClock clock;
	auto *engine = core.engine.load();
	if (engine == nullptr) {
		ThrowConsistency(core, raft::ROOT_GROUP, "linearizable read",
		                 Status(ErrorCode::Unavailable, "the consensus engine is not running"));
	}
	auto answer = std::make_shared<BarrierAnswer>();
	engine->ReadBarriers({}, std::max<MonotonicNs>(deadline - clock.Now(), 1),
	                     [answer](Result<std::vector<node::Position>> result) {
		                     std::lock_guard<std::mutex> guard(answer->lock);
		                     answer->result = std::move(result);
		                     answer->changed.notify_all();
	                     });
	std::unique_lock<std::mutex> guard(answer->lock);
	while (!answer->result) {
		answer->changed.wait_for(guard, std::chrono::nanoseconds(POLL_INTERVAL));
		if (!answer->result && clock.Now() > deadline + NS_PER_SECOND) {
			answer->result = Status(ErrorCode::DeadlineExceeded, "no answer to the read barrier");
		}
		context.InterruptCheck();
	}
	if (!answer->result->IsOk()) {
		ThrowConsistency(core, raft::ROOT_GROUP, "linearizable read", answer->result->GetStatus());
	}
	return answer->result->Value();
}

} // namespace

bool ReplicatedState::IsChangedSince(const std::string &key, raft::LogIndex version) const {
	auto found = object_versions.find(key);
	return found != object_versions.end() && found->second > version;
}

Status ReplicatedState::CheckUnchanged(const ObjectName &name, raft::LogIndex planned_version) const {
	if (!IsChangedSince(name.Key(), planned_version)) {
		return Status::Ok();
	}
	return Status(ErrorCode::SchemaChanged, "\"" + name.ToString() + "\" was changed by another transaction; retry");
}

void ReplicaCore::PublishCopies() {
	auto vector = std::make_shared<AppliedVector>();
	uint64_t base = 0;
	for (auto &position : state.positions) {
		(*vector)[position.first] = position.second.index;
		base += position.second.index;
	}
	applied_vector = std::move(vector);
	request_base = std::max<uint64_t>(request_base, base);
	groups_version = state.placements.GroupsVersion();
	if (placements->Version() != state.placements.Version() || placements->NextId() != state.placements.NextId()) {
		placements = std::make_shared<const Placements>(state.placements);
	}
	catalog_version = state.catalog_version;
	auto root = state.positions.find(raft::ROOT_GROUP);
	root_applied = root == state.positions.end() ? 0 : root->second.index;
}

std::string ReplicaCore::GroupName(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(state_lock);
	return state.placements.NameOf(group);
}

bool ReplicaCore::IsGroupGone(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(state_lock);
	return group != raft::ROOT_GROUP && state.placements.Find(group) == nullptr;
}

std::shared_ptr<const AppliedVector> ReplicaCore::Vector() const {
	std::lock_guard<std::mutex> guard(state_lock);
	return applied_vector;
}

bool ReplicaCore::Leads(raft::GroupId group) const {
	auto *running = engine.load();
	if (running == nullptr || running->IsDegraded()) {
		return false;
	}
	auto groups = running->GetStatus();
	return std::any_of(groups.begin(), groups.end(),
	                   [&](const node::GroupStatus &row) { return row.group == group && row.is_leader; });
}

EntryHeader ReplicaCore::OwnHeader() const {
	EntryHeader header;
	header.incarnation = incarnation;
	header.planned_version = catalog_version;
	header.snapshot_index = root_applied;
	header.base_index = request_base;
	return header;
}

duckdb::shared_ptr<duckdb::AttachedDatabase> ReplicaCore::Attached() const {
	return duckdb::DatabaseManager::Get(instance).GetDatabase(duckdb::Identifier(CATALOG_NAME));
}

//! With the waiters' lock held.
void ReplicaCore::Deliver(const CommitOutcome &outcome, WaitFor kind) {
	auto found = waiters.equal_range(outcome.request_id);
	for (auto entry = found.first; entry != found.second; ++entry) {
		auto &waiter = *entry->second;
		if (waiter.group == outcome.group && waiter.kind == kind) {
			waiter.OnApplied(outcome);
		}
	}
}

void ReplicaCore::DeliverPrepared(const std::vector<CommitOutcome> &prepared) {
	std::lock_guard<std::mutex> guard(waiters_lock);
	for (auto &outcome : prepared) {
		Deliver(outcome, WaitFor::Prepare);
	}
}

void ReplicaCore::DeliverOutcomes(const std::vector<CommitOutcome> &outcomes) {
	std::lock_guard<std::mutex> guard(waiters_lock);
	for (auto &outcome : outcomes) {
		Deliver(outcome, WaitFor::Outcome);
	}
}

std::optional<CommitOutcome> KnownOutcome(const ReplicaCore &core, const RequestId &id) {
	std::lock_guard<std::mutex> guard(core.state_lock);
	return core.state.outcomes.FindAnywhere(id);
}

void WaitForConsistency(ReplicaCore &core, duckdb::ClientContext &context) {
	auto &session = SessionState::Get(context);
	auto consistency = session.GetConsistency();
	if (consistency == Consistency::Eventual) {
		return;
	}
	// The statement itself may have longer, or no limit: whoever asked can be told, and find another node.
	auto deadline = std::min(session.OperationDeadline(), SystemClock().Now() + CONSISTENCY_WAIT_MAX);
	// The root group comes first: it tells which groups there are.
	for (auto &floor : session.Floor()) {
		// One that somebody has seen and that this node knows nothing of is retired.
		if (!core.IsGroupGone(floor.first)) {
			WaitUntilApplied(core, context, floor.first, floor.second, deadline, "session read");
		}
	}
	// What was acknowledged may lie in a group that this node hears of only now.
	for (auto version = UINT64_MAX; consistency == Consistency::Linearizable && version != core.groups_version;) {
		version = core.groups_version;
		auto positions = ReadBarriers(core, context, deadline);
		for (auto &position : positions) {
			WaitUntilApplied(core, context, position.group, position.index, deadline, "linearizable read");
		}
	}
}

} // namespace catalog
} // namespace quack
