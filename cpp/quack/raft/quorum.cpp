#include "quack/raft/quorum.hpp"

#include <algorithm>

namespace quack {
namespace raft {

uint64_t MajorityValue(const std::vector<NodeId> &voters, const VoterValue &value_of) {
	if (voters.empty()) {
		return UINT64_MAX;
	}
	std::vector<uint64_t> values;
	values.reserve(voters.size());
	for (auto voter : voters) {
		values.push_back(value_of(voter));
	}
	// A majority is n/2 + 1 voters: in descending order the value at n/2 is reached by that many.
	std::sort(values.begin(), values.end(), std::greater<uint64_t>());
	return values[values.size() / 2];
}

uint64_t JointValue(const Membership &membership, const VoterValue &value_of) {
	return std::min(MajorityValue(membership.voters, value_of), MajorityValue(membership.outgoing, value_of));
}

static VoteOutcome CountMajority(const std::vector<NodeId> &voters, const std::map<NodeId, bool> &votes) {
	if (voters.empty()) {
		return VoteOutcome::Won;
	}
	size_t granted = 0;
	size_t missing = 0;
	for (auto voter : voters) {
		auto vote = votes.find(voter);
		if (vote == votes.end()) {
			missing++;
		} else if (vote->second) {
			granted++;
		}
	}
	size_t needed = voters.size() / 2 + 1;
	if (granted >= needed) {
		return VoteOutcome::Won;
	}
	return granted + missing >= needed ? VoteOutcome::Pending : VoteOutcome::Lost;
}

VoteOutcome CountVotes(const Membership &membership, const std::map<NodeId, bool> &votes) {
	auto incoming = CountMajority(membership.voters, votes);
	auto outgoing = CountMajority(membership.outgoing, votes);
	if (incoming == VoteOutcome::Lost || outgoing == VoteOutcome::Lost) {
		return VoteOutcome::Lost;
	}
	return incoming == outgoing ? incoming : VoteOutcome::Pending;
}

bool Contains(const std::vector<NodeId> &nodes, NodeId node) {
	return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

bool IsVoter(const Membership &membership, NodeId node) {
	return Contains(membership.voters, node) || Contains(membership.outgoing, node);
}

std::vector<NodeId> AllMembers(const Membership &membership) {
	std::vector<NodeId> all = membership.voters;
	all.insert(all.end(), membership.outgoing.begin(), membership.outgoing.end());
	all.insert(all.end(), membership.learners.begin(), membership.learners.end());
	std::sort(all.begin(), all.end());
	all.erase(std::unique(all.begin(), all.end()), all.end());
	return all;
}

} // namespace raft
} // namespace quack
