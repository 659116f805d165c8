#include "quack/catalog/replica_core.hpp"

#include <algorithm>
#include <chrono>

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/database_manager.hpp"

namespace quack {
namespace catalog {
namespace {

//! How often a waiting session looks for an interrupt.
constexpr MonotonicNs POLL_INTERVAL = 20 * NS_PER_MS;
//! Pause before another attempt, doubling.
constexpr MonotonicNs RETRY_PAUSE_FIRST = 10 * NS_PER_MS;
constexpr MonotonicNs RETRY_PAUSE_MAX = 250 * NS_PER_MS;
//! How long an interrupted session still waits for what is underway: a known outcome is worth it.
constexpr MonotonicNs INTERRUPT_GRACE = NS_PER_SECOND;
//! How long a transaction that is underway is waited for once the node's disk is known to hang: the others may commit
//! it without this node, but when the apply thread hangs too nobody here will know.
constexpr MonotonicNs HUNG_DISK_GRACE = NS_PER_SECOND;
//! How long a read waits until this node is as fresh as it has to be.
constexpr MonotonicNs CONSISTENCY_WAIT_MAX = 5 * NS_PER_SECOND;

bool SurelyNotAppended(ErrorCode code) {
	return code == ErrorCode::Unavailable || code == ErrorCode::NotLeader || code == ErrorCode::Overloaded ||
	       code == ErrorCode::DeadlineExceeded || code == ErrorCode::Degraded || code == ErrorCode::DiskFull;
}

//! Whoever asked should hear it at once: another node may do better.
bool IsThisNodesTrouble(ErrorCode code) {
	return code == ErrorCode::Degraded || code == ErrorCode::DiskFull;
}

//! A registration that ends with its scope.
class WaiterScope {
public:
	WaiterScope(ReplicaCore &core_p, const RequestId &id_p)
	    : core(core_p), id(id_p), waiter(std::make_shared<CommitWaiter>()) {
		std::lock_guard<std::mutex> guard(core.waiters_lock);
		core.waiters.emplace(id, waiter);
	}
	~WaiterScope() {
		std::lock_guard<std::mutex> guard(core.waiters_lock);
		auto range = core.waiters.equal_range(id);
		for (auto entry = range.first; entry != range.second; ++entry) {
			if (entry->second == waiter) {
				core.waiters.erase(entry);
				return;
			}
		}
	}
	WaiterScope(const WaiterScope &) = delete;
	WaiterScope &operator=(const WaiterScope &) = delete;

	const std::shared_ptr<CommitWaiter> &Get() const {
		return waiter;
	}

private:
	ReplicaCore &core;
	RequestId id;
	std::shared_ptr<CommitWaiter> waiter;
};

//! One commit's way through the engine: attempts, pauses, and what is known at the end.
class ProposalLoop {
public:
	ProposalLoop(ReplicaCore &core_p, const RequestId &id_p, SharedBytes payload_p, MonotonicNs deadline_p,
	             std::function<bool()> interrupted_p)
	    : core(core_p), payload(std::move(payload_p)), scope(core_p, id_p), interrupted(std::move(interrupted_p)),
	      deadline(deadline_p) {
		outcome.request_id = id_p;
	}

	CommitOutcome Run() {
		// The request may have been applied in an earlier life of its session.
		if (auto known = KnownOutcome(core, outcome.request_id)) {
			return *known;
		}
		while (!finished) {
			Attempt();
		}
		return outcome;
	}

private:
	void Attempt() {
		auto *engine = core.engine.load();
		auto now = clock.Now();
		if (engine == nullptr || core.closing) {
			Finish(Status(ErrorCode::Unavailable, "this node's consensus engine is not running"));
			return;
		}
		if (now >= deadline) {
			FinishAtDeadline();
			return;
		}
		CheckDisk();
		if (finished) {
			return;
		}
		auto waiter = scope.Get();
		in_flight = true;
		engine->Propose(outcome.group, payload, deadline - now,
		                [waiter](const node::ProposeOutcome &proposed) { waiter->OnProposed(proposed); });
		WaitForEvent(deadline, true);
		if (!finished) {
			WaitForEvent(std::min(deadline, clock.Now() + pause), false);
			pause = std::min(2 * pause, RETRY_PAUSE_MAX);
		}
	}

