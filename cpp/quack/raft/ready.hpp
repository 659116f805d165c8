//! The output of one step. Field comments are the manual: they state what must happen before and after.
#pragma once

#include <optional>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/raft/message.hpp"

namespace quack {
namespace raft {

//! What others may want to know; volatile.
struct SoftState {
	Role role = Role::Follower;
	NodeId leader = NO_NODE;
};

//! Answer to a read barrier asked on this node: when ok, the state machine is fresh once applied >= read_index.
struct ReadResult {
	uint64_t request = 0;
	Status status;
	LogIndex read_index = 0;
};

//! Answer to one proposal of a Propose event, in order. Ok = appended to the leader's log at (term, index), not yet
//! committed: it is committed when that index commits with that very term.
struct ProposeResult {
	uint64_t request = 0;
	Status status;
	Term term = 0;
	LogIndex index = 0;
};

//! Answer to a TransferLeadership event that carries a request.
struct TransferResult {
	enum class Outcome : uint8_t {
		HandedOver = 0,  //! `leader` leads now, the target or another node
		NotLeader = 1,   //! this node does not lead
		Busy = 2,        //! another hand-over is under way, or nothing of the own term is committed yet
		NotVoter = 3,    //! the target is no voter in force
		Excluded = 4,    //! the target has election priority 0
		NotHeard = 5,    //! nothing came from the target for an election timeout
		Lagging = 6,     //! the target lacks `behind` entries
		NoSuccessor = 7, //! no target was named and no other voter is fit
		NotTaken = 8,    //! the target was told and did not win
	};
	uint64_t request = 0;
	Outcome outcome = Outcome::HandedOver;
	NodeId target = NO_NODE;
	NodeId leader = NO_NODE;
	LogIndex behind = 0;
};

//! Readies must be processed in the order in which Step returned them.
struct Ready {
	//! Persist with `entries`, in the same or an earlier durable write, BEFORE `messages_after_append` leave. May
	//! survive a crash without `entries`: its commit_index lies below them.
	std::optional<HardState> hard_state;
	//! Append to the log. The first index may be at or below the log's last index: the suffix from it on is replaced
	//! (never at or below the commit index; the log must check). After they are durable, step AppendCompleted with
	//! index and term of the last of them.
	std::vector<Entry> entries;
	//! Send at once; a leader sends its appends before its own write is durable (dissertation §10.2.1).
	std::vector<Message> messages;
	//! Send only AFTER hard_state and entries of this and of every earlier Ready are durable: votes and
	//! acknowledgements.
	std::vector<Message> messages_after_append;
	//! Entries newly known committed, in order, no gaps, each handed out exactly once per life of the core. They may
	//! not be durable HERE yet; applying them is allowed (a quorum has them). After applying step Applied.
	std::vector<Entry> committed;
	//! Fetch the leader's snapshot (at least at this position) from `snapshot_from`, install it in the state machine
	//! and reset the log to it, then step SnapshotInstalled. Until then the core acknowledges no appends.
	std::optional<SnapshotMeta> install_snapshot;
	NodeId snapshot_from = NO_NODE;
	std::vector<ReadResult> reads;
	std::vector<ProposeResult> proposals;
	std::vector<TransferResult> transfers;
	//! Present when it changed.
	std::optional<SoftState> soft_state;
	//! Present when the membership in force changed (it is in force from append on, dissertation §4.1).
	std::optional<Membership> membership;
	//! A failure of LogReader or an impossible message: the owner must latch the node degraded. The core does nothing
	//! more.
	Status fatal;
};

} // namespace raft
} // namespace quack
