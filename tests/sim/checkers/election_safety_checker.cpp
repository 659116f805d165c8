#include "sim/checkers/election_safety_checker.hpp"

namespace quack {
namespace sim {

void ElectionSafetyChecker::OnLeader(raft::NodeId node, uint32_t life, raft::Term term) {
	auto added = leaders.emplace(term, std::make_pair(node, life));
	const auto &known = added.first->second;
	if (!added.second && known != std::make_pair(node, life)) {
		sink.Report("election_safety", "term " + std::to_string(term) + " has two leaders: node " +
		                                   std::to_string(known.first) + " (life " + std::to_string(known.second) +
		                                   ") and node " + std::to_string(node) + " (life " + std::to_string(life) +
		                                   ")");
	}
}

void ElectionSafetyChecker::OnVoteGranted(raft::NodeId voter, raft::Term term, raft::NodeId candidate) {
	auto added = votes.emplace(std::make_pair(voter, term), candidate);
	if (!added.second && added.first->second != candidate) {
		sink.Report("election_safety", "node " + std::to_string(voter) + " voted twice in term " +
		                                   std::to_string(term) + ": for node " + std::to_string(added.first->second) +
		                                   " and for node " + std::to_string(candidate));
	}
}

void ElectionSafetyChecker::OnHardState(raft::NodeId node, const raft::HardState &before,
                                        const raft::HardState &after) {
	if (after.term < before.term) {
		sink.Report("election_safety", "node " + std::to_string(node) + " went back from term " +
		                                   std::to_string(before.term) + " to " + std::to_string(after.term));
	}
	if (after.term == before.term && before.voted_for != raft::NO_NODE && after.voted_for != before.voted_for) {
		sink.Report("election_safety", "node " + std::to_string(node) + " changed its vote in term " +
		                                   std::to_string(after.term) + " from node " +
		                                   std::to_string(before.voted_for) + " to " + std::to_string(after.voted_for));
	}
}

} // namespace sim
} // namespace quack
