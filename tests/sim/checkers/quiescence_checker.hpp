//! A group may be quiet only when nothing is missing anywhere, and only while somebody is there to wake it: its
//! leader's process runs, or has not been gone for long.
#pragma once

#include <map>

#include "sim/checkers/violation.hpp"
#include "sim/log_image.hpp"

namespace quack {
namespace sim {

class QuiescenceChecker {
public:
	//! `patience`: for how long a node may go on counting on a leader that is gone.
	QuiescenceChecker(ViolationSink &sink_p, MonotonicNs patience_p) : sink(sink_p), patience(patience_p) {
	}
	void OnStart(raft::NodeId node);
	void OnCrash(raft::NodeId node, MonotonicNs now);
	//! A leader whose log ends at (index, term) has gone quiet; what is synced of a member's log, null = nothing is.
	void OnLeaderQuiet(raft::NodeId leader, raft::LogIndex index, raft::Term term, raft::NodeId member,
	                   const LogImage *synced);
	//! The node has looked who is silent and stays quiet. `awake_since`: it ran all the time from then on.
	void OnStaysQuiet(raft::NodeId node, raft::NodeId leader, MonotonicNs awake_since, MonotonicNs now);

private:
	ViolationSink &sink;
	const MonotonicNs patience;
	std::map<raft::NodeId, MonotonicNs> gone_since;
};

} // namespace sim
} // namespace quack
