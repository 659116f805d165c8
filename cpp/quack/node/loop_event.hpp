//! Everything that can happen to the event loop from outside.
#pragma once

#include <variant>

#include "quack/node/mailbox.hpp"
#include "quack/node/member_change.hpp"
#include "quack/node/proposal.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! Undecoded raft messages of an authenticated peer. Bounded by RaftEngineConfig::inbound_bytes_max.
struct PeerBytes {
	std::string peer;
	std::string bytes;
};
//! Messages that the core addressed to its own node.
struct SelfMessages {
	std::vector<raft::Message> messages;
};
//! Bounded by ProposalBudget.
struct NewProposals {
	raft::GroupId group = raft::ROOT_GROUP;
	std::vector<Proposal> proposals;
};
//! Bounded by RaftEngineConfig::pending_proposals_max as well.
struct NewRead {
	std::vector<raft::GroupId> groups; //! empty = all
	MonotonicNs deadline = 0;
	ConsensusEngine::PositionsCallback done;
};
struct NewTransfer {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::NodeId target = raft::NO_NODE;
	MonotonicNs deadline = 0;
	ConsensusEngine::TextCallback done; //! gets the name of the leader
	bool forwarded = false;
};
struct NewRebalance {
	MonotonicNs deadline = 0;
	ConsensusEngine::TextCallback done;
	bool forwarded = false;
};
struct NewMemberChange {
	raft::GroupId group = raft::ROOT_GROUP;
	MemberChange change;
	MonotonicNs deadline = 0;
	ConsensusEngine::TextCallback done;
	bool forwarded = false;
};
//! Where the root group ended when the leader of another one asked, in that term of its group.
struct RootEndKnown {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::Term term = 0;
	bool is_known = false;
	raft::LogIndex end = 0;
};
//! A change of members has committed; answered when its joint phase has ended as well.
struct MemberChangeCommitted {
	raft::GroupId group = raft::ROOT_GROUP;
	MonotonicNs deadline = 0;
	std::string words;
	ConsensusEngine::TextCallback done;
};
//! A peer asks by METHOD_STATUS.
struct StatusAsked {
	std::function<void(std::string)> respond;
};
//! A refusal whose callback must run on an engine thread. As many as callers that wait for it.
struct AnswerLater {
	std::function<void()> run;
};
struct ForwardAnswered {
	raft::GroupId group = raft::ROOT_GROUP;
	uint64_t batch = 0;
	Status status; //! of the call
	std::string body;
};
//! From the writer: at most one per group and round.
struct EntriesDurable {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
	raft::Term term = 0;
};
struct LogWasReset {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::SnapshotMeta position;
};
struct LogWasMade {
	raft::GroupId group = raft::ROOT_GROUP;
};
struct DiskState {
	bool is_full = false;
	std::string message;
};
//! From the apply loop.
struct EntriesApplied {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
};
//! StateMachine::Groups() is another list than before.
struct GroupsChanged {};
struct StateDurable {
	std::vector<AppliedPosition> positions;
};
//! The state machine holds the image that `group` asked for.
struct SnapshotInstalled {
	raft::GroupId group = raft::ROOT_GROUP;
	std::vector<wire::SnapshotPosition> positions;
};
struct SnapshotFailed {
	raft::GroupId group = raft::ROOT_GROUP;
	Status status;
};
struct PeerChanged {
	std::string peer;
	bool is_up = false;
};
//! The directory may know more than before.
struct PeersLearned {};

using LoopEvent =
    std::variant<PeerBytes, SelfMessages, NewProposals, NewRead, NewTransfer, NewRebalance, NewMemberChange,
	             RootEndKnown, MemberChangeCommitted, StatusAsked, AnswerLater, ForwardAnswered, EntriesDurable,
	             LogWasReset, LogWasMade, DiskState, EntriesApplied, GroupsChanged, StateDurable, SnapshotInstalled,
	             SnapshotFailed, PeerChanged, PeersLearned>;
using LoopMailbox = Mailbox<LoopEvent>;

} // namespace node
} // namespace quack
