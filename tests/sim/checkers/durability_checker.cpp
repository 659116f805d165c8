#include "sim/checkers/durability_checker.hpp"

#include <algorithm>

namespace quack {
namespace sim {

void DurabilityChecker::OnSend(const raft::Message &message, const LogImage &synced) {
	if (message.reject || synced.hard_state.term > message.term) {
		return;
	}
	std::string who = "node " + std::to_string(message.from);
	if (message.type == raft::MessageType::VoteRequest && !message.pre_vote) {
		if (synced.hard_state.term != message.term || synced.hard_state.voted_for != message.from) {
			sink.Report("durability", who + " asks for votes in term " + std::to_string(message.term) +
			                              " before its own vote is durable");
		}
	}
	bool leads = message.type == raft::MessageType::AppendRequest ||
	             message.type == raft::MessageType::HeartbeatRequest ||
	             message.type == raft::MessageType::SnapshotRequest;
	if (leads && synced.hard_state.term != message.term) {
		sink.Report("durability",
		            who + " leads term " + std::to_string(message.term) + " before that term is durable there");
	}
	if (message.type == raft::MessageType::VoteResponse && !message.pre_vote) {
		if (synced.hard_state.term != message.term || synced.hard_state.voted_for != message.to) {
			sink.Report("durability", who + " sent a vote for node " + std::to_string(message.to) + " in term " +
			                              std::to_string(message.term) + " before it was durable");
		}
	}
	if (message.type == raft::MessageType::AppendResponse) {
		if (synced.LastIndex() < message.log_index) {
			sink.Report("durability", who + " acknowledged index " + std::to_string(message.log_index) +
			                              " although its synced log ends at " + std::to_string(synced.LastIndex()));
		}
	}
}

void DurabilityChecker::OnFirstCommit(raft::LogIndex index, raft::Term term,
                                      const std::vector<raft::Membership> &memberships, const SyncedLog &synced_log) {
	auto has_majority = [&](const std::vector<raft::NodeId> &voters) {
		auto holders = std::count_if(voters.begin(), voters.end(), [&](raft::NodeId node) {
			const LogImage *log = synced_log(node);
			return log && log->Holds(index, term);
		});
		return voters.empty() || static_cast<size_t>(holders) > voters.size() / 2;
	};
	bool held = std::any_of(memberships.begin(), memberships.end(), [&](const raft::Membership &membership) {
		return !membership.voters.empty() && has_majority(membership.voters) && has_majority(membership.outgoing);
	});
	if (!held) {
		sink.Report("durability", "index " + std::to_string(index) + " of term " + std::to_string(term) +
		                              " is called committed but not durable on a quorum");
	}
}

} // namespace sim
} // namespace quack
