#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Paper figure 2, "Rules for Servers": a higher term, or the leader of this term, makes anyone a follower.
void Core::BecomeFollower(Term new_term, NodeId new_leader) {
	QUACK_CHECK(new_term >= term, "the term never goes back");
	bool was_follower = role == Role::Follower;
	bool leader_changed = new_term > term || new_leader != leader;
	if (role == Role::Leader) {
		LeaveLeadership();
	}
	if (new_term > term) {
		term = new_term;
		voted_for = NO_NODE;
	}
	role = Role::Follower;
	leader = new_leader;
	quiet = false;
	votes.clear();
	if (leader_changed) {
		FailForwardedReads("the leader changed while it was asked for a read index; ask again");
	}
	if (!was_follower) {
		ResetElectionTimer();
	}
}

void Core::LeaveLeadership() {
	FailLeaderReads("this node stopped being the leader before it could confirm the read; ask again");
	progress.clear();
	rounds.clear();
	uncommitted.clear();
	uncommitted_bytes = 0;
	left_request = transfer_request;
	left_target = transfer_target;
	transfer_request = 0;
	transfer_target = NO_NODE;
}

//! A node removed by a change it does not know to be committed must still run: it may hold the only copy of that change
//! (dissertation §4.2.2). Its own vote counts only where it is a voter.
bool Core::CanCampaign() const {
	bool is_voter = std::any_of(memberships.begin(), memberships.end(),
	                            [&](const MembershipAt &item) { return IsVoter(item.membership, config.self); });
	return is_voter && !installing_snapshot;
}

//! Vote requests are refused for an election timeout after hearing a leader (dissertation §4.2.3, §6.4.1).
bool Core::PromiseHolds() const {
	return role == Role::Leader || quiet || now < promise_until;
}

void Core::ResetElectionTimer() {
	ResetElectionTimer(now);
}

void Core::ResetElectionTimer(MonotonicNs from) {
	if (config.election_priority == 0) {
		auto spread = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(config.election_timeout)));
		election_deadline = from + LAST_RESORT_TIMEOUTS * config.election_timeout + spread;
		return;
	}
	// Priority works inside [election_timeout, 2 * election_timeout): 100 draws from the first half, more from a
	// smaller part of it, less from a later half, down to the second one.
	auto priority = static_cast<MonotonicNs>(std::min<uint32_t>(config.election_priority, 1000));
	MonotonicNs half = std::max<MonotonicNs>(config.election_timeout / 2, 1);
	MonotonicNs delay = half * (100 - std::min<MonotonicNs>(priority, 100)) / 100;
	MonotonicNs width = std::max<MonotonicNs>(half * 100 / std::max<MonotonicNs>(priority, 100), 1);
	auto jitter = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(width)));
	election_deadline = from + config.election_timeout + delay + jitter;
}

//! A message of this term's leader arrived. False (and fatal) when it cannot be: paper figure 3, election safety.
bool Core::HeardLeader(NodeId from) {
	if (role == Role::Leader || (leader != NO_NODE && leader != from)) {
		Fail(Status(ErrorCode::Internal, "group " + std::to_string(config.group) + ": node " + std::to_string(from) +
		                                     " leads term " + std::to_string(term) + ", but so does node " +
		                                     std::to_string(leader)));
		return false;
	}
	if (role != Role::Follower || leader != from) {
		BecomeFollower(term, from);
	}
	promise_until = now + config.election_timeout;
	ResetElectionTimer();
	return true;
}

void Core::ElectionTimedOut() {
	if (role != Role::Follower || leader != NO_NODE) {
		BecomeFollower(term, NO_NODE);
	}
	ResetElectionTimer();
	Campaign(false);
}

//! force: ordered by the leader through TimeoutNow, which has released all promises (dissertation §3.10).
void Core::Campaign(bool force) {
	if (role == Role::Leader || !CanCampaign()) {
		return;
	}
	if (force) {
		if (config.election_priority == 0) {
			return; // it leads only when nobody else can
		}
		StartVote(true);
	} else if (!PromiseHolds()) {
		StartPreVote();
	}
}

//! Pre-vote (dissertation §9.6): ask whether an election could be won before touching the term.
void Core::StartPreVote() {
	BecomeFollower(term, NO_NODE);
	ResetElectionTimer();
	role = Role::PreCandidate;
	votes[config.self] = true;
	RequestVotes(true, false);
	CountVotesNow();
}

void Core::StartVote(bool force) {
	BecomeFollower(term + 1, NO_NODE);
	ResetElectionTimer();
	role = Role::Candidate;
	voted_for = config.self;
	votes[config.self] = true;
	RequestVotes(false, force);
	CountVotesNow();
}

void Core::RequestVotes(bool pre_vote, bool force) {
	for (auto node : AllMembers(InForce())) {
		if (node == config.self || !IsVoter(InForce(), node)) {
			continue;
		}
		auto request = MakeMessage(MessageType::VoteRequest, node);
		request.term = pre_vote ? term + 1 : term;
		request.log_index = log.LastIndex();
		request.log_term = log.LastTerm();
		request.pre_vote = pre_vote;
		request.force = force;
		// A real request leaves after the own vote is durable: then any answer implies that it is.
		if (pre_vote || sabotage.vote_without_persisted_term) {
			Send(std::move(request));
		} else {
			SendAfterAppend(std::move(request));
		}
	}
}

void Core::CountVotesNow() {
	switch (CountVotes(InForce(), votes)) {
	case VoteOutcome::Pending:
		return;
	case VoteOutcome::Lost:
		BecomeFollower(term, NO_NODE);
		return;
	case VoteOutcome::Won:
		break;
	}
	if (role == Role::PreCandidate) {
		StartVote(false);
	} else {
		BecomeLeader();
	}
}

//! Candidate's log is at least as up-to-date as ours (paper §5.4.1).
bool Core::IsUpToDate(LogIndex index, Term last_term) const {
	return last_term > log.LastTerm() || (last_term == log.LastTerm() && index >= log.LastIndex());
}

void Core::BecomeLeader() {
	QUACK_CHECK(role == Role::Candidate, "only a candidate becomes leader");
	bool has_other_votes =
	    std::any_of(votes.begin(), votes.end(), [&](auto &vote) { return vote.first != config.self && vote.second; });
	role = Role::Leader;
	leader = config.self;
	votes.clear();
	term_is_durable = has_other_votes;
	lease_given_up = false;
	disk_handover_tried = false;
	transfer_target = NO_NODE;
	transfer_request = 0;
	NoteActivity();
	progress.clear();
	RebuildProgress();
	term_start_index = log.LastIndex() + 1;
	// Entries of earlier terms commit only together with one of this term (paper §5.4.2, dissertation §6.4).
	AppendOwn(EntryType::NoOp, MakeSharedBytes(std::string()));
	heartbeat_due = now + config.heartbeat_interval;
	BroadcastAppends();
	BroadcastHeartbeats();
}

//! A majority of voters was heard from within the last election timeout.
bool Core::HasQuorumContact() const {
	auto last_heard = JointValue(InForce(), [&](NodeId node) -> uint64_t {
		if (node == config.self) {
			return UINT64_MAX;
		}
		auto found = progress.find(node);
		bool is_active = found != progress.end() && now - found->second.last_contact < config.election_timeout;
		return is_active ? 1 : 0;
	});
	return last_heard > 0;
}

} // namespace raft
} // namespace quack
