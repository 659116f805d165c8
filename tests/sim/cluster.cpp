#include "sim/cluster.hpp"

#include <algorithm>

#include "quack/common/check.hpp"
#include "sim/workload.hpp"

namespace quack {
namespace sim {

Cluster::Cluster(World &world_p) : world(world_p), prng(world_p.settings.seed ^ 0x636c757300000003ULL) {
	const Settings &s = world.settings;
	raft::Membership initial;
	for (uint32_t slot = 0; slot < s.voter_count + s.learner_count; slot++) {
		(slot < s.voter_count ? initial.voters : initial.learners).push_back(MakeNodeId(slot, 0));
	}
	committed_membership = initial;
	for (uint32_t slot = 0; slot < s.SlotCount(); slot++) {
		nodes.push_back(std::make_unique<SimNode>(world, *this, slot, initial));
	}
}

void Cluster::StartAll() {
	for (auto &node : nodes) {
		node->Start();
	}
}

SimNode *Cluster::Find(raft::NodeId id) {
	SimNode &node = *nodes[SlotOf(id)];
	return node.Id() == id ? &node : nullptr;
}

SimNode *Cluster::CurrentLeader() {
	SimNode *found = nullptr;
	for (auto &node : nodes) {
		bool leads = node->IsAlive() && node->Role() == raft::Role::Leader;
		if (leads && (!found || node->Term() > found->Term())) {
			found = node.get();
		}
	}
	return found;
}

void Cluster::Handle(const SimEvent &event) {
	switch (event.kind) {
	case EventKind::Deliver:
		DeliverMessage(event);
		return;
	case EventKind::SnapshotCall:
		DeliverCall(event);
		return;
	case EventKind::Beat:
		DeliverBeat(event);
		return;
	default:
		break;
	}
	SimNode &node = *nodes[event.node];
	if (!node.IsAlive() || (event.life != 0 && event.life != node.Life())) {
		return;
	}
	if (node.IsPaused()) {
		world.queue.Defer(event, node.PausedUntil());
		return;
	}
	node.Handle(event);
}

void Cluster::DeliverMessage(const SimEvent &event) {
	SimNode &node = *nodes[event.node];
	if (!node.IsAlive()) {
		world.network.Drop(event.arg);
		return;
	}
	if (node.IsPaused()) {
		world.queue.Defer(event, node.PausedUntil());
		return;
	}
	raft::Message message;
	if (world.network.Take(event.arg, message) && message.to == node.Id()) {
		node.Deliver(std::move(message));
	}
}

void Cluster::OnFirstCommit(SimNode &node, raft::Term term, raft::LogIndex commit_index,
                            const raft::Membership &before) {
	auto &ledger = world.leader_completeness;
	const LogImage &log = node.Disk().Written();
	if (world.ChecksAll()) {
		ledger.OnLeaderCommit(node.Id(), term, commit_index, log.TermAt(commit_index).value_or(0));
	}
	for (auto index = ledger.CommitIndex() + 1; index <= commit_index; index++) {
		if (index <= log.base.index || index > log.LastIndex()) {
			world.sink.Report("leader_completeness", "leader " + std::to_string(node.Id()) + " commits index " +
			                                             std::to_string(index) + ", which its log does not hold");
			return;
		}
		const raft::Entry &entry = log.entries[index - log.base.index - 1];
		ledger.OnFirstCommit(index, entry.term, term);
		world.coverage.commits++;
		if (entry.type == raft::EntryType::Membership) {
			world.coverage.memberships_committed++;
			committed_membership = raft::DecodeMembership(*entry.payload).Value();
		}
		if (world.ChecksAll()) {
			world.durability.OnFirstCommit(index, entry.term, {before, node.MembershipInForce()},
			                               [this](raft::NodeId id) { return SyncedLog(id); });
		}
	}
	for (auto &other : nodes) {
		if (other->IsAlive() && other->Role() == raft::Role::Leader && other->Term() > term) {
			ledger.OnLeader(other->Id(), other->Term(), other->Disk().Written());
		}
	}
}

const LogImage *Cluster::SyncedLog(raft::NodeId id) {
	SimNode *node = Find(id);
	if (node) {
		return &node->Disk().Synced();
	}
	auto lost = lost_disks.find(id);
	return lost == lost_disks.end() ? nullptr : &lost->second;
}

void Cluster::ReplaceDisk(SimNode &node) {
	lost_disks[node.Id()] = node.Disk().Synced();
	auto old_id = node.Id();
	node.ReplaceIdentity();
	world.coverage.disks_replaced++;
	world.trace.Print("%10.3f  node %llu has a damaged log and comes back empty as node %llu",
	                  static_cast<double>(world.queue.Now()) / NS_PER_MS, static_cast<unsigned long long>(old_id),
	                  static_cast<unsigned long long>(node.Id()));
}

void Cluster::OnCall(SnapshotCall call) {
	uint32_t from = SlotOf(call.from);
	uint32_t to = SlotOf(call.to);
	calls.push_back(std::move(call));
	world.network.SendOther(EventKind::SnapshotCall, from, to, calls.size() - 1);
}

void Cluster::OnPowerLost(SimNode &node) {
	// Often enough a moment later: what matters is the state of its disk.
	auto downtime = prng.Below(static_cast<uint64_t>(world.settings.downtime_max) + 1);
	world.queue.Push(static_cast<MonotonicNs>(downtime), EventKind::Restart, static_cast<uint16_t>(node.Slot()), 0, 0);
}

void Cluster::DeliverCall(const SimEvent &event) {
	SimNode &node = *nodes[event.node];
	if (!node.IsAlive()) {
		return;
	}
	if (node.IsPaused()) {
		world.queue.Defer(event, node.PausedUntil());
		return;
	}
	// A copy: what it causes may add calls.
	SnapshotCall call = calls[event.arg];
	if (node.Id() == call.to && world.network.IsOpen(SlotOf(call.from), event.node)) {
		node.TakeCall(call);
	}
}

void Cluster::DeliverBeat(const SimEvent &event) {
	SimNode &node = *nodes[event.node];
	if (node.IsAlive() && node.IsPaused()) {
		world.queue.Defer(event, node.PausedUntil());
	} else if (node.IsAlive() && world.network.IsOpen(SlotOf(event.arg), event.node)) {
		node.HearBeat(event.arg);
	}
}

void Cluster::OnWriteRefused(SimNode &node, uint32_t op, const Status &status) {
	workload->OnWriteRefused(node, op, status);
}

void Cluster::OnWriteApplied(SimNode &node, uint32_t op, const CommandOutcome &outcome) {
	workload->OnWriteApplied(node, op, outcome);
}

void Cluster::OnReadRefused(SimNode &node, uint32_t op, const Status &status) {
	workload->OnReadRefused(node, op, status);
}

void Cluster::OnReadReady(SimNode &node, uint32_t op) {
	workload->OnReadReady(node, op);
}

} // namespace sim
} // namespace quack
