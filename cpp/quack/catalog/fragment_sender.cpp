#include "quack/catalog/fragment_sender.hpp"

#include <algorithm>

#include "quack/catalog/commit_proposals.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr MonotonicNs POLL_INTERVAL = 20 * NS_PER_MS;
constexpr MonotonicNs RETRY_PAUSE_FIRST = 10 * NS_PER_MS;
constexpr MonotonicNs RETRY_PAUSE_MAX = 250 * NS_PER_MS;
constexpr MonotonicNs DROP_TIMEOUT = 5 * NS_PER_SECOND;

//! A fragment that was appended twice counts once, so any of these may be tried again.
bool IsRetryable(ErrorCode code) {
	return code == ErrorCode::Unavailable || code == ErrorCode::NotLeader || code == ErrorCode::Overloaded ||
	       code == ErrorCode::DeadlineExceeded || code == ErrorCode::OutcomeUnknown;
}

//! One fragment's way through the engine.
class FragmentProposal {
public:
	FragmentProposal(ReplicaCore &core_p, const FragmentPlan &plan_p, const std::function<bool()> &interrupted_p)
	    : core(core_p), plan(plan_p), interrupted(interrupted_p) {
	}

	Status Run(const Fragment &fragment) {
		EffectWriter effects;
		effects.AddFragment(fragment);
		auto payload = MakeSharedBytes(effects.Finish(plan.header));
		auto deadline = plan.deadline != 0 ? plan.deadline : clock.Now() + plan.patience;
		auto pause = RETRY_PAUSE_FIRST;
		Status last(ErrorCode::DeadlineExceeded, "no attempt was possible");
		for (;;) {
			auto *engine = core.engine.load();
			auto now = clock.Now();
			if (engine == nullptr || core.closing) {
				return Status(ErrorCode::Unavailable, "this node's consensus engine is not running");
			}
			if (now >= deadline) {
				return Status(last.Code() == ErrorCode::DeadlineExceeded ? ErrorCode::DeadlineExceeded
				                                                         : ErrorCode::Unavailable,
				              "fragment " + std::to_string(fragment.sequence + 1) + " of " +
				                  std::to_string(plan.end.count) +
				                  " of the transaction was not committed before its deadline: " + last.ToString());
			}
			auto wake_up = std::make_shared<WakeUp>();
			auto waiter = std::make_shared<CommitWaiter>(plan.group, WaitFor::Outcome, wake_up);
			engine->Propose(plan.group, payload, deadline - now,
			                [waiter](const node::ProposeOutcome &proposed) { waiter->OnProposed(proposed); });
			auto status = Await(*waiter, *wake_up, deadline);
			if (status.IsOk() || !IsRetryable(status.Code())) {
				return status;
			}
			last = status;
			WakeUp().Wait(std::min(pause, std::max<MonotonicNs>(deadline - clock.Now(), 1))); // nothing ends it
			pause = std::min(2 * pause, RETRY_PAUSE_MAX);
		}
	}

private:
	Status Await(CommitWaiter &waiter, WakeUp &wake_up, MonotonicNs deadline) {
		for (;;) {
			wake_up.Wait(POLL_INTERVAL);
			auto event = waiter.Take();
			if (event.proposed) {
				return event.proposed->status;
			}
			if (interrupted && interrupted()) {
				return Status(ErrorCode::Cancelled, "the statement was interrupted before its transaction was "
				                                    "complete in the log");
			}
			// The engine keeps the deadline; this is for one that does not answer.
			if (clock.Now() > deadline + NS_PER_SECOND) {
				return Status(ErrorCode::DeadlineExceeded, "the consensus engine did not answer");
			}
		}
	}

	ReplicaCore &core;
	const FragmentPlan &plan;
	const std::function<bool()> &interrupted;
	SystemClock clock;
};

void GiveUp(ReplicaCore &core, raft::GroupId group, const StreamId &stream) {
	auto *engine = core.engine.load();
	if (engine == nullptr || core.closing) {
		return; // the leader's sweeper does it
	}
	RequestId id;
	auto payload = StreamDropEntry(core, stream, id);
	engine->Propose(group, payload, DROP_TIMEOUT, [](const node::ProposeOutcome &) {});
}

} // namespace

void PlanFragments(ReplicaCore &core, const SpoolFile &spool, FragmentPlan &plan) {
	plan.fragment_bytes = std::max<size_t>(1, std::min(FRAGMENT_BYTES_MAX, core.options.split_bytes));
	plan.end.stream = NewRequestId();
	plan.end.bytes = spool.Bytes();
	plan.end.count = uint32_t((spool.Bytes() + plan.fragment_bytes - 1) / plan.fragment_bytes);
	plan.end.crc = spool.Crc();
}

Status SendFragments(ReplicaCore &core, const FragmentPlan &plan, const SpoolFile &spool,
                     const std::function<bool()> &interrupted, std::optional<CommitOutcome> &known) {
	FragmentProposal proposal(core, plan, interrupted);
	Fragment fragment;
	fragment.stream = plan.end.stream;
	for (uint64_t offset = 0; offset < plan.end.bytes; offset += plan.fragment_bytes) {
		known = KnownOutcome(core, plan.header.request_id);
		if (known) {
			return Status::Ok();
		}
		auto bytes = spool.Read(offset, plan.fragment_bytes);
		auto status = bytes.IsOk() ? Status::Ok() : bytes.GetStatus();
		if (status.IsOk()) {
			fragment.bytes = bytes.Value();
			status = proposal.Run(fragment);
		}
		if (!status.IsOk()) {
			GiveUp(core, plan.group, plan.end.stream);
			return status;
		}
		fragment.sequence++;
	}
	return Status::Ok();
}

SharedBytes StreamDropEntry(ReplicaCore &core, const StreamId &stream, RequestId &id) {
	EffectWriter effects;
	effects.AddStreamDrop(stream);
	auto header = core.OwnHeader();
	header.request_id = id = NewRequestId(header.base_index);
	return MakeSharedBytes(effects.Finish(header));
}

} // namespace catalog
} // namespace quack
