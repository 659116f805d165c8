//! Every rule that must hold between two steps, whatever happened: basic ones of one state, delta ones of two states
//! that followed each other. A breach is a bug of this layer.
#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

static bool IsSortedUnique(const std::vector<NodeId> &nodes) {
	return std::adjacent_find(nodes.begin(), nodes.end(), std::greater_equal<NodeId>()) == nodes.end();
}

static void CheckMembership(const Membership &membership) {
	QUACK_CHECK(IsSortedUnique(membership.voters), "voters must be sorted and unique");
	QUACK_CHECK(IsSortedUnique(membership.outgoing), "outgoing voters must be sorted and unique");
	QUACK_CHECK(IsSortedUnique(membership.learners), "learners must be sorted and unique");
	QUACK_CHECK(IsSortedUnique(membership.learners_next), "next learners must be sorted and unique");
	for (auto node : membership.learners) {
		QUACK_CHECK(!IsVoter(membership, node), "nobody is voter and learner at once");
	}
	for (auto node : membership.learners_next) {
		QUACK_CHECK(Contains(membership.outgoing, node), "a next learner must be an outgoing voter");
		QUACK_CHECK(!Contains(membership.voters, node), "a next learner must not be an incoming voter");
	}
}

void Core::CheckInvariants() const {
	if (!fatal.IsOk()) {
		return;
	}
	CheckIndexes();
	CheckRole();
	CheckMemberships();
	CheckQueues();
	CheckQuiet();
	if (role == Role::Leader) {
		CheckLeader();
	}
	CheckDelta();
}

void Core::CheckIndexes() const {
	QUACK_CHECK(commit_index <= log.LastIndex(), "only what is in the log is committed");
	QUACK_CHECK(log.DurableIndex() <= log.LastIndex(), "only what is in the log is durable");
	QUACK_CHECK(applied_index <= handed_index, "only what was handed out is applied");
	QUACK_CHECK(handed_index <= std::max(commit_index, restored_applied_index), "only what is committed is handed out");
	// While a snapshot is installed the owner resets the log before it says so.
	QUACK_CHECK(installing_snapshot || log.FirstIndex() <= handed_index + 1,
	            "nothing may be compacted before it was handed out");
	QUACK_CHECK(log.LastTerm() <= term, "no entry is of a future term");
	QUACK_CHECK(emitted_hard_state.term == term, "a term change is always handed out to be persisted");
	QUACK_CHECK(emitted_hard_state.voted_for == voted_for, "a vote is always handed out to be persisted");
}

void Core::CheckRole() const {
	if (role != Role::Leader) {
		QUACK_CHECK(leader != config.self, "only a leader believes that it leads");
		QUACK_CHECK(progress.empty(), "only a leader tracks others");
		QUACK_CHECK(reads.empty(), "only a leader confirms reads");
		QUACK_CHECK(uncommitted.empty() && uncommitted_bytes == 0, "only a leader has proposals");
		QUACK_CHECK(transfer_target == NO_NODE, "only a leader hands over");
	}
	switch (role) {
	case Role::Follower:
		QUACK_CHECK(votes.empty(), "a follower collects no votes");
		break;
	case Role::PreCandidate:
		QUACK_CHECK(leader == NO_NODE, "a pre-candidate follows nobody");
		QUACK_CHECK(votes.count(config.self) == 1, "a pre-candidate votes for itself");
		break;
	case Role::Candidate:
		QUACK_CHECK(leader == NO_NODE, "a candidate follows nobody");
		QUACK_CHECK(votes.count(config.self) == 1, "a candidate votes for itself");
		QUACK_CHECK(voted_for == config.self || sabotage.vote_twice_per_term, "a candidate's vote is its own");
		break;
	case Role::Leader:
		QUACK_CHECK(leader == config.self, "a leader follows itself");
		QUACK_CHECK(voted_for == config.self || sabotage.vote_twice_per_term, "a leader voted for itself in its term");
		break;
	case Role::Learner:
		QUACK_CHECK(false, "Learner is only how a follower looks from outside");
	}
	QUACK_CHECK(forwarded_reads.empty() || (leader != NO_NODE && leader != config.self),
	            "reads wait only for a leader elsewhere");
	QUACK_CHECK(!installing_snapshot || role == Role::Follower, "only a follower installs a snapshot");
}

void Core::CheckMemberships() const {
	QUACK_CHECK(!memberships.empty(), "some membership is always in force");
	QUACK_CHECK(memberships.front().index <= std::max(commit_index, restored_applied_index),
	            "the oldest membership kept is committed");
	QUACK_CHECK(InForceIndex() <= log.LastIndex(), "a membership comes from the log");
	for (size_t i = 0; i < memberships.size(); i++) {
		CheckMembership(memberships[i].membership);
		QUACK_CHECK(i == 0 || memberships[i - 1].index < memberships[i].index, "memberships are in log order");
	}
}

