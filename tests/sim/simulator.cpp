#include "sim/simulator.hpp"

#include <algorithm>
#include <exception>

#include "quack/common/check.hpp"
#include "quack/common/log.hpp"
#include "sim/checkers/linearizability_checker.hpp"
#include "sim/cluster.hpp"
#include "sim/nemesis.hpp"
#include "sim/workload.hpp"

namespace quack {
namespace sim {

namespace {

constexpr uint64_t EVENTS_MAX = 1500 * 1000;
//! Of unapplied entries: hardly more than one.
constexpr size_t FEW_BYTES = 300;
constexpr uint64_t LINEARIZABILITY_ITERATIONS_MAX = 3 * 1000 * 1000;

//! A broken invariant, carried out of the core. The core is not used again.
class PanicError : public std::exception {
public:
	PanicError(const char *file, int line, const char *condition, const char *message)
	    : text(std::string(file) + ":" + std::to_string(line) + ": " + condition + ": " + message) {
	}
	const char *what() const noexcept override {
		return text.c_str();
	}

private:
	std::string text;
};

[[noreturn]] void ThrowPanic(const char *file, int line, const char *condition, const char *message) {
	throw PanicError(file, line, condition, message);
}

class Simulation {
public:
	Simulation(const Settings &settings, const RunOptions &options_p)
	    : options(options_p), world(settings, options_p.sabotage, options_p.level), cluster(world),
	      workload(world, cluster), nemesis(world, cluster, workload) {
		world.trace.PrintTo(options.trace_out);
		cluster.SetWorkload(workload);
	}

	RunResult Run() {
		RunResult result;
		try {
			Loop(result);
			if (result.outcome == Outcome::Ok && !world.sink.Any()) {
				CheckHistory(result);
			}
		} catch (const PanicError &panic) {
			result.outcome = Outcome::Crash;
			result.checker = "panic";
			result.message = panic.what();
		}
		if (result.outcome == Outcome::Ok && world.sink.Any()) {
			result.checker = world.sink.First().checker;
			result.message = world.sink.First().message;
			result.outcome = result.checker == "fatal" ? Outcome::Crash : Outcome::Correctness;
		}
		world.trace.Add(static_cast<uint64_t>(result.outcome));
		result.trace_hash = world.trace.Hash();
		result.virtual_time = world.queue.Now();
		const auto &network = world.network.Counters();
		world.coverage.messages_sent = network.sent;
		world.coverage.messages_lost = network.lost + network.blocked;
		world.coverage.messages_duplicated = network.duplicated;
		for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
			world.coverage.Add(cluster.At(slot).Disk().Counters());
		}
		result.coverage = world.coverage;
		return result;
	}

private:
	void Loop(RunResult &result) {
		cluster.StartAll();
		nemesis.Start();
		workload.Start();
		world.queue.Push(world.settings.safety_duration, EventKind::Heal, 0, 0, 0);
		for (uint64_t count = 0; !converged && !world.sink.Any(); count++) {
			if (count > EVENTS_MAX) {
				result.outcome = Outcome::Crash;
				result.checker = "event_limit";
				result.message = "the run did not end within " + std::to_string(EVENTS_MAX) + " events";
				return;
			}
			SimEvent event = world.queue.Pop();
			world.trace.Add(static_cast<uint64_t>(event.at));
			world.trace.Add(static_cast<uint64_t>(event.kind) << 32 | event.node);
			Dispatch(event);
			if (healed_at != 0 && !converged && world.queue.Now() > healed_at + liveness_bound) {
				if (!options.wrong_answers_only) {
					result.outcome = Outcome::Liveness;
					result.checker = "liveness";
					result.message = DescribeStall();
				}
				return;
			}
		}
		result.recovery_time = world.queue.Now() - healed_at;
	}

	void Dispatch(const SimEvent &event) {
		switch (event.kind) {
		case EventKind::ClientWake:
		case EventKind::ClientRequest:
		case EventKind::OpTimeout:
			workload.Handle(event);
			return;
		case EventKind::Nemesis:
		case EventKind::NemesisEnd:
		case EventKind::LeaderStrike:
		case EventKind::SyncStrike:
		case EventKind::TransferStrike:
		case EventKind::LeaseAttack:
		case EventKind::ForcedCampaign:
		case EventKind::LeaseRead:
		case EventKind::Restart:
		case EventKind::Latched:
			nemesis.Handle(event);
			return;
		case EventKind::Heal:
			healed_at = world.queue.Now();
			liveness_bound = LivenessBound();
			world.trace.Print("%10.3f  heal", static_cast<double>(healed_at) / NS_PER_MS);
			workload.Stop();
			nemesis.Heal();
			world.queue.Push(ProgressInterval(), EventKind::ProgressCheck, 0, 0, 0);
			return;
		case EventKind::ProgressCheck:
			CheckProgress();
			world.queue.Push(ProgressInterval(), EventKind::ProgressCheck, 0, 0, 0);
			return;
		default:
			cluster.Handle(event);
		}
	}

	MonotonicNs LivenessBound() {
		raft::LogIndex longest = 0;
		for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
			longest = std::max(longest, cluster.At(slot).Disk().Written().LastIndex());
		}
		const Settings &s = world.settings;
		MonotonicNs per_entry = 2 * s.delay_max + s.sync_latency_max;
		if (s.config.unapplied_bytes_max <= FEW_BYTES) {
			// A replaced disk may have to apply the whole log anew, one entry at a time.
			per_entry += s.apply_latency_max;
		}
		return s.liveness_bound + static_cast<MonotonicNs>(longest) * per_entry;
	}

	MonotonicNs ProgressInterval() const {
		return world.settings.config.election_timeout / 4;
	}

