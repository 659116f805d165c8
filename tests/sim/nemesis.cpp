#include "sim/nemesis.hpp"

#include <algorithm>

namespace quack {
namespace sim {

namespace {

bool Names(const std::vector<raft::NodeId> &list, raft::NodeId id) {
	return std::find(list.begin(), list.end(), id) != list.end();
}

bool Names(const raft::Membership &membership, raft::NodeId id) {
	return Names(membership.voters, id) || Names(membership.outgoing, id) || Names(membership.learners, id) ||
	       Names(membership.learners_next, id);
}

raft::Membership LastMembership(const LogImage &log, raft::LogIndex &since) {
	for (auto entry = log.entries.rbegin(); entry != log.entries.rend(); ++entry) {
		if (entry->type == raft::EntryType::Membership) {
			since = entry->index;
			return raft::DecodeMembership(*entry->payload).Value();
		}
	}
	since = log.base.index;
	return log.base.membership;
}

} // namespace

Nemesis::Nemesis(World &world_p, Cluster &cluster_p, Workload &workload_p)
    : world(world_p), cluster(cluster_p), workload(workload_p), prng(world_p.settings.seed ^ 0x6e656d6500000005ULL) {
}

MonotonicNs Nemesis::UpTo(MonotonicNs limit) {
	return static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(limit) + 1));
}

MonotonicNs Nemesis::IntervalOf(Fault fault) const {
	const Settings &s = world.settings;
	switch (fault) {
	case Fault::Partition:
		return s.partition_interval;
	case Fault::Crash:
		return s.crash_interval;
	case Fault::SlowDisk:
		return s.slow_disk_interval;
	case Fault::Drift:
		return s.drift_ppm == 0 ? 0 : s.drift_change_interval;
	case Fault::Pause:
		return s.pause_interval;
	case Fault::Membership:
		return s.membership_interval;
	case Fault::Transfer:
		return s.transfer_interval;
	case Fault::Campaign:
		return s.campaign_interval;
	case Fault::Checkpoint:
		return s.checkpoint_interval;
	case Fault::Lease:
		return s.lease_attack_interval;
	case Fault::Rot:
		return s.rot_interval;
	case Fault::Repair:
		return s.rot_interval != 0 || s.crash_rot_percent != 0 ? s.config.election_timeout : 0;
	}
	return 0;
}

void Nemesis::ScheduleNext(Fault fault) {
	MonotonicNs interval = IntervalOf(fault);
	if (interval != 0) {
		world.queue.Push(interval / 2 + UpTo(interval), EventKind::Nemesis, 0, 0, static_cast<uint64_t>(fault));
	}
}

void Nemesis::Start() {
	for (uint8_t fault = 0; fault <= static_cast<uint8_t>(Fault::Repair); fault++) {
		ScheduleNext(static_cast<Fault>(fault));
	}
	if (world.settings.drift_ppm == 0) {
		return;
	}
	for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
		// 47 % each way keeps the ratio of the fastest to the slowest clock within the bound.
		auto half = static_cast<int32_t>(world.settings.drift_ppm * 47 / 100);
		cluster.At(slot).SetClockRate(prng.Chance(1, 2) ? half : -half);
	}
}