void Core::CheckQueues() const {
	size_t bytes = 0;
	for (auto &item : uncommitted) {
		bytes += item.bytes;
	}
	QUACK_CHECK(bytes == uncommitted_bytes, "uncommitted bytes add up");
	bytes = 0;
	for (auto &item : unapplied) {
		bytes += item.bytes;
	}
	QUACK_CHECK(bytes == unapplied_bytes, "unapplied bytes add up");
	QUACK_CHECK(reads.size() <= config.pending_reads_max, "reads on a leader are bounded");
	QUACK_CHECK(forwarded_reads.size() <= config.pending_reads_max, "reads on a follower are bounded");
	for (size_t i = 1; i < reads.size(); i++) {
		bool in_order = reads[i].round == 0 || (reads[i - 1].round != 0 && reads[i - 1].round <= reads[i].round);
		QUACK_CHECK(in_order, "reads are confirmed in the order in which they came");
	}
}

void Core::CheckLeader() const {
	QUACK_CHECK(term_start_index <= log.LastIndex(), "a leader's term starts with an entry");
	QUACK_CHECK(log.LastTerm() == term, "a leader's log ends in its term");
	QUACK_CHECK(!HasLease() || HasQuorumContact() || sabotage.lease_without_check_quorum,
	            "a lease implies contact to a quorum");
	QUACK_CHECK(progress.count(config.self) == 0, "a leader does not track itself");
	for (auto node : AllMembers(InForce())) {
		QUACK_CHECK(node == config.self || progress.count(node) == 1, "a leader tracks every other member");
	}
	for (auto &item : progress) {
		auto &peer = item.second;
		QUACK_CHECK(peer.match < peer.next, "what matches was sent");
		QUACK_CHECK(peer.match <= log.LastIndex(), "nobody holds more than the leader");
		QUACK_CHECK(peer.next <= log.LastIndex() + 1, "nothing beyond the log is sent");
		QUACK_CHECK(peer.inflights.Count() <= config.inflight_messages_max, "in-flight messages are bounded");
		QUACK_CHECK(peer.state == Progress::State::Replicate || peer.inflights.Count() == 0,
		            "only Replicate pipelines");
		QUACK_CHECK(peer.commit_sent <= commit_index, "only what is committed is told");
	}
}

void Core::CheckQuiet() const {
	if (!quiet) {
		return;
	}
	QUACK_CHECK(config.quiet_after > 0 || role != Role::Leader, "a group goes quiet only when it may");
	QUACK_CHECK(role == Role::Leader || (role == Role::Follower && leader != NO_NODE), "only with a leader");
	QUACK_CHECK(!installing_snapshot && forwarded_reads.empty(), "nobody who waits for something is quiet");
	bool has_all = IsIdle() || sabotage.quiet_with_follower_behind;
	QUACK_CHECK(role != Role::Leader || has_all, "a leader is quiet only when everybody has everything");
}

void Core::CheckDelta() const {
	if (seen.valid) {
		QUACK_CHECK(now >= seen.now, "time does not go back");
		QUACK_CHECK(term >= seen.term, "the term never goes back");
		QUACK_CHECK(commit_index >= seen.commit_index, "the commit index never goes back");
		QUACK_CHECK(applied_index >= seen.applied_index, "the applied index never goes back");
		QUACK_CHECK(handed_index >= seen.handed_index, "nothing is handed out twice");
		auto commit_term = log.TermAt(seen.commit_index);
		QUACK_CHECK(!commit_term.IsOk() || commit_term.Value() == seen.commit_term, "what is committed stays");
		CheckDeltaSameTerm();
	}
	NodeId known_leader = seen.valid && seen.term == term && leader == NO_NODE ? seen.leader : leader;
	seen.valid = true;
	seen.now = now;
	seen.term = term;
	seen.voted_for = voted_for;
	seen.role = role;
	seen.leader = known_leader;
	seen.commit_index = commit_index;
	seen.applied_index = applied_index;
	seen.handed_index = handed_index;
	seen.last_index = log.LastIndex();
	auto commit_term = log.TermAt(commit_index);
	seen.commit_term = commit_term.IsOk() ? commit_term.Value() : 0;
	seen.match.clear();
	for (auto &item : progress) {
		seen.match[item.first] = item.second.match;
	}
}

void Core::CheckDeltaSameTerm() const {
	if (seen.term != term) {
		return;
	}
	QUACK_CHECK(seen.voted_for == NO_NODE || seen.voted_for == voted_for || sabotage.vote_twice_per_term,
	            "one vote per term");
	QUACK_CHECK(seen.leader == NO_NODE || leader == NO_NODE || seen.leader == leader, "one leader per term");
	bool stepped_up = seen.role != Role::Leader && role == Role::Leader;
	QUACK_CHECK(!stepped_up || seen.leader == NO_NODE, "nobody leads the same term twice");
	if (seen.role != Role::Leader || role != Role::Leader) {
		return;
	}
	QUACK_CHECK(log.LastIndex() >= seen.last_index, "a leader only appends to its log");
	for (auto &item : progress) {
		auto before = seen.match.find(item.first);
		QUACK_CHECK(before == seen.match.end() || before->second <= item.second.match,
		            "what a follower acknowledged to this leader stays acknowledged");
	}
}

} // namespace raft
} // namespace quack
