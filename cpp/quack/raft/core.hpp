//! The state of one core and all its transitions; the implementation behind Raft. Private to this layer: the files
//! recv_*.cpp, election.cpp, replication.cpp, read_index.cpp, membership.cpp, transfer.cpp and invariants.cpp each hold
//! a part of this class. One owner thread, no IO, no clock.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "quack/common/prng.hpp"
#include "quack/raft/progress.hpp"
#include "quack/raft/quorum.hpp"
#include "quack/raft/raft_log.hpp"

namespace quack {
namespace raft {

class Core {
public:
	Core(const Config &config_p, LogReader &log_p, const RestoredState &restored, MonotonicNs now_p,
	     const Sabotage &sabotage_p);

	Ready Step(const Event &event);
	MonotonicNs NextDeadline() const;
	bool IsQuiet() const {
		return quiet;
	}
	CoreStatus GetStatus() const;
	void CheckInvariants() const;

private:
	//! A read that waits on this leader for its round. `from` is NO_NODE for a read of this node itself.
	struct LeaderRead {
		NodeId from;
		uint64_t request; //! the caller's number, or the asking follower's context
		LogIndex read_index;
		uint64_t round; //! 0 = not yet assigned to a heartbeat round
	};
	//! A read of this follower that its leader was asked about, by context.
	struct ForwardedRead {
		uint64_t request;
		MonotonicNs first_sent;
		MonotonicNs last_sent;
	};
	struct HeartbeatRound {
		uint64_t number;
		MonotonicNs sent_at;
	};
	struct MembershipAt {
		LogIndex index;
		Membership membership;
	};
	struct SizedIndex {
		LogIndex last_index;
		size_t bytes;
	};
	//! What CheckInvariants saw last, for the delta invariants.
	struct Seen {
		bool valid = false;
		Term term = 0;
		NodeId voted_for = NO_NODE;
		LogIndex commit_index = 0;
		LogIndex applied_index = 0;
		LogIndex handed_index = 0;
		Role role = Role::Follower;
		NodeId leader = NO_NODE;
		MonotonicNs now = 0;
		LogIndex last_index = 0;
		Term commit_term = 0;
		std::map<NodeId, LogIndex> match;
	};

	// core.cpp: restore, dispatch, assembly of the Ready
	void Restore(const RestoredState &restored);
	void RestoreMemberships(const SnapshotMeta &start);
	void Dispatch(const Event &event);
	void Tick();
	void TickLeader();
	void FinishStep();
	void HandOutCommitted();
	void Fail(Status status);
	void Applied(LogIndex index);
	void AppendCompleted(const AppendCompletedEvent &event);
	void Send(Message message);
	void SendAfterAppend(Message message);
	Message MakeMessage(MessageType type, NodeId to) const;
	Role VisibleRole() const;

	// receive.cpp: the term rules in front of every message, then one file per message kind
	void Receive(const Message &message);
	bool IsAcceptable(const Message &message) const;
	bool AdmitHigherTerm(const Message &message);
	void AnswerStaleTerm(const Message &message);
	void RecvAppendRequest(const Message &message);
	bool AppendFromLeader(std::vector<Entry> entries);
	void FailConflict(LogIndex index);
	void RejectAppend(const Message &message);
	void AcknowledgeAppend(const Message &request, LogIndex index);
	void RecvAppendResponse(const Message &message);
	void RecvAppendRejected(const Message &message, Progress &progress);
	void AfterMatchMoved(NodeId from, Progress &progress);
	void RecvVoteRequest(const Message &message);
	void RecvVoteResponse(const Message &message);
	void RecvHeartbeatRequest(const Message &message);
	void RecvHeartbeatResponse(const Message &message);
	void RecvSnapshotRequest(const Message &message);
	void RecvSnapshotResponse(const Message &message);
	void SnapshotInstalled(const SnapshotInstalledEvent &event);
	void RecvReadIndexRequest(const Message &message);
	void RecvReadIndexResponse(const Message &message);
	void RecvTimeoutNow(const Message &message);

	// election.cpp
	void BecomeFollower(Term new_term, NodeId new_leader);
	void Campaign(bool force);
	void StartPreVote();
	void StartVote(bool force);
	void RequestVotes(bool pre_vote, bool force);
	void CountVotesNow();
	void BecomeLeader();
	void LeaveLeadership();
	void ElectionTimedOut();
	void ResetElectionTimer();
	void ResetElectionTimer(MonotonicNs from);
	bool HeardLeader(NodeId from);
	bool CanCampaign() const;
	bool PromiseHolds() const;
	bool IsUpToDate(LogIndex index, Term last_term) const;
	bool HasQuorumContact() const;

	// replication.cpp (leader)
	void Propose(const ProposeEvent &event);
	Status CheckProposal(const ProposeEvent::Item &item) const;
	Entry MakeOwnEntry(LogIndex index, EntryType type, SharedBytes payload) const;
	void AppendOwn(EntryType type, SharedBytes payload);
	void BroadcastAppends();
	void SendAppends(NodeId to, Progress &progress);
	bool SendOneAppend(NodeId to, Progress &progress);
	bool MaySendAppend(const Progress &progress) const;
	void SendSnapshotRequest(NodeId to, Progress &progress);
	void BroadcastHeartbeats();
	void SendHeartbeat(NodeId to, Progress &progress, uint64_t round);
	void NoticeCommit();
	bool MaybeCommit();
	void AdvanceCommit(LogIndex index);
	void ReleaseUncommitted();
	LogIndex MatchOf(NodeId node) const;
	Progress *FindProgress(NodeId node);