void Nemesis::Handle(const SimEvent &event) {
	SimNode &node = cluster.At(event.node);
	bool same_life = node.IsAlive() && node.Life() == event.life;
	if (event.kind == EventKind::Latched && same_life) {
		CrashOne(node, CrashKind::Process, world.settings.downtime_max);
	}
	if (event.kind == EventKind::Restart && !node.IsAlive()) {
		Restart(node);
	}
	if (healed) {
		return;
	}
	switch (event.kind) {
	case EventKind::Nemesis:
		Strike(static_cast<Fault>(event.arg));
		ScheduleNext(static_cast<Fault>(event.arg));
		return;
	case EventKind::LeaderStrike:
		if (same_life && node.Role() == raft::Role::Leader) {
			StrikeLeader(node);
		}
		return;
	case EventKind::SyncStrike:
		if (same_life) {
			CrashOne(node, CrashKind::PowerLoss, std::min(world.settings.delay_max, world.settings.downtime_max));
		}
		return;
	case EventKind::TransferStrike:
		if (same_life) {
			auto lives = prng.Chance(1, 2); // the machine
			CrashOne(node, lives ? CrashKind::Process : CrashKind::PowerLoss,
			         std::min(world.settings.config.election_timeout, world.settings.downtime_max));
		}
		return;
	case EventKind::LeaseAttack:
		if (same_life && node.Role() == raft::Role::Leader) {
			FinishLeaseAttack(node, event.arg);
		}
		return;
	case EventKind::ForcedCampaign:
		if (same_life && !node.IsPaused() && node.Role() != raft::Role::Leader) {
			node.Step(raft::CampaignEvent());
		}
		if (event.arg > 0) {
			world.queue.Push(world.settings.config.election_timeout / 50, event.kind, event.node, event.life,
			                 event.arg - 1);
		}
		return;
	case EventKind::LeaseRead:
		if (same_life && event.arg > 0) {
			workload.Ask(node, OpKind::Read, 0);
			world.queue.Push(world.settings.config.election_timeout / 100, event.kind, event.node, event.life,
			                 event.arg - 1);
		}
		return;
	case EventKind::Latched:
	case EventKind::Restart:
		return;
	default:
		EndFault(event);
	}
}

void Nemesis::Restart(SimNode &node) {
	if (node.Disk().IsDamaged()) {
		cluster.ReplaceDisk(node);
	} else if (!healed) {
		ReplaceIfUnused(node);
	}
	node.Start();
}

void Nemesis::EndFault(const SimEvent &event) {
	if (static_cast<Fault>(event.arg & 0xff) == Fault::SlowDisk) {
		cluster.At(event.node).SetDiskFactor(1);
	} else if (event.arg >> 8 == partition_generation) {
		world.network.HealPartition();
		world.trace.Print("%10.3f  partition ends", static_cast<double>(world.queue.Now()) / NS_PER_MS);
	}
}

void Nemesis::StrikeLeader(SimNode &node) {
	world.coverage.leaders_struck++;
	world.network.Isolate(node.Slot());
	world.trace.Print("%10.3f  node %llu is cut off", static_cast<double>(world.queue.Now()) / NS_PER_MS,
	                  static_cast<unsigned long long>(node.Id()));
	// Long enough for the others to elect: the next strike moves the cut to the next leader.
	MonotonicNs timeout = world.settings.config.election_timeout;
	EndPartitionAfter(timeout * 2 + UpTo(timeout * 3));
}

void Nemesis::EndPartitionAfter(MonotonicNs delay) {
	world.queue.Push(delay, EventKind::NemesisEnd, 0, 0,
	                 ++partition_generation << 8 | static_cast<uint64_t>(Fault::Partition));
}

