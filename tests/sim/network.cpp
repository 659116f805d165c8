#include "sim/network.hpp"

#include <algorithm>

#include "quack/common/check.hpp"

namespace quack {
namespace sim {

Network::Network(const Settings &settings_p, EventQueue &queue_p)
    : settings(settings_p), queue(queue_p), prng(settings_p.seed ^ 0x6e65740000000002ULL) {
}

MonotonicNs Network::Delay() {
	auto spread = static_cast<uint64_t>(settings.delay_max - settings.delay_min);
	return settings.delay_min + static_cast<MonotonicNs>(prng.Below(spread + 1));
}

void Network::Send(raft::Message message, uint32_t from_life) {
	uint32_t from = SlotOf(message.from);
	uint32_t to = SlotOf(message.to);
	QUACK_CHECK(from < settings.SlotCount() && to < settings.SlotCount(), "message between unknown slots");
	counters.sent++;
	bool lost = !calm && prng.Chance(settings.loss_permille, 1000);
	if (cut[from][to] || lost) {
		counters.lost += lost ? 1 : 0;
		counters.blocked += cut[from][to] ? 1 : 0;
		if (prng.Chance(settings.unreachable_permille, 1000)) {
			queue.Push(Delay(), EventKind::Unreachable, static_cast<uint16_t>(from), from_life, message.to);
		}
		return;
	}
	MonotonicNs delay = Delay();
	if (!calm && prng.Chance(settings.straggler_permille, 1000)) {
		counters.stragglers++;
		delay += static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(settings.straggler_delay_max)));
	}
	if (settings.fifo_links) {
		MonotonicNs arrival = std::max(queue.Now() + delay, last_arrival[from][to]);
		last_arrival[from][to] = arrival;
		delay = arrival - queue.Now();
	} else if (!calm && prng.Chance(settings.duplicate_permille, 1000)) {
		counters.duplicated++;
		Schedule(message, from, to, delay + Delay() * static_cast<MonotonicNs>(1 + prng.Below(20)));
	}
	Schedule(std::move(message), from, to, delay);
}

void Network::SendOther(EventKind kind, uint32_t from, uint32_t to, uint64_t arg) {
	if (cut[from][to] || (!calm && prng.Chance(settings.loss_permille, 1000))) {
		return;
	}
	MonotonicNs delay = Delay();
	if (!calm && prng.Chance(settings.straggler_permille, 1000)) {
		delay += static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(settings.straggler_delay_max)));
	}
	if (!calm && !settings.fifo_links && prng.Chance(settings.duplicate_permille, 1000)) {
		auto late = delay + Delay() * static_cast<MonotonicNs>(1 + prng.Below(20));
		queue.Push(late, kind, static_cast<uint16_t>(to), 0, arg);
	}
	queue.Push(delay, kind, static_cast<uint16_t>(to), 0, arg);
}

void Network::Schedule(raft::Message message, uint32_t, uint32_t to, MonotonicNs delay) {
	uint64_t index;
	if (free_indexes.empty()) {
		index = pool.size();
		pool.push_back(std::move(message));
	} else {
		index = free_indexes.back();
		free_indexes.pop_back();
		pool[index] = std::move(message);
	}
	queue.Push(delay, EventKind::Deliver, static_cast<uint16_t>(to), 0, index);
}

bool Network::Take(uint64_t pool_index, raft::Message &out) {
	out = std::move(pool[pool_index]);
	free_indexes.push_back(pool_index);
	if (cut[SlotOf(out.from)][SlotOf(out.to)]) {
		counters.blocked++;
		return false;
	}
	return true;
}

void Network::Drop(uint64_t pool_index) {
	pool[pool_index] = raft::Message();
	free_indexes.push_back(pool_index);
}

void Network::CutBetween(uint32_t a, uint32_t b, bool one_way) {
	if (one_way) {
		(prng.Chance(1, 2) ? cut[a][b] : cut[b][a]) = true;
	} else {
		cut[a][b] = true;
		cut[b][a] = true;
	}
}

void Network::Partition(uint32_t slot_count) {
	HealPartition();
	bool one_way = settings.one_way_partitions && prng.Chance(1, 2);
	uint64_t shape = prng.Below(4);
	auto lone = static_cast<uint32_t>(prng.Below(slot_count));
	uint64_t side_mask = prng.Next();
	bool outwards = prng.Chance(1, 2);
	for (uint32_t a = 0; a < slot_count; a++) {
		for (uint32_t b = a + 1; b < slot_count; b++) {
			bool across = false;
			if (shape == 0) {
				// One node alone; one way = it can only speak or only hear.
				across = a == lone || b == lone;
				if (across && one_way) {
					uint32_t other = a == lone ? b : a;
					(outwards ? cut[lone][other] : cut[other][lone]) = true;
					continue;
				}
			} else if (shape == 1) {
				across = (side_mask >> a & 1) != (side_mask >> b & 1);
			} else if (shape == 2) {
				// A bridge: the lone node sees both halves, which do not see each other.
				across = a != lone && b != lone && (side_mask >> a & 1) != (side_mask >> b & 1);
			} else {
				across = prng.Chance(1, 2);
			}
			if (across) {
				CutBetween(a, b, one_way);
			}
		}
	}
}

void Network::Isolate(uint32_t slot, uint64_t except_mask) {
	HealPartition();
	for (uint32_t other = 0; other < SLOTS_MAX; other++) {
		bool across = other != slot && (except_mask >> other & 1) == 0;
		cut[slot][other] = across;
		cut[other][slot] = across;
	}
}

void Network::HealPartition() {
	for (auto &row : cut) {
		row.fill(false);
	}
}

void Network::Calm() {
	HealPartition();
	calm = true;
}

} // namespace sim
} // namespace quack