	// read_index.cpp
	void ReadBarrier(uint64_t request);
	void LeaderReadBarrier(NodeId from, uint64_t request);
	void AnswerRead(const LeaderRead &read, Status status);
	void AssignReads();
	void CompleteReads();
	void FailLeaderReads(const char *reason);
	void FailForwardedReads(const char *reason);
	void RetryForwardedReads();
	MonotonicNs LeaseUntil() const;
	bool HasLease() const;
	bool CommittedInOwnTerm() const;

	// quiescence.cpp
	void NoteActivity();
	bool IsIdle() const;
	void OfferQuiet();
	void NoteQuietAnswer(const Message &message, Progress &progress);
	void GoQuietWhenAllAre();
	bool MayFollowQuietly(const Message &request) const;
	bool Disturbs(const Message &message) const;
	void WakeFor(const WakeEvent &event);
	void Wake(const std::map<NodeId, MonotonicNs> &silent);

	// membership.cpp
	const Membership &InForce() const {
		return memberships.back().membership;
	}
	LogIndex InForceIndex() const {
		return memberships.back().index;
	}
	const Membership &CommittedMembership() const;
	void ChangeMembership(const ChangeMembershipEvent &event);
	Status CheckChange(const ChangeMembershipEvent &event) const;
	void AppendMembership(Membership membership);
	bool NoteMembershipEntry(const Entry &entry);
	void ForgetMembershipsFrom(LogIndex index);
	void PruneMemberships();
	void MembershipInForceChanged();
	void RebuildProgress();
	void FollowUpMembershipCommit();
	void LeaveJoint();
	bool IsMember(NodeId node) const;

	// transfer.cpp (leader)
	void TransferLeadership(NodeId target, uint64_t request);
	TransferResult::Outcome CheckSuccessor(NodeId target);
	void AnswerTransfer(uint64_t request, TransferResult::Outcome outcome, NodeId target);
	void AnswerTransferAfterwards();
	NodeId BestSuccessor(bool caught_up_only) const;
	void HandOverWhenDiskHangs();
	void HandOverAsLastResort();
	void ContinueTransfer();
	void EndTransfer(TransferResult::Outcome outcome);

	// invariants.cpp
	void CheckIndexes() const;
	void CheckRole() const;
	void CheckMemberships() const;
	void CheckQueues() const;
	void CheckLeader() const;
	void CheckQuiet() const;
	void CheckDelta() const;
	void CheckDeltaSameTerm() const;

	const Config config;
	const Sabotage sabotage;
	RaftLog log;
	Prng prng;
	MonotonicNs now;

	// Persistent by way of Ready::hard_state.
	Term term = 0;
	NodeId voted_for = NO_NODE;
	HardState emitted_hard_state;
	//! The restored state was moved on and is not on disk as it is here.
	bool must_emit_hard_state = false;

	// Every role.
	Role role = Role::Follower; //! never Learner: see VisibleRole
	NodeId leader = NO_NODE;
	LogIndex commit_index = 0;
	LogIndex applied_index = 0;
	//! Last index handed out in Ready::committed.
	LogIndex handed_index = 0;
	//! What the state machine held at start: may be above commit_index until the log is caught up.
	LogIndex restored_applied_index = 0;
	std::deque<SizedIndex> unapplied;
	size_t unapplied_bytes = 0;
	//! Base first; every index above the base is in the log. The last one is in force, committed or not.
	std::vector<MembershipAt> memberships;
	MonotonicNs election_deadline = 0;
	//! Until then this node has promised to refuse votes (it heard a leader): what the leader's lease rests on.
	MonotonicNs promise_until = INT64_MIN;
	bool installing_snapshot = false;
	//! See quiescence.cpp.
	bool quiet = false;
	NodeId snapshot_source = NO_NODE;
	std::map<uint64_t, ForwardedRead> forwarded_reads;
	uint64_t next_read_context = 0;

	//! A request to hand over that stepped down in the middle: answered when the next leader is known.
	uint64_t left_request = 0;
	NodeId left_target = NO_NODE;

	// Candidates.
	std::map<NodeId, bool> votes;

	// Leader; meaningless in other roles.
	std::map<NodeId, Progress> progress;
	//! Index of the no-op of this term.
	LogIndex term_start_index = 0;
	//! False while this term and vote may not be durable here: only when elected by the own vote alone. Nothing is sent
	//! until then, or a crash could lead the same term twice with different entries.
	bool term_is_durable = false;
	MonotonicNs heartbeat_due = 0;
	uint64_t round_number = 0;
	std::deque<HeartbeatRound> rounds;
	std::deque<LeaderRead> reads;
	std::deque<SizedIndex> uncommitted;
	size_t uncommitted_bytes = 0;
	NodeId transfer_target = NO_NODE;
	MonotonicNs transfer_deadline = 0;
	uint64_t transfer_request = 0;
	//! The leader tried once in this term to hand over because its own disk hangs.
	bool disk_handover_tried = false;
	//! When something last happened, and the first heartbeat round that offers to go quiet; 0 = none does.
	MonotonicNs active_at = 0;
	uint64_t quiet_round = 0;
	//! A TimeoutNow left in this term: somebody may campaign past the promises at any time, so no lease any more.
	bool lease_given_up = false;

	Ready ready;
	SoftState emitted_soft_state;
	Status fatal;
	mutable Seen seen;
};

} // namespace raft
} // namespace quack