	//! Until the outcome is known, the attempt failed (when `until_proposed`), or `end`.
	void WaitForEvent(MonotonicNs end, bool until_proposed) {
		while (!finished) {
			auto now = clock.Now();
			if (now >= end) {
				return;
			}
			auto event = scope.Get()->Wait(std::min(POLL_INTERVAL, end - now));
			if (event.applied) {
				outcome = *event.applied;
				finished = true;
				return;
			}
			if (event.proposed) {
				in_flight = false;
				OnProposed(*event.proposed);
				if (until_proposed && !event.proposed->status.IsOk()) {
					return;
				}
			}
			CheckInterrupt();
			CheckDisk();
		}
	}

	void OnProposed(const node::ProposeOutcome &proposed) {
		auto code = proposed.status.Code();
		if (code == ErrorCode::Ok) {
			outcome.index = proposed.index;
			maybe_appended = true;
			return;
		}
		last_failure = proposed.status;
		if (!SurelyNotAppended(code)) {
			maybe_appended = true;
		}
		// Failures of our own making do not heal either.
		if (code != ErrorCode::OutcomeUnknown && (IsThisNodesTrouble(code) || !SurelyNotAppended(code))) {
			Finish(proposed.status);
		}
	}

	void CheckInterrupt() {
		if (!interrupted || !interrupted()) {
			return;
		}
		if (!maybe_appended && !in_flight) {
			Finish(Status(ErrorCode::Cancelled, "the statement was interrupted before its transaction was proposed"));
			return;
		}
		auto now = clock.Now();
		interrupted_at = interrupted_at == 0 ? now : interrupted_at;
		if (now - interrupted_at >= INTERRUPT_GRACE) {
			Finish(
			    Status(ErrorCode::OutcomeUnknown, "the statement was interrupted while its transaction was underway"));
		}
	}

	//! Another node can do better than one whose disk hangs.
	void CheckDisk() {
		auto *engine = core.engine.load();
		auto hung = finished || engine == nullptr ? std::string() : engine->HungDisk();
		if (hung.empty()) {
			hung_since = 0;
			return;
		}
		if (!maybe_appended && !in_flight) {
			Finish(Status(ErrorCode::Unavailable, hung + "; nothing was proposed, use another node"));
			return;
		}
		auto now = clock.Now();
		hung_since = hung_since == 0 ? now : hung_since;
		if (now - hung_since >= HUNG_DISK_GRACE) {
			Finish(Status(ErrorCode::OutcomeUnknown,
			              hung + ", and the transaction was underway; another node knows its outcome"));
		}
	}

	void FinishAtDeadline() {
		if (maybe_appended || in_flight) {
			Finish(Status(ErrorCode::OutcomeUnknown, "the deadline passed while the transaction was underway"));
			return;
		}
		auto reason = last_failure.IsOk() ? std::string("no attempt was possible") : last_failure.ToString();
		auto code = last_failure.IsOk() ? ErrorCode::DeadlineExceeded : last_failure.Code();
		Finish(Status(code == ErrorCode::NotLeader ? ErrorCode::Unavailable : code,
		              "the transaction was not committed before its deadline: " + reason));
	}

	void Finish(Status status) {
		if (maybe_appended && status.Code() != ErrorCode::OutcomeUnknown) {
			status = Status(ErrorCode::OutcomeUnknown,
			                "an earlier attempt may have committed; the last one said " + status.ToString());
		}
		outcome.status = std::move(status);
		finished = true;
	}