void Nemesis::BeginLeaseAttack() {
	SimNode *leader = cluster.CurrentLeader();
	if (!leader) {
		return;
	}
	world.coverage.lease_attacks++;
	const auto &voters = leader->MembershipInForce().voters;
	// With half of the voters besides itself the leader keeps its quorum, and with one less it would not.
	uint64_t quorum_mask = 0;
	size_t first = prng.Below(voters.size());
	size_t wanted = voters.size() / 2;
	SimNode *ally = nullptr;
	SimNode *rival = nullptr;
	for (size_t i = 0; i < voters.size(); i++) {
		raft::NodeId id = voters[(first + i) % voters.size()];
		SimNode *node = cluster.Find(id);
		if (!node || node == leader) {
			continue;
		}
		if (wanted > 0) {
			wanted--;
			quorum_mask |= 1ULL << SlotOf(id);
			ally = node;
		} else {
			rival = node;
		}
	}
	MonotonicNs timeout = world.settings.config.election_timeout;
	auto leader_slot = static_cast<uint16_t>(leader->Slot());
	world.trace.Print("%10.3f  lease attack on node %llu", static_cast<double>(world.queue.Now()) / NS_PER_MS,
	                  static_cast<unsigned long long>(leader->Id()));
	if (world.settings.drift_ppm != 0) {
		auto half = static_cast<int32_t>(world.settings.drift_ppm * 47 / 100);
		for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
			cluster.At(slot).SetClockRate(slot == leader->Slot() ? -half : half);
		}
	}
	if (!leader->IsPaused() && prng.Chance(1, 3)) {
		// The leader hands over, and is cut off while its successor campaigns past all promises.
		raft::TransferLeadershipEvent transfer;
		leader->Step(transfer);
		world.queue.Push(UpTo(world.settings.delay_max * 3), EventKind::LeaseAttack, leader_slot, leader->Life(), 0);
		world.queue.Push(0, EventKind::LeaseRead, leader_slot, leader->Life(), 60);
		return;
	}
	world.network.Isolate(leader_slot, quorum_mask);
	EndPartitionAfter(timeout * 4);
	if (rival && rival->IsAlive()) {
		world.queue.Push(timeout, EventKind::ForcedCampaign, static_cast<uint16_t>(rival->Slot()), rival->Life(), 150);
	}
	MonotonicNs delay = timeout + UpTo(timeout);
	if (ally && ally->IsAlive()) {
		// Its log may be the only one that is complete enough to win.
		world.queue.Push(delay, EventKind::ForcedCampaign, static_cast<uint16_t>(ally->Slot()), ally->Life(), 75);
	}
	world.queue.Push(delay, EventKind::LeaseAttack, leader_slot, leader->Life(), quorum_mask);
	world.queue.Push(delay, EventKind::LeaseRead, leader_slot, leader->Life(), 120);
}

void Nemesis::FinishLeaseAttack(SimNode &leader, uint64_t quorum_mask) {
	bool restart = quorum_mask != 0 && prng.Chance(1, 2);
	if (!restart || prng.Chance(1, 2)) {
		world.network.Isolate(leader.Slot());
		EndPartitionAfter(world.settings.config.election_timeout * 2);
	}
	for (uint32_t slot = 0; restart && slot < cluster.SlotCount(); slot++) {
		if ((quorum_mask >> slot & 1) != 0 && cluster.At(slot).IsAlive()) {
			CrashOne(cluster.At(slot), CrashKind::Process, world.settings.config.election_timeout / 20);
		}
	}
}

SimNode *Nemesis::Victim(uint32_t leader_percent) {
	SimNode *leader = cluster.CurrentLeader();
	if (leader && prng.Chance(leader_percent, 100)) {
		return leader;
	}
	SimNode &node = cluster.At(static_cast<uint32_t>(prng.Below(cluster.SlotCount())));
	return node.IsAlive() ? &node : nullptr;
}

