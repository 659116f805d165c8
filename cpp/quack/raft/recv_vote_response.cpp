#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::RecvVoteResponse(const Message &message) {
	bool expected = message.pre_vote ? role == Role::PreCandidate : role == Role::Candidate;
	if (!expected || !IsVoter(InForce(), message.from)) {
		return;
	}
	// A granted pre-vote names the term asked about, everything else the term we are in.
	Term expected_term = message.pre_vote && !message.reject ? term + 1 : term;
	if (message.term != expected_term) {
		return;
	}
	// The first answer counts; a duplicate must not turn it.
	votes.emplace(message.from, !message.reject);
	CountVotesNow();
}

} // namespace raft
} // namespace quack
