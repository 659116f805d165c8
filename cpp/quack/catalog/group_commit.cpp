#include "quack/catalog/group_commit.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "quack/catalog/effects.hpp"

namespace quack {
namespace catalog {
namespace {

//! A session that is refused waits this long for the void entry that makes the refusal final; the leaders of the groups
//! see to it in any case.
constexpr MonotonicNs VOID_TIMEOUT = 2 * NS_PER_SECOND;
constexpr MonotonicNs RELEASE_TIMEOUT = 5 * NS_PER_SECOND;
//! How often and how fast a prepare that met locks is repeated, by a transaction that prepares in turn: whoever holds
//! them is in the last steps of its commit.
constexpr uint32_t PREPARE_REPEATS_MAX = 100;
constexpr MonotonicNs PREPARE_PAUSE = 4 * NS_PER_MS;

class GroupCommit {
public:
	GroupCommit(ReplicaCore &core_p, GroupTransaction transaction_p, MonotonicNs deadline_p,
	            const std::function<bool()> &interrupted_p)
	    : core(core_p), id(transaction_p.id), base(transaction_p.base), deadline(deadline_p),
	      interrupted(interrupted_p), is_in_turn(transaction_p.in_turn),
	      driver(transaction_p.id, transaction_p.planned_version, std::move(transaction_p.parts), is_in_turn) {
		outcome.request_id = id;
		outcome.group = driver.Coordinator();
	}

	CommitOutcome Run() {
		while (!is_finished) {
			Start();
			auto next = StepAll();
			if (!done.empty()) {
				// What follows from it is proposed at once.
				running.erase(std::remove_if(running.begin(), running.end(),
				                             [this](const std::unique_ptr<GroupProposal> &proposal) {
					                             return done.count(proposal.get()) != 0;
				                             }),
				              running.end());
				done.clear();
				std::move(repeated.begin(), repeated.end(), std::back_inserter(running));
				repeated.clear();
			} else if (running.empty()) {
				// Nothing is underway and nothing is left to do: cannot happen, but must not spin.
				Finish(Status(ErrorCode::Internal, "a transaction over several groups has stopped without an outcome"));
			} else {
				wake_up->Wait(std::max<MonotonicNs>(next - clock.Now(), NS_PER_MS / 10));
			}
		}
		return outcome;
	}

private:
	//! When to step again at the latest.
	MonotonicNs StepAll() {
		auto next = clock.Now() + NS_PER_SECOND;
		for (auto &proposal : running) {
			if (proposal->Step(interrupted)) {
				OnFinished(*proposal);
			} else {
				next = std::min(next, proposal->NextStep());
			}
		}
		return next;
	}

	void Start() {
		for (auto &proposal : driver.TakeProposals()) {
			if (driver.GetPhase() == node::TransactionDriver::Phase::Releasing) {
				Release(proposal);
				continue;
			}
			GroupProposal::Target target {id, proposal.group, WaitFor::Outcome};
			auto is_void = proposal.kind == node::TransactionProposal::Kind::Void;
			if (!is_void && driver.GetPhase() == node::TransactionDriver::Phase::Preparing) {
				target.kind = WaitFor::Prepare;
			}
			auto payload = is_void ? VoidEntry(core, id, base) : MakeSharedBytes(std::move(proposal.payload));
			auto until = is_void ? std::max(deadline, clock.Now() + VOID_TIMEOUT) : deadline;
			running.push_back(std::make_unique<GroupProposal>(core, target, std::move(payload), until, wake_up));
		}
	}

	void Release(node::TransactionProposal &proposal) {
		if (auto *engine = core.engine.load()) {
			engine->Propose(proposal.group, MakeSharedBytes(std::move(proposal.payload)), RELEASE_TIMEOUT,
			                [](const node::ProposeOutcome &) {});
		}
	}

	void OnFinished(const GroupProposal &proposal) {
		if (!done.insert(&proposal).second) {
			return;
		}
		auto &result = proposal.Outcome();
		auto group = proposal.GetTarget().group;
		if (proposal.GetTarget().kind == WaitFor::Prepare) {
			if (!Repeats(proposal)) {
				OnPrepared(group, result);
			}
			return;
		}
		if (result.index == 0) {
			// Refused before, and the void entry is not in the log yet: nothing was decided, and nothing will be but
			// that it never comes. Otherwise the decision may be on its way.
			Finish(refusal.IsOk() ? result.status : refusal);
			return;
		}
		driver.OnDecided(result.index);
		Start(); // the releases; nobody waits for them
		outcome = result;
		if (!refusal.IsOk() && !result.status.IsOk()) {
			outcome.status = refusal;
		}
		is_finished = true;
	}

	//! A refused prepare leaves nothing behind, so it may come again under the same id. Only in turn: all those hold
	//! locks of larger groups alone while they try for the next, and so cannot stand in each other's way for good.
	bool Repeats(const GroupProposal &refused) {
		auto &result = refused.Outcome();
		auto is_clash = result.index != 0 && result.status.Code() == ErrorCode::Conflict;
		if (!is_in_turn || !is_clash || repeats_left == 0 || clock.Now() >= deadline ||
		    (interrupted && interrupted())) {
			return false;
		}
		repeats_left--;
		repeated.push_back(
		    std::make_unique<GroupProposal>(core, refused.GetTarget(), refused.Payload(), deadline, wake_up));
		repeated.back()->Postpone(clock.Now() + PREPARE_PAUSE);
		return true;
	}

	void OnPrepared(raft::GroupId group, const CommitOutcome &result) {
		if (!result.status.IsOk() && refusal.IsOk()) {
			refusal = result.status;
			if (refusal.Code() == ErrorCode::OutcomeUnknown) {
				// The prepare may come, the decision will not: this transaction surely does not commit.
				refusal =
				    Status(ErrorCode::Unavailable, "the part of the transaction in group " + core.GroupName(group) +
					                                   " could not be prepared in time: " + result.status.Message());
			}
		}
		if (result.index != 0) {
			driver.OnPrepared(group, result.index, result.status.IsOk());
		} else {
			driver.GiveUp();
		}
	}

	void Finish(Status status) {
		outcome.status = std::move(status);
		is_finished = true;
	}

	ReplicaCore &core;
	const RequestId id;
	const uint64_t base;
	const MonotonicNs deadline;
	const std::function<bool()> &interrupted;
	const bool is_in_turn;
	uint32_t repeats_left = PREPARE_REPEATS_MAX;
	node::TransactionDriver driver;
	const std::shared_ptr<WakeUp> wake_up = std::make_shared<WakeUp>();
	std::vector<std::unique_ptr<GroupProposal>> running;
	std::set<const GroupProposal *> done;
	//! Joins `running` after the step.
	std::vector<std::unique_ptr<GroupProposal>> repeated;
	//! Why it cannot commit.
	Status refusal;
	CommitOutcome outcome;
	SystemClock clock;
	bool is_finished = false;
};

} // namespace

SharedBytes VoidEntry(const ReplicaCore &core, const RequestId &id, uint64_t base) {
	auto header = core.OwnHeader();
	header.request_id = id;
	header.base_index = base;
	return MakeSharedBytes(EffectWriter().Finish(header));
}

CommitOutcome CommitOverGroups(ReplicaCore &core, GroupTransaction transaction, MonotonicNs deadline,
                               const std::function<bool()> &interrupted) {
	return GroupCommit(core, std::move(transaction), deadline, interrupted).Run();
}

} // namespace catalog
} // namespace quack
