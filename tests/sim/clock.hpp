//! Virtual time: the queue of everything that will happen, and the drifting clock of each node.
#pragma once

#include <vector>

#include "quack/common/clock.hpp"

namespace quack {
namespace sim {

enum class EventKind : uint8_t {
	Tick,              //! node, arg = tick generation
	Deliver,           //! node, arg = index into the network's message pool
	SyncDone,          //! node, arg = sequence number of the last covered write
	ApplyDone,         //! node
	BeatTick,          //! node: looks who is silent, sends beats
	Beat,              //! node, arg = who is alive
	Unreachable,       //! node, arg = peer slot
	CheckpointBegin,   //! node
	CheckpointDurable, //! node
	SnapshotCall,      //! node, arg = index into the calls
	SnapshotTimeout,   //! node, arg = number of the call
	SnapshotRetry,     //! node, arg = number of the call that failed
	SnapshotGiveUp,    //! node, arg = number of the call that failed
	SnapshotDurable,   //! node
	Restart,           //! node
	Latched,           //! node: it stopped by itself
	EarlyAnswer,       //! node, arg = as SyncDone; a sabotaged driver only
	ClientWake,        //! arg = client
	ClientRequest,     //! node, arg = first operation of the batch
	OpTimeout,         //! arg = operation
	Nemesis,           //! arg = fault kind
	LeaderStrike,      //! node
	SyncStrike,        //! node
	TransferStrike,    //! node: sends or receives an image
	LeaseAttack,       //! node = the leader, arg = bit mask of the slots it still hears
	ForcedCampaign,    //! node, arg = how many more
	LeaseRead,         //! node = the leader, arg = how many more
	NemesisEnd,        //! arg = fault kind, node
	Heal,
	ProgressCheck,
};

const char *EventKindName(EventKind kind);

struct SimEvent {
	MonotonicNs at = 0;
	//! Unique; breaks ties, so that equal times have one order.
	uint64_t seq = 0;
	uint64_t arg = 0;
	//! Life of the node the event is meant for; a crash makes older events void. 0 = any life.
	uint32_t life = 0;
	uint16_t node = 0;
	EventKind kind = EventKind::Tick;
};

class EventQueue {
public:
	MonotonicNs Now() const {
		return now;
	}
	bool Empty() const {
		return heap.empty();
	}
	//! `delay` >= 0 from now.
	void Push(MonotonicNs delay, EventKind kind, uint16_t node, uint32_t life, uint64_t arg);
	//! Takes the earliest event and moves time to it.
	SimEvent Pop();
	//! Puts a popped event back for a later time; order among the events put back to one time is kept.
	void Defer(SimEvent event, MonotonicNs at);

private:
	std::vector<SimEvent> heap;
	MonotonicNs now = 0;
	uint64_t next_seq = 1;
};

//! A monotonic clock whose rate differs from true time by rate_ppm. Never goes back; the origin is arbitrary.
class NodeClock {
public:
	void Reset(MonotonicNs true_now, MonotonicNs local_origin, int32_t rate_ppm);
	void SetRate(MonotonicNs true_now, int32_t rate_ppm);
	MonotonicNs Local(MonotonicNs true_now) const;
	//! True time to wait from true_now until the clock shows at least `local`; 0 when it already does.
	MonotonicNs DelayUntil(MonotonicNs true_now, MonotonicNs local) const;

private:
	MonotonicNs base_true = 0;
	MonotonicNs base_local = 0;
	int64_t rate = 0;
};

} // namespace sim
} // namespace quack
