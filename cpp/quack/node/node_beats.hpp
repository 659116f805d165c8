//! Signs of life between nodes, one for all groups: what lets a quiet group know that its leader's node is gone.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "quack/raft/types.hpp"

namespace quack {
namespace node {

//! Decides to whom a beat is due and who is silent. Whatever comes from a node counts as a beat, so a busy node sends
//! none. No clock, no thread: time is an argument, monotonic, of this node.
class NodeBeats {
public:
	//! A node that nothing came from for an election timeout is silent. One that nothing was sent to for a quarter of
	//! it gets a beat, at times that all nodes share: then this one wakes up once for all.
	explicit NodeBeats(MonotonicNs election_timeout)
	    : interval(std::max<MonotonicNs>(election_timeout / 4, 1)), silence(election_timeout) {
	}

	//! All other members of any group here. One that is new counts as heard of now.
	void Watch(const std::set<raft::NodeId> &members, MonotonicNs now);
	//! Both ignore nodes that are not watched.
	void Heard(raft::NodeId node, MonotonicNs now);
	void Sent(raft::NodeId node, MonotonicNs now);
	//! Who is to get a beat now; they count as sent.
	std::vector<raft::NodeId> TakeDue(MonotonicNs now);
	//! Silent nodes, and when something last came from them.
	std::map<raft::NodeId, MonotonicNs> Silent(MonotonicNs now) const;
	//! When either changes by itself next; INT64_MAX = nobody is watched.
	MonotonicNs NextDeadline(MonotonicNs now) const;

private:
	MonotonicNs NextDue(MonotonicNs now) const {
		return (now / interval + 1) * interval;
	}

	struct Node {
		MonotonicNs heard_at;
		MonotonicNs due_at;
	};

	const MonotonicNs interval;
	const MonotonicNs silence;
	std::map<raft::NodeId, Node> nodes;
};

} // namespace node
} // namespace quack
