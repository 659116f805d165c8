#include "quack/catalog/commit_proposals.hpp"

#include <algorithm>
#include <chrono>

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

bool SurelyNotAppended(ErrorCode code) {
	return code == ErrorCode::Unavailable || code == ErrorCode::NotLeader || code == ErrorCode::Overloaded ||
	       code == ErrorCode::DeadlineExceeded || code == ErrorCode::Degraded || code == ErrorCode::DiskFull ||
	       code == ErrorCode::NotFound;
}

//! Whoever asked should hear it at once: another node may do better.
bool IsThisNodesTrouble(ErrorCode code) {
	return code == ErrorCode::Degraded || code == ErrorCode::DiskFull;
}

} // namespace

void WakeUp::Notify() {
	std::lock_guard<std::mutex> guard(lock);
	is_due = true;
	changed.notify_all();
}

void WakeUp::Wait(MonotonicNs slice) {
	std::unique_lock<std::mutex> guard(lock);
	changed.wait_for(guard, std::chrono::nanoseconds(slice), [this] { return is_due; });
	is_due = false;
}

void CommitWaiter::OnProposed(const node::ProposeOutcome &outcome) {
	{
		std::lock_guard<std::mutex> guard(lock);
		event.proposed = outcome;
	}
	wake_up->Notify();
}

void CommitWaiter::OnApplied(const CommitOutcome &outcome) {
	{
		std::lock_guard<std::mutex> guard(lock);
		event.applied = outcome;
	}
	wake_up->Notify();
}

CommitWaiter::Event CommitWaiter::Take() {
	std::lock_guard<std::mutex> guard(lock);
	auto taken = event;
	event.proposed.reset();
	return taken;
}

GroupProposal::GroupProposal(ReplicaCore &core_p, const Target &target_p, SharedBytes payload_p, MonotonicNs deadline_p,
                             std::shared_ptr<WakeUp> wake_up)
    : core(core_p), target(target_p), payload(std::move(payload_p)), deadline(deadline_p),
      waiter(std::make_shared<CommitWaiter>(target_p.group, target_p.kind, std::move(wake_up))),
      pause(RETRY_PAUSE_FIRST) {
	outcome.request_id = target.id;
	outcome.group = target.group;
	{
		std::lock_guard<std::mutex> guard(core.waiters_lock);
		core.waiters.emplace(target.id, waiter);
	}
	// It may have been applied in an earlier life of its session.
	finished = FindKnown();
}

GroupProposal::~GroupProposal() {
	std::lock_guard<std::mutex> guard(core.waiters_lock);
	auto range = core.waiters.equal_range(target.id);
	for (auto entry = range.first; entry != range.second; ++entry) {
		if (entry->second == waiter) {
			core.waiters.erase(entry);
			return;
		}
	}
}

bool GroupProposal::FindKnown() {
	std::lock_guard<std::mutex> guard(core.state_lock);
	auto &state = core.state;
	if (target.kind == WaitFor::Prepare) {
		auto *part = state.prepared.Find(target.group, target.id);
		if (part != nullptr) {
			outcome.index = part->index;
			return true;
		}
	}
	auto *known = state.outcomes.Find(target.id, target.group, 0);
	if (known == nullptr) {
		return false;
	}
	outcome = *known;
	return true;
}

bool GroupProposal::Step(const std::function<bool()> &interrupted) {
	if (finished) {
		return true;
	}
	auto now = clock.Now();
	auto event = waiter->Take();
	if (event.applied) {
		outcome = *event.applied;
		finished = true;
		return true;
	}
	if (event.proposed) {
		in_flight = false;
		OnProposed(*event.proposed, now);
	}
	CheckInterrupt(interrupted, now);
	CheckService();
	CheckDisk(now);
	if (!finished && now >= deadline) {
		FinishAtDeadline();
	}
	if (!finished && !in_flight && !is_appended && now >= attempt_at) {
		Attempt(now);
	}
	return finished;
}

MonotonicNs GroupProposal::NextStep() const {
	auto next = std::min(deadline, clock.Now() + POLL_INTERVAL);
	return attempt_at != 0 ? std::min(next, attempt_at) : next;
}

