//! Election safety (paper, figure 3): at most one leader per term. Also its two causes: a voter grants at most one
//! candidate per term, and a term or vote once persisted is never taken back.
#pragma once

#include <map>

#include "quack/raft/types.hpp"
#include "sim/checkers/violation.hpp"

namespace quack {
namespace sim {

class ElectionSafetyChecker {
public:
	explicit ElectionSafetyChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	//! `life` counts restarts: even the same node may lead a term only in one life.
	void OnLeader(raft::NodeId node, uint32_t life, raft::Term term);
	//! A granted vote (no pre-vote) leaves the voter.
	void OnVoteGranted(raft::NodeId voter, raft::Term term, raft::NodeId candidate);
	void OnHardState(raft::NodeId node, const raft::HardState &before, const raft::HardState &after);
	size_t TermsWithLeader() const {
		return leaders.size();
	}

private:
	ViolationSink &sink;
	std::map<raft::Term, std::pair<raft::NodeId, uint32_t>> leaders;
	std::map<std::pair<raft::NodeId, raft::Term>, raft::NodeId> votes;
};

} // namespace sim
} // namespace quack
