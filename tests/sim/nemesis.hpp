//! The source of faults and of an operator's wishes (membership, transfer, checkpoints), at random times.
#pragma once

#include <array>

#include "sim/cluster.hpp"
#include "sim/workload.hpp"

namespace quack {
namespace sim {

class Nemesis {
public:
	Nemesis(World &world, Cluster &cluster, Workload &workload);

	void Start();
	//! Events of faults, from Nemesis to LeaseRead, and Restart.
	void Handle(const SimEvent &event);
	//! Ends every fault: links open, disks fast, nobody paused, everybody running. Nothing new from now on.
	void Heal();
	//! Puts nodes with new disks into the places of the old ones, when the leader still knows those.
	void RepairMembership();

private:
	enum class Fault : uint8_t {
		Partition,
		Crash,
		SlowDisk,
		Drift,
		Pause,
		Membership,
		Transfer,
		Campaign,
		Checkpoint,
		Lease,
		Rot,
		Repair,
	};

	MonotonicNs IntervalOf(Fault fault) const;
	void ScheduleNext(Fault fault);
	void Strike(Fault fault);
	void EndFault(const SimEvent &event);
	void StrikeLeader(SimNode &node);
	void BeginLeaseAttack();
	void FinishLeaseAttack(SimNode &leader, uint64_t quorum_mask);
	//! The current partition ends after `delay`, unless another replaces it.
	void EndPartitionAfter(MonotonicNs delay);
	void CrashSome();
	void CrashOne(SimNode &node, CrashKind kind, MonotonicNs downtime_max);
	void ChangeMembership();
	//! A crashed node that no configuration names any more comes back under a new identity and with an empty disk.
	void ReplaceIfUnused(SimNode &node);
	bool IsNamedAnywhere(raft::NodeId id);
	//! A damaged log may take this node away: no other one is away for good, and the rest is a majority.
	bool MayLoseDisk(const SimNode &node);
	void Restart(SimNode &node);
	//! A random running node; the leader more often than others. Null when all are down.
	SimNode *Victim(uint32_t leader_percent);
	MonotonicNs UpTo(MonotonicNs limit);

	World &world;
	Cluster &cluster;
	Workload &workload;
	Prng prng;
	bool healed = false;
	uint64_t partition_generation = 0;
	//! When a change of membership last named the slot's node.
	std::array<MonotonicNs, SLOTS_MAX> last_named {};
	uint64_t next_change_request = MEMBERSHIP_REQUESTS;
};

} // namespace sim
} // namespace quack
