//! The sans-IO consensus core of one group: decides, never acts. No IO, no clock (time comes inside the event), no
//! thread, no std randomness. One owner thread; deterministic: same state + same event = same output.
#pragma once

#include <memory>
#include <variant>

#include "quack/raft/log_reader.hpp"
#include "quack/raft/ready.hpp"

namespace quack {
namespace raft {

//! Time passes. Call at least every heartbeat_interval / 2 while not quiet, and once at NextDeadline().
struct TickEvent {};

//! A message addressed to this node arrived. Messages of unknown senders are answered or dropped, never trusted.
struct ReceiveEvent {
	Message message;
};

//! Payloads to append in one batch. Answered by Ready::proposals of the same step, one each.
struct ProposeEvent {
	struct Item {
		uint64_t request = 0; //! chosen by the caller, unique while pending
		SharedBytes payload;
	};
	std::vector<Item> items;
};

//! Everything handed out for append up to the Ready whose last entry is (index, term) is durable, hard state included.
//! One event may stand for several Readies (the last one). Events for entries truncated meanwhile are harmless.
struct AppendCompletedEvent {
	LogIndex index = 0;
	Term term = 0;
};

//! The state machine applied all committed entries up to index.
struct AppliedEvent {
	LogIndex index = 0;
};

//! Linearizable read: answered by a ReadResult in this or a later Ready (lease: at once; else a ReadIndex round; on a
//! follower: asked of the leader). Without a leader it is answered Unavailable at once. The event's `now` must have
//! been taken after the read was asked for: that is what makes a lease read linearizable.
struct ReadBarrierEvent {
	uint64_t request = 0;
};

//! Leader only: hand over. target NO_NODE = the most caught-up voter of highest priority. Proposals are refused
//! (Unavailable) until it ends; it is given up after one election timeout. Answered by one TransferResult in this or a
//! later Ready, unless request is 0.
struct TransferLeadershipEvent {
	NodeId target = NO_NODE;
	uint64_t request = 0;
};

//! Leader only: move to a new voter and learner set by joint consensus. Refused (in proposals, by request) while a
//! change is in progress. A node removed from everything steps down when the change commits.
struct ChangeMembershipEvent {
	uint64_t request = 0;
	std::vector<NodeId> voters;
	std::vector<NodeId> learners;
	//! All of Membership::notes from now on.
	std::map<NodeId, std::string> notes;
};

//! The snapshot asked for by Ready::install_snapshot is installed, log reset; or failed, ask again later.
struct SnapshotInstalledEvent {
	SnapshotMeta snapshot;
	bool ok = false;
};

//! The transport lost contact to a peer: stop pipelining to it, probe.
struct PeerUnreachableEvent {
	NodeId peer = NO_NODE;
};

//! Campaign now (tests, and an operator's wish); still honours pre-vote. Ignored when this node is no voter,
//! is installing a snapshot, or heard a leader within the last election timeout: its own vote is promised
//! to that leader's lease (use TransferLeadership). A restarted node counts as having heard one at its start.
struct CampaignEvent {};

//! A quiet group may have to look around. Wakes the core of a follower when its leader is among the silent nodes, of a
//! leader when another member is, and any when the list is empty (the owner has other doubts, or is about to use the
//! group elsewhere). Nothing happens in a core that is not quiet.
struct WakeEvent {
	//! Nodes that nothing came from for an election timeout, and when something last did.
	std::map<NodeId, MonotonicNs> silent;
};

struct Event {
	//! Never decreases between steps. Taken after what the event reports has arrived (a message, a read) and before the
	//! Ready's messages leave: the lease and every promise to a leader are measured by it.
	MonotonicNs now = 0;
	std::variant<TickEvent, ReceiveEvent, ProposeEvent, AppendCompletedEvent, AppliedEvent, ReadBarrierEvent,
	             TransferLeadershipEvent, ChangeMembershipEvent, SnapshotInstalledEvent, PeerUnreachableEvent,
	             CampaignEvent, WakeEvent>
	    body;
};

//! How the leader sees one follower (names of etcd's tracker).
struct ProgressStatus {
	enum class State : uint8_t { Probe = 0, Replicate = 1, Snapshot = 2 };
	NodeId node = NO_NODE;
	State state = State::Probe;
	LogIndex match = 0; //! highest index known durable there
	LogIndex next = 0;
	bool is_learner = false;
	bool recent_active = false;
	size_t inflight_messages = 0;
	MonotonicNs last_contact = 0;
	uint32_t election_priority = 0; //! as it told; Config's default until it has
};

struct CoreStatus {
	NodeId self = NO_NODE;
	GroupId group = 0;
	Role role = Role::Follower;
	Term term = 0;
	NodeId leader = NO_NODE;
	LogIndex commit_index = 0;
	LogIndex applied_index = 0;
	LogIndex last_index = 0;
	LogIndex durable_index = 0;
	Membership membership; //! in force, committed or not
	LogIndex membership_index = 0;
	//! The newest one known to be committed; the same as `membership` when no change is under way.
	Membership committed_membership;
	bool transfer_in_progress = false;
	NodeId transfer_target = NO_NODE;
	//! Leader: until when the lease holds on this node's clock, already shortened by the drift bound; 0 = no lease.
	MonotonicNs lease_until = 0;
	//! Nobody ticks: everybody has everything, and the owner watches the nodes.
	bool is_quiet = false;
	size_t uncommitted_bytes = 0;
	size_t pending_reads = 0;
	std::vector<ProgressStatus> progress; //! leader only
};

//! State read back from the durable log at start.
struct RestoredState {
	HardState hard_state;
	//! Position the log starts from (0 for a new group) and the membership in force there. For a new group the initial
	//! membership is here with index 0.
	SnapshotMeta snapshot;
	//! The state machine already holds everything up to here (snapshot.index <= applied_index).
	LogIndex applied_index = 0;
};

//! Test-only switches that break a rule on purpose, so that the checkers can be shown to notice. All false in
//! production; each must make the simulator fail.
struct Sabotage {
	bool commit_old_term_by_count = false;    //! commit entries of earlier terms by counting (paper §5.4.2)
	bool vote_without_persisted_term = false; //! votes leave before hard state is durable
	bool lease_without_check_quorum = false;  //! lease never expires
	bool truncate_committed_suffix = false;   //! a conflicting append may cut below commit
	bool acknowledge_before_sync = false;     //! append responses leave before entries are durable
	bool apply_past_commit = false;           //! hands out uncommitted entries
	bool vote_for_stale_log = false;          //! ignores the up-to-date rule (paper §5.4.1)
	bool vote_twice_per_term = false;
	bool quiet_with_follower_behind = false; //! goes quiet without waiting for anybody
};

class Raft {
public:
	//! `log` outlives the core and already holds the restored entries. Membership entries above the snapshot are read
	//! from it.
	Raft(const Config &config, LogReader &log, const RestoredState &restored, MonotonicNs now,
	     const Sabotage &sabotage = Sabotage());
	~Raft();
	Raft(Raft &&other) noexcept;

	//! The only entry point.
	Ready Step(const Event &event);

	//! When the next TickEvent is due at the latest; INT64_MAX while quiet.
	MonotonicNs NextDeadline() const;
	//! As CoreStatus::is_quiet.
	bool IsQuiet() const;
	CoreStatus GetStatus() const;
	//! Checks every invariant of the state now and against the previous call (invariants.cpp); panics on a breach.
	void CheckInvariants() const;

private:
	class Impl;
	std::unique_ptr<Impl> impl;
};

//! Stable encoding of a membership entry's payload.
std::string EncodeMembership(const Membership &membership);
//! Corruption when the bytes are not one.
Result<Membership> DecodeMembership(ByteView bytes);

} // namespace raft
} // namespace quack