void Nemesis::Strike(Fault fault) {
	const Settings &s = world.settings;
	SimNode *node = Victim(40);
	double now_ms = static_cast<double>(world.queue.Now()) / NS_PER_MS;
	switch (fault) {
	case Fault::Partition:
		world.coverage.partitions++;
		world.network.Partition(s.SlotCount());
		world.trace.Print("%10.3f  partition", now_ms);
		EndPartitionAfter(1 + UpTo(s.partition_duration_max));
		return;
	case Fault::Crash:
		CrashSome();
		return;
	case Fault::Membership:
		ChangeMembership();
		return;
	case Fault::Lease:
		BeginLeaseAttack();
		return;
	case Fault::Repair:
		RepairMembership();
		return;
	default:
		break;
	}
	if (!node || node->IsPaused()) {
		return;
	}
	auto id = static_cast<unsigned long long>(node->Id());
	if (fault == Fault::SlowDisk) {
		world.coverage.slow_disks++;
		node->SetDiskFactor(s.slow_disk_factor);
		world.queue.Push(1 + UpTo(s.slow_disk_duration_max), EventKind::NemesisEnd, static_cast<uint16_t>(node->Slot()),
		                 0, static_cast<uint64_t>(fault));
	} else if (fault == Fault::Drift) {
		auto half = static_cast<int32_t>(s.drift_ppm * 47 / 100);
		node->SetClockRate(static_cast<int32_t>(prng.Below(static_cast<uint64_t>(2 * half + 1))) - half);
	} else if (fault == Fault::Pause) {
		world.coverage.pauses++;
		MonotonicNs pause = 1 + UpTo(s.pause_max);
		node->PauseUntil(world.queue.Now() + pause);
		world.trace.Print("%10.3f  node %llu pauses for %.3f ms", now_ms, id, static_cast<double>(pause) / NS_PER_MS);
	} else if (fault == Fault::Transfer) {
		world.coverage.transfers_asked++;
		raft::TransferLeadershipEvent transfer;
		auto target = static_cast<uint32_t>(prng.Below(cluster.SlotCount()));
		transfer.target = prng.Chance(1, 3) ? raft::NO_NODE : cluster.At(target).Id();
		world.trace.Print("%10.3f  node %llu is asked to transfer to %llu", now_ms, id,
		                  static_cast<unsigned long long>(transfer.target));
		node->Step(transfer);
	} else if (fault == Fault::Campaign) {
		world.trace.Print("%10.3f  node %llu is asked to campaign", now_ms, id);
		node->Step(raft::CampaignEvent());
	} else if (fault == Fault::Rot) {
		if (MayLoseDisk(*node) && node->Rot()) {
			world.trace.Print("%10.3f  node %llu: a bit of its log flips", now_ms, id);
		}
	} else if (fault == Fault::Checkpoint) {
		world.queue.Push(0, EventKind::CheckpointBegin, static_cast<uint16_t>(node->Slot()), node->Life(), 0);
	}
}

void Nemesis::CrashSome() {
	CrashKind kind = prng.Chance(world.settings.process_crash_percent, 100) ? CrashKind::Process : CrashKind::PowerLoss;
	if (prng.Chance(1, 6)) {
		// The whole site loses power.
		for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
			if (cluster.At(slot).IsAlive()) {
				CrashOne(cluster.At(slot), kind, world.settings.downtime_max);
			}
		}
		return;
	}
	if (SimNode *node = Victim(40)) {
		CrashOne(*node, kind, world.settings.downtime_max);
	}
}

void Nemesis::CrashOne(SimNode &node, CrashKind kind, MonotonicNs downtime_max) {
	auto flip = BitFlip::None;
	if (!healed && prng.Chance(world.settings.crash_rot_percent, 100) && MayLoseDisk(node)) {
		flip = BitFlip::Acknowledged;
	} else if (kind == CrashKind::PowerLoss && prng.Chance(world.settings.unsynced_flip_percent, 100)) {
		flip = BitFlip::Unsynced;
	}
	node.Crash(kind, flip);
	world.queue.Push(1 + UpTo(downtime_max), EventKind::Restart, static_cast<uint16_t>(node.Slot()), 0, 0);
}

bool Nemesis::IsNamedAnywhere(raft::NodeId id) {
	if (Names(cluster.CommittedMembership(), id)) {
		return true;
	}
	for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
		SimNode &node = cluster.At(slot);
		if (node.Id() == id) {
			continue;
		}
		// In force on the synced log, or possibly in force after any loss of its unsynced end.
		raft::LogIndex since = 0;
		if (Names(LastMembership(node.Disk().Synced(), since), id)) {
			return true;
		}
		for (const auto &entry : node.Disk().Written().entries) {
			if (entry.index > since && entry.type == raft::EntryType::Membership &&
			    Names(raft::DecodeMembership(*entry.payload).Value(), id)) {
				return true;
			}
		}
	}
	return false;
}

