//! The leader's view of one other node. Plain state; decisions are in replication.cpp.
#pragma once

#include <deque>

#include "quack/raft/raft.hpp"

namespace quack {
namespace raft {

//! Append messages sent in Replicate state and not yet acknowledged, oldest first. Bounded by count and by bytes.
class Inflights {
public:
	//! `last_index`: of the message's last entry; larger than that of every earlier one.
	void Add(LogIndex last_index, size_t bytes);
	//! Acknowledged: forgets every message whose last index is at most `index`.
	void FreeTo(LogIndex index);
	void Clear();
	size_t Count() const {
		return messages.size();
	}
	size_t Bytes() const {
		return total_bytes;
	}

private:
	struct Inflight {
		LogIndex last_index;
		size_t bytes;
	};
	std::deque<Inflight> messages;
	size_t total_bytes = 0;
};

struct Progress {
	using State = ProgressStatus::State;

	//! Probe: at most one append under way, `next` is a guess. Replicate: optimistic pipelining. Snapshot: nothing is
	//! sent until the follower says what it installed.
	State state = State::Probe;
	//! Known durable there and equal to our log. match < next always.
	LogIndex match = 0;
	LogIndex next = 1;
	//! Probe only: the probe is out; wait for its answer or a heartbeat response.
	bool probe_sent = false;
	//! Newest heartbeat round when the probe left.
	uint64_t probe_round = 0;
	//! Number of the present run of appends, stamped on each and echoed in its answer. It moves on whenever appends
	//! under way are forgotten: their late answers still raise `match`, but must not cause sends, or every reordered
	//! message would be answered by a window of new ones.
	uint64_t flow = 0;
	//! Snapshot only: position asked for.
	LogIndex snapshot_index = 0;
	//! When a SnapshotRequest last left; the pace of repeats. INT64_MIN = never.
	MonotonicNs snapshot_sent_at = INT64_MIN;
	//! Highest commit index the follower will know when it has processed all we sent.
	LogIndex commit_sent = 0;
	//! Last heartbeat round acknowledged and when it was sent. INT64_MIN = none in this term.
	uint64_t round_acked = 0;
	MonotonicNs round_sent_at = INT64_MIN;
	//! Receipt of the last message of this term.
	MonotonicNs last_contact = 0;
	uint32_t election_priority = 100;
	//! Removed by a change that has not committed yet: still gets the log, so that it learns of its removal.
	bool departing = false;
	//! Newest heartbeat round that it answered by going quiet; 0 = none in this term.
	uint64_t quiet_acked = 0;
	Inflights inflights;

	void BecomeProbe(LogIndex next_index);
	void BecomeReplicate();
	void BecomeSnapshot(LogIndex index, MonotonicNs now);
	//! Raises match; true when it moved.
	bool UpdateMatch(LogIndex index);
};

} // namespace raft
} // namespace quack
