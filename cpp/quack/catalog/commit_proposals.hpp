//! How an entry gets from a session into a group's log and how its outcome comes back.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

//! What somebody waits for in one group: the outcome of a request, or whether its part was prepared.
enum class WaitFor : uint8_t { Outcome, Prepare };

//! Wakes a session that follows several entries at once.
class WakeUp {
public:
	void Notify();
	//! Returns at the next Notify, or at once when there was one since the last wait, or after `slice`.
	void Wait(MonotonicNs slice);

private:
	std::mutex lock;
	std::condition_variable changed;
	bool is_due = false;
};

//! Registered before the entry is proposed. Thread-safe.
class CommitWaiter {
public:
	CommitWaiter(raft::GroupId group_p, WaitFor kind_p, std::shared_ptr<WakeUp> wake_up_p)
	    : group(group_p), kind(kind_p), wake_up(std::move(wake_up_p)) {
	}
	const raft::GroupId group;
	const WaitFor kind;

	//! What the engine said about the latest attempt.
	void OnProposed(const node::ProposeOutcome &outcome);
	//! The entry was applied here.
	void OnApplied(const CommitOutcome &outcome);

	struct Event {
		std::optional<CommitOutcome> applied;
		std::optional<node::ProposeOutcome> proposed; //! taken once
	};
	Event Take();

private:
	const std::shared_ptr<WakeUp> wake_up;
	std::mutex lock;
	Event event;
};

//! One entry's way into one group: attempts, pauses, and what is known at the end. One thread.
class GroupProposal {
public:
	struct Target {
		RequestId id {};
		raft::GroupId group = raft::ROOT_GROUP;
		WaitFor kind = WaitFor::Outcome;
	};
	GroupProposal(ReplicaCore &core, const Target &target, SharedBytes payload, MonotonicNs deadline,
	              std::shared_ptr<WakeUp> wake_up);
	~GroupProposal();
	GroupProposal(const GroupProposal &) = delete;
	GroupProposal &operator=(const GroupProposal &) = delete;

	//! Takes what has come in and proposes when it is time to. True when the outcome is final. After an interrupt, what
	//! is underway gets a short while to become known.
	bool Step(const std::function<bool()> &interrupted);
	//! When to step again at the latest.
	MonotonicNs NextStep() const;
	//! Proposes nothing before then.
	void Postpone(MonotonicNs until) {
		attempt_at = until;
	}
	const SharedBytes &Payload() const {
		return payload;
	}
	//! Status Ok: applied here, index and group are set; for a prepare: granted. With an index and another status: its
	//! entry was applied and rejected. Without an index: it was not applied here.
	const CommitOutcome &Outcome() const {
		return outcome;
	}
	const Target &GetTarget() const {
		return target;
	}

private:
	bool FindKnown();
	void Attempt(MonotonicNs now);
	void OnProposed(const node::ProposeOutcome &proposed, MonotonicNs now);
	void CheckInterrupt(const std::function<bool()> &interrupted, MonotonicNs now);
	void CheckService();
	void CheckDisk(MonotonicNs now);
	void FinishAtDeadline();
	void Finish(Status status);

	ReplicaCore &core;
	const Target target;
	const SharedBytes payload;
	const MonotonicNs deadline;
	const std::shared_ptr<CommitWaiter> waiter;
	SystemClock clock;
	CommitOutcome outcome;
	MonotonicNs interrupted_at = 0;
	MonotonicNs hung_since = 0; //! 0 = the disk answers
	MonotonicNs pause;
	MonotonicNs attempt_at = 0; //! not before then
	Status last_failure;
	bool in_flight = false;
	bool is_appended = false; //! committed in the log, not applied here yet
	bool maybe_appended = false;
	bool finished = false;
};

//! Steps a proposal until its outcome is known or the deadline passes.
CommitOutcome ProposeAndWait(ReplicaCore &core, const GroupProposal::Target &target, SharedBytes payload,
                             MonotonicNs deadline, const std::function<bool()> &interrupted);

} // namespace catalog
} // namespace quack
