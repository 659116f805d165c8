//! The simulated network: loses, delays, reorders, duplicates and partitions messages. It never corrupts them (the real
//! transport authenticates every byte) and never invents a sender.
#pragma once

#include <array>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/raft/message.hpp"
#include "sim/clock.hpp"
#include "sim/settings.hpp"

namespace quack {
namespace sim {

//! A node's identity is 100 * incarnation + slot + 1: a machine that lost its disk comes back under a new one.
inline uint32_t SlotOf(raft::NodeId node) {
	return static_cast<uint32_t>(node % 100 - 1);
}
inline raft::NodeId MakeNodeId(uint32_t slot, uint32_t incarnation) {
	return 100 * static_cast<raft::NodeId>(incarnation) + slot + 1;
}

struct NetworkCounters {
	uint64_t sent = 0;
	uint64_t lost = 0;
	uint64_t blocked = 0;
	uint64_t duplicated = 0;
	uint64_t stragglers = 0;
};

class Network {
public:
	Network(const Settings &settings, EventQueue &queue);

	//! Schedules zero or more Deliver events at the addressed slot.
	void Send(raft::Message message, uint32_t from_life);
	//! Schedules zero or more events of `kind` at the addressed slot, with the same faults; who handles them asks
	//! IsOpen.
	void SendOther(EventKind kind, uint32_t from, uint32_t to, uint64_t arg);
	//! Takes a delivered message out of the pool; nothing when a partition cuts the link at this moment.
	bool Take(uint64_t pool_index, raft::Message &out);
	//! Frees a message whose receiver is not there.
	void Drop(uint64_t pool_index);

	//! False = the one-way link is cut.
	bool IsOpen(uint32_t from, uint32_t to) const {
		return !cut[from][to];
	}
	//! Replaces the current partition by a random one.
	void Partition(uint32_t slot_count);
	//! Replaces the current partition: the slot hears and reaches only the slots of the bit mask.
	void Isolate(uint32_t slot, uint64_t except_mask = 0);
	void HealPartition();
	//! No more loss, duplicates or long delays from now on; what is in flight stays.
	void Calm();
	//! One fair transfer delay.
	MonotonicNs Delay();
	const NetworkCounters &Counters() const {
		return counters;
	}

private:
	void Schedule(raft::Message message, uint32_t from, uint32_t to, MonotonicNs delay);
	void CutBetween(uint32_t a, uint32_t b, bool one_way);

	const Settings &settings;
	EventQueue &queue;
	Prng prng;
	bool calm = false;
	std::array<std::array<bool, SLOTS_MAX>, SLOTS_MAX> cut {};
	//! Per link: when the last message arrives, for links that keep their order.
	std::array<std::array<MonotonicNs, SLOTS_MAX>, SLOTS_MAX> last_arrival {};
	std::vector<raft::Message> pool;
	std::vector<uint64_t> free_indexes;
	NetworkCounters counters;
};

} // namespace sim
} // namespace quack
