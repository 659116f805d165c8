#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Paper figure 2, RequestVote RPC, receiver; pre-vote by dissertation §9.6. Voters and learners answer alike: the
//! asker may know of a newer membership than we do.
void Core::RecvVoteRequest(const Message &message) {
	bool is_free = message.force || !PromiseHolds();
	bool up_to_date = IsUpToDate(message.log_index, message.log_term) || sabotage.vote_for_stale_log;
	auto response = MakeMessage(MessageType::VoteResponse, message.from);
	response.pre_vote = message.pre_vote;
	if (message.pre_vote) {
		// Promises nothing and changes nothing; many may be granted.
		bool granted = message.term > term && is_free && up_to_date;
		response.reject = !granted;
		response.term = granted ? message.term : term;
		Send(std::move(response));
		return;
	}
	bool may_vote = voted_for == message.from || (voted_for == NO_NODE && leader == NO_NODE);
	if (sabotage.vote_twice_per_term) {
		may_vote = true;
	}
	response.reject = !(is_free && may_vote && up_to_date);
	if (!response.reject) {
		voted_for = message.from;
		ResetElectionTimer();
	}
	if (sabotage.vote_without_persisted_term) {
		Send(std::move(response));
	} else {
		SendAfterAppend(std::move(response));
	}
}

} // namespace raft
} // namespace quack