void GroupProposal::Attempt(MonotonicNs now) {
	auto *engine = core.engine.load();
	if (engine == nullptr || core.closing) {
		Finish(Status(ErrorCode::Unavailable, "this node's consensus engine is not running"));
		return;
	}
	in_flight = true;
	attempt_at = 0;
	auto answered = waiter;
	engine->Propose(target.group, payload, deadline - now,
	                [answered](const node::ProposeOutcome &proposed) { answered->OnProposed(proposed); });
}

void GroupProposal::OnProposed(const node::ProposeOutcome &proposed, MonotonicNs now) {
	auto code = proposed.status.Code();
	if (code == ErrorCode::Ok) {
		is_appended = true;
		maybe_appended = true;
		return;
	}
	last_failure = proposed.status;
	attempt_at = now + pause;
	pause = std::min(2 * pause, RETRY_PAUSE_MAX);
	if (!SurelyNotAppended(code)) {
		maybe_appended = true;
	}
	if (code == ErrorCode::NotFound && core.IsGroupGone(target.group)) {
		Finish(Status(ErrorCode::SchemaChanged, "the group that the transaction's table lived in is retired; retry"));
	}
	// Failures of our own making do not heal either.
	if (code != ErrorCode::OutcomeUnknown && (IsThisNodesTrouble(code) || !SurelyNotAppended(code))) {
		Finish(proposed.status);
	}
}

void GroupProposal::CheckInterrupt(const std::function<bool()> &interrupted, MonotonicNs now) {
	if (finished || !interrupted || !interrupted()) {
		return;
	}
	if (!maybe_appended && !in_flight) {
		Finish(Status(ErrorCode::Cancelled, "the statement was interrupted before its transaction was proposed"));
		return;
	}
	interrupted_at = interrupted_at == 0 ? now : interrupted_at;
	if (now - interrupted_at >= INTERRUPT_GRACE) {
		Finish(Status(ErrorCode::OutcomeUnknown, "the statement was interrupted while its transaction was underway"));
	}
}

//! A node out of service applies nothing more: there is no reason to wait for it.
void GroupProposal::CheckService() {
	auto *engine = core.engine.load();
	// The engine answers what is in flight, and more exactly.
	if (finished || in_flight || engine == nullptr || !engine->IsDegraded()) {
		return;
	}
	if (maybe_appended) {
		Finish(Status(ErrorCode::OutcomeUnknown, "this node went out of service while the transaction was underway; "
		                                         "another node knows its outcome"));
		return;
	}
	Finish(Status(ErrorCode::Degraded, "this node is out of service; nothing was proposed, use another node"));
}

//! Another node can do better than one whose disk hangs.
void GroupProposal::CheckDisk(MonotonicNs now) {
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
	hung_since = hung_since == 0 ? now : hung_since;
	if (now - hung_since >= HUNG_DISK_GRACE) {
		Finish(Status(ErrorCode::OutcomeUnknown,
		              hung + ", and the transaction was underway; another node knows its outcome"));
	}
}

void GroupProposal::FinishAtDeadline() {
	if (maybe_appended || in_flight) {
		Finish(Status(ErrorCode::OutcomeUnknown, "the deadline passed while the transaction was underway"));
		return;
	}
	auto reason = last_failure.IsOk() ? std::string("no attempt was possible") : last_failure.ToString();
	auto code = last_failure.IsOk() ? ErrorCode::DeadlineExceeded : last_failure.Code();
	Finish(Status(code == ErrorCode::NotLeader ? ErrorCode::Unavailable : code,
	              "the transaction was not committed before its deadline: " + reason));
}

void GroupProposal::Finish(Status status) {
	if (maybe_appended && status.Code() != ErrorCode::OutcomeUnknown) {
		status = Status(ErrorCode::OutcomeUnknown,
		                "an earlier attempt may have committed; the last one said " + status.ToString());
	}
	outcome.status = std::move(status);
	finished = true;
}

CommitOutcome ProposeAndWait(ReplicaCore &core, const GroupProposal::Target &target, SharedBytes payload,
                             MonotonicNs deadline, const std::function<bool()> &interrupted) {
	auto wake_up = std::make_shared<WakeUp>();
	GroupProposal proposal(core, target, std::move(payload), deadline, wake_up);
	SystemClock clock;
	while (!proposal.Step(interrupted)) {
		wake_up->Wait(std::max<MonotonicNs>(proposal.NextStep() - clock.Now(), NS_PER_MS / 10));
	}
	return proposal.Outcome();
}

} // namespace catalog
} // namespace quack
