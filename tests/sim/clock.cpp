#include "sim/clock.hpp"

#include <algorithm>

#include "quack/common/check.hpp"

namespace quack {
namespace sim {

namespace {

constexpr int64_t PPM = 1000 * 1000;

struct Later {
	bool operator()(const SimEvent &a, const SimEvent &b) const {
		return a.at != b.at ? a.at > b.at : a.seq > b.seq;
	}
};

} // namespace

const char *EventKindName(EventKind kind) {
	static const char *const names[] = {"tick",
	                                    "deliver",
	                                    "sync_done",
	                                    "apply_done",
	                                    "beat_tick",
	                                    "beat",
	                                    "unreachable",
	                                    "checkpoint_begin",
	                                    "checkpoint_durable",
	                                    "snapshot_call",
	                                    "snapshot_timeout",
	                                    "snapshot_retry",
	                                    "snapshot_give_up",
	                                    "snapshot_durable",
	                                    "restart",
	                                    "latched",
	                                    "early_answer",
	                                    "client_wake",
	                                    "client_request",
	                                    "op_timeout",
	                                    "nemesis",
	                                    "leader_strike",
	                                    "sync_strike",
	                                    "transfer_strike",
	                                    "lease_attack",
	                                    "forced_campaign",
	                                    "lease_read",
	                                    "nemesis_end",
	                                    "heal",
	                                    "progress_check"};
	return names[static_cast<size_t>(kind)];
}

void EventQueue::Push(MonotonicNs delay, EventKind kind, uint16_t node, uint32_t life, uint64_t arg) {
	QUACK_CHECK(delay >= 0, "an event cannot lie in the past");
	SimEvent event;
	event.at = now + delay;
	event.seq = next_seq++;
	event.arg = arg;
	event.life = life;
	event.node = node;
	event.kind = kind;
	heap.push_back(event);
	std::push_heap(heap.begin(), heap.end(), Later());
}

SimEvent EventQueue::Pop() {
	QUACK_CHECK(!heap.empty(), "pop from an empty event queue");
	std::pop_heap(heap.begin(), heap.end(), Later());
	SimEvent event = heap.back();
	heap.pop_back();
	QUACK_CHECK(event.at >= now, "virtual time cannot go back");
	now = event.at;
	return event;
}

void EventQueue::Defer(SimEvent event, MonotonicNs at) {
	event.at = std::max(at, now);
	event.seq = next_seq++;
	heap.push_back(event);
	std::push_heap(heap.begin(), heap.end(), Later());
}

void NodeClock::Reset(MonotonicNs true_now, MonotonicNs local_origin, int32_t rate_ppm) {
	base_true = true_now;
	base_local = local_origin;
	rate = rate_ppm;
}

void NodeClock::SetRate(MonotonicNs true_now, int32_t rate_ppm) {
	base_local = Local(true_now);
	base_true = true_now;
	rate = rate_ppm;
}

MonotonicNs NodeClock::Local(MonotonicNs true_now) const {
	MonotonicNs elapsed = true_now - base_true;
	return base_local + elapsed + elapsed / PPM * rate + elapsed % PPM * rate / PPM;
}

MonotonicNs NodeClock::DelayUntil(MonotonicNs true_now, MonotonicNs local) const {
	MonotonicNs missing = local - Local(true_now);
	if (missing <= 0) {
		return 0;
	}
	MonotonicNs delay = missing - missing / PPM * rate;
	// The linear guess is off by a second-order term; walk to the exact point.
	while (Local(true_now + delay) < local) {
		delay += std::max<MonotonicNs>(1, local - Local(true_now + delay));
	}
	return delay;
}

} // namespace sim
} // namespace quack
