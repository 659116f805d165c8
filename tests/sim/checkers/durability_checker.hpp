//! Durability of promises: what a vote or an acknowledgement says is on that node's synced disk when it leaves (paper,
//! figure 2), and what is first called committed is on the synced disks of a quorum, of both majorities while joint.
#pragma once

#include <functional>

#include "quack/raft/message.hpp"
#include "sim/checkers/violation.hpp"
#include "sim/log_image.hpp"

namespace quack {
namespace sim {

class DurabilityChecker {
public:
	//! Synced log of a node; null when that identity's disk is gone.
	using SyncedLog = std::function<const LogImage *(raft::NodeId node)>;

	explicit DurabilityChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	void OnSend(const raft::Message &message, const LogImage &synced);
	//! `memberships`: the configurations that may have decided; one of them has to hold the entry.
	void OnFirstCommit(raft::LogIndex index, raft::Term term, const std::vector<raft::Membership> &memberships,
	                   const SyncedLog &synced_log);

private:
	ViolationSink &sink;
};

} // namespace sim
} // namespace quack