	ReplicaCore &core;
	SharedBytes payload;
	WaiterScope scope;
	const std::function<bool()> interrupted;
	SystemClock clock;
	CommitOutcome outcome;
	const MonotonicNs deadline;
	MonotonicNs interrupted_at = 0;
	MonotonicNs hung_since = 0; //! 0 = the disk answers
	MonotonicNs pause = RETRY_PAUSE_FIRST;
	Status last_failure;
	bool maybe_appended = false;
	bool in_flight = false;
	bool finished = false;
};

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
	                                   group == raft::ROOT_GROUP ? std::string("root") : std::to_string(group),
	                                   core.options.node_id, status.Message(), reason);
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
	std::optional<Result<raft::LogIndex>> result;
};

raft::LogIndex ReadBarrier(ReplicaCore &core, duckdb::ClientContext &context, MonotonicNs deadline) {
	SystemClock clock;
	auto *engine = core.engine.load();
	if (engine == nullptr) {
		ThrowConsistency(core, raft::ROOT_GROUP, "linearizable read",
		                 Status(ErrorCode::Unavailable, "the consensus engine is not running"));
	}
	auto answer = std::make_shared<BarrierAnswer>();
	engine->ReadBarrier(raft::ROOT_GROUP, std::max<MonotonicNs>(deadline - clock.Now(), 1),
	                    [answer](Result<raft::LogIndex> result) {
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

void CommitWaiter::OnProposed(const node::ProposeOutcome &outcome) {
	std::lock_guard<std::mutex> guard(lock);
	event.proposed = outcome;
	changed.notify_all();
}

void CommitWaiter::OnApplied(const CommitOutcome &outcome) {
	std::lock_guard<std::mutex> guard(lock);
	event.applied = outcome;
	changed.notify_all();
}

CommitWaiter::Event CommitWaiter::Wait(MonotonicNs slice) {
	std::unique_lock<std::mutex> guard(lock);
	changed.wait_for(guard, std::chrono::nanoseconds(slice),
	                 [&]() { return event.applied.has_value() || event.proposed.has_value(); });
	auto result = event;
	event.proposed.reset();
	return result;
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
	header.base_index = header.snapshot_index;
	return header;
}

duckdb::shared_ptr<duckdb::AttachedDatabase> ReplicaCore::Attached() const {
	return duckdb::DatabaseManager::Get(instance).GetDatabase(duckdb::Identifier(CATALOG_NAME));
}

void ReplicaCore::DeliverOutcomes(const std::vector<CommitOutcome> &outcomes) {
	std::lock_guard<std::mutex> guard(waiters_lock);
	for (auto &outcome : outcomes) {
		auto found = waiters.equal_range(outcome.request_id);
		for (auto entry = found.first; entry != found.second; ++entry) {
			entry->second->OnApplied(outcome);
		}
	}
}

CommitOutcome ProposeAndWait(ReplicaCore &core, const RequestId &id, SharedBytes payload, MonotonicNs deadline,
                             std::function<bool()> interrupted) {
	return ProposalLoop(core, id, std::move(payload), deadline, std::move(interrupted)).Run();
}

std::optional<CommitOutcome> KnownOutcome(const ReplicaCore &core, const RequestId &id) {
	std::lock_guard<std::mutex> guard(core.state_lock);
	auto *found = core.state.outcomes.Find(id);
	return found == nullptr ? std::nullopt : std::optional<CommitOutcome>(*found);
}

void WaitForConsistency(ReplicaCore &core, duckdb::ClientContext &context) {
	auto &session = SessionState::Get(context);
	auto consistency = session.GetConsistency();
	if (consistency == Consistency::Eventual) {
		return;
	}
	// The statement itself may have longer, or no limit: whoever asked can be told, and find another node.
	auto deadline = std::min(session.OperationDeadline(), SystemClock().Now() + CONSISTENCY_WAIT_MAX);
	for (auto &floor : session.Floor()) {
		WaitUntilApplied(core, context, floor.first, floor.second, deadline, "session read");
	}
	if (consistency == Consistency::Linearizable) {
		auto index = ReadBarrier(core, context, deadline);
		WaitUntilApplied(core, context, raft::ROOT_GROUP, index, deadline, "linearizable read");
	}
}

} // namespace catalog
} // namespace quack