void Nemesis::ReplaceIfUnused(SimNode &node) {
	// Messages under way must not bring a configuration that names it either.
	MonotonicNs since_named = world.queue.Now() - last_named[node.Slot()];
	bool forgotten = since_named > world.settings.straggler_delay_max + 4 * world.settings.config.election_timeout;
	if (world.settings.membership_interval == 0 || !forgotten || IsNamedAnywhere(node.Id())) {
		return;
	}
	node.ReplaceIdentity();
	world.trace.Print("%10.3f  slot %u comes back empty as node %llu",
	                  static_cast<double>(world.queue.Now()) / NS_PER_MS, node.Slot(),
	                  static_cast<unsigned long long>(node.Id()));
}

bool Nemesis::MayLoseDisk(const SimNode &node) {
	const auto &members = cluster.CommittedMembership();
	if (members.IsJoint()) {
		return false;
	}
	for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
		if (cluster.At(slot).Disk().IsRotten()) {
			return false;
		}
	}
	for (const auto *list : {&members.voters, &members.learners}) {
		for (auto id : *list) {
			if (!cluster.Find(id)) {
				return false;
			}
		}
	}
	return !Names(members.voters, node.Id()) || members.voters.size() >= 3;
}

void Nemesis::RepairMembership() {
	SimNode *leader = cluster.CurrentLeader();
	if (!leader || leader->IsPaused() || leader->MembershipInForce().IsJoint()) {
		return;
	}
	raft::ChangeMembershipEvent change;
	change.request = next_change_request++;
	change.voters = leader->MembershipInForce().voters;
	change.learners = leader->MembershipInForce().learners;
	bool changes = false;
	for (auto *list : {&change.voters, &change.learners}) {
		for (auto &id : *list) {
			changes = changes || !cluster.Find(id);
			id = cluster.At(SlotOf(id)).Id();
		}
	}
	if (changes) {
		leader->Step(std::move(change));
	}
}

void Nemesis::ChangeMembership() {
	SimNode *leader = cluster.CurrentLeader();
	if (!leader || leader->IsPaused()) {
		return;
	}
	raft::ChangeMembershipEvent change;
	change.request = next_change_request++;
	const auto &now = leader->MembershipInForce();
	uint64_t style = prng.Below(3);
	for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
		raft::NodeId id = cluster.At(slot).Id();
		bool votes = Names(now.voters, id);
		bool learns = Names(now.learners, id);
		// Style 0 flips about one node, 1 draws everything anew, 2 swaps voters and learners.
		bool touch = style == 0 ? prng.Chance(1, cluster.SlotCount()) : style == 1;
		if (style == 2 && (votes || learns) && prng.Chance(1, 3)) {
			std::swap(votes, learns);
		} else if (touch) {
			votes = style == 0 ? !votes : prng.Chance(3, 5);
			learns = !votes && prng.Chance(1, 2);
		}
		last_named[slot] = votes || learns ? world.queue.Now() : last_named[slot];
		if (votes) {
			change.voters.push_back(id);
		} else if (learns) {
			change.learners.push_back(id);
		}
	}
	bool names_zero = world.settings.zero_priority_slot != NO_SLOT &&
	                  Names(change.voters, cluster.At(world.settings.zero_priority_slot).Id());
	if (change.voters.empty() || (names_zero && change.voters.size() < 3)) {
		return;
	}
	leader->Step(std::move(change));
}

void Nemesis::Heal() {
	healed = true;
	world.is_healed = true;
	world.network.Calm();
	for (uint32_t slot = 0; slot < cluster.SlotCount(); slot++) {
		SimNode &node = cluster.At(slot);
		node.PauseUntil(0);
		node.SetDiskFactor(1);
		node.KeepPower();
		if (!node.IsAlive()) {
			Restart(node);
		}
	}
}

} // namespace sim
} // namespace quack