	//! Converged = after healing a new write was acknowledged, every member answered a linearizable read, the change of
	//! membership is over, and every member applied all there is.
	void CheckProgress() {
		SimNode *leader = cluster.CurrentLeader();
		if (!leader) {
			return;
		}
		nemesis.RepairMembership();
		if (probe_write == 0 || workload.StateOf(probe_write) > OpState::Done) {
			probe_write = workload.Ask(*leader, OpKind::Write, 0);
			return;
		}
		if (workload.StateOf(probe_write) != OpState::Done || leader->MembershipInForce().IsJoint()) {
			return;
		}
		const auto &membership = leader->MembershipInForce();
		std::vector<raft::NodeId> members = membership.voters;
		members.insert(members.end(), membership.learners.begin(), membership.learners.end());
		bool all_well = true;
		probe_reads.resize(cluster.SlotCount(), 0);
		for (auto id : members) {
			SimNode *node = cluster.Find(id);
			if (!node || !node->IsAlive()) {
				return;
			}
			uint32_t &read = probe_reads[SlotOf(id)];
			if (read == 0 || workload.StateOf(read) > OpState::Done) {
				read = workload.Ask(*node, OpKind::Read, 0);
			}
			// As the cores see it: a snapshot that is still being installed does not count.
			auto status = node->GetStatus();
			all_well = all_well && workload.StateOf(read) == OpState::Done &&
			           status.applied_index == leader->Disk().Written().LastIndex() &&
			           status.last_index == leader->Disk().Written().LastIndex();
		}
		if (all_well) {
			CheckFinalState(members);
			converged = true;
		}
	}

	void CheckFinalState(const std::vector<raft::NodeId> &members) {
		SimNode *first = cluster.Find(members.front());
		for (auto id : members) {
			SimNode *node = cluster.Find(id);
			world.state_machine_safety.OnSameIndex(first->Id(), first->Machine().HistoryHash(), id,
			                                       node->Machine().HistoryHash());
			world.lost_write.CheckFinal(id, node->Machine().AppliedOps());
			if (!(node->MembershipInForce() == first->MembershipInForce())) {
				world.sink.Report("membership", "nodes " + std::to_string(first->Id()) + " and " + std::to_string(id) +
				                                    " hold equal logs but different memberships: " +
				                                    Describe(first->MembershipInForce()) + " and " +
				                                    Describe(node->MembershipInForce()));
			}
			if (cluster.GlobalCommitIndex() > node->Machine().AppliedIndex()) {
				world.sink.Report("leader_completeness",
				                  "node " + std::to_string(id) + " ends at index " +
				                      std::to_string(node->Machine().AppliedIndex()) + " although " +
				                      std::to_string(cluster.GlobalCommitIndex()) + " was committed");
			}
		}
	}

	void CheckHistory(RunResult &result) {
		for (uint32_t key = 0; key < world.settings.key_count; key++) {
			auto verdict = CheckLinearizability(workload.History(key), LINEARIZABILITY_ITERATIONS_MAX);
			if (verdict.verdict == Verdict::NotLinearizable) {
				world.sink.Report("linearizability", "register " + std::to_string(key) + ": " + verdict.explanation);
				return;
			}
			if (verdict.verdict == Verdict::Unknown && !options.wrong_answers_only) {
				result.outcome = Outcome::Inconclusive;
				result.checker = "linearizability";
				result.message = "register " + std::to_string(key) + ": the search gave up";
			}
		}
	}

	std::string DescribeStall() {
		std::string text = "no convergence within " + std::to_string(liveness_bound / NS_PER_MS) +
		                   " ms after healing; commit index " + std::to_string(cluster.GlobalCommitIndex());
		for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
			SimNode &node = cluster.At(slot);
			if (!node.IsAlive()) {
				text += "\n  node " + std::to_string(node.Id()) + " is down";
				continue;
			}
			auto status = node.GetStatus();
			text += "\n  node " + std::to_string(node.Id()) + " " + RoleName(status.role) + " term " +
			        std::to_string(status.term) + " leader " + std::to_string(status.leader) + " commit " +
			        std::to_string(status.commit_index) + " applied " + std::to_string(status.applied_index) + " log " +
			        std::to_string(node.Disk().Written().base.index + 1) + ".." + std::to_string(status.last_index) +
			        " durable " + std::to_string(status.durable_index) + " " + Describe(status.membership);
			for (const auto &progress : status.progress) {
				text += "\n    peer " + std::to_string(progress.node) + " state " +
				        std::to_string(static_cast<int>(progress.state)) + " match " + std::to_string(progress.match) +
				        " next " + std::to_string(progress.next) + " inflight " +
				        std::to_string(progress.inflight_messages);
			}
		}
		return text;
	}

	const RunOptions options;
	World world;
	Cluster cluster;
	Workload workload;
	Nemesis nemesis;
	MonotonicNs healed_at = 0;
	MonotonicNs liveness_bound = 0;
	bool converged = false;
	uint32_t probe_write = 0;
	std::vector<uint32_t> probe_reads;
};

} // namespace

int ExitCode(Outcome outcome) {
	return outcome == Outcome::Ok ? 0 : 9 + static_cast<int>(outcome);
}

const char *OutcomeName(Outcome outcome) {
	static const char *const names[] = {"ok", "crash", "liveness", "correctness", "inconclusive"};
	return names[static_cast<size_t>(outcome)];
}

void PrepareProcess() {
	SetPanicHook(ThrowPanic);
	SetLogSink([](LogLevel, const std::string &) {}, LogLevel::Error);
}

RunResult Run(const Settings &settings, const RunOptions &options) {
	return Simulation(settings, options).Run();
}

} // namespace sim
} // namespace quack
