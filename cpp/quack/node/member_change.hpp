//! From an operator's wish to the membership that fulfils it. Pure.
#pragma once

#include <optional>
#include <string>

#include "quack/node/member_directory.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace node {

//! Who is at most so far from the leader's end of the log has caught up: may become a voter, or lead.
constexpr raft::LogIndex CAUGHT_UP_ENTRIES = 1000;

enum class MemberAction : uint8_t {
	Add = 1,     //! a node that asks to join becomes a learner
	Promote = 2, //! a learner that has caught up becomes a voter
	Demote = 3,  //! a voter becomes a learner
	Remove = 4,  //! a member is one no more
	//! The node that asks to join under a member's name takes its place: first as a learner, and, asked again when it
	//! has caught up, with the role of the old one, which leaves in the same step.
	Replace = 5,
	//! The node itself asks whether it may give its data up and get it again. The lists stay as they are; the leader
	//! answers that the others alone are a majority, and lets nobody else go meanwhile.
	Reseed = 6,
};

//! How long a node that was let go (MemberAction::Reseed) has to leave: from its question, on its own clock, it takes
//! less.
constexpr MonotonicNs RESEED_GRANT = 5 * NS_PER_SECOND;

struct MemberChange {
	MemberAction action = MemberAction::Add;
	std::string name;
	//! Add and Replace: what the asked node knows of the one that wants to join. Incarnation 0 = nothing.
	uint64_t incarnation = 0;
	std::string host;
	uint16_t port = 0;
	//! Replace: the new disk itself says that the old one is gone. Nothing is done while that one is heard of.
	bool is_by_itself = false;
};

//! What the leader knows when it decides.
struct MemberView {
	const raft::CoreStatus &core;
	const std::vector<MemberEntry> &members;
	std::optional<Applicant> applicant; //! of the change's name
	MonotonicNs now = 0;
	MonotonicNs election_timeout = 0;
};

struct MemberPlan {
	//! NotFound, AlreadyExists, InvalidArgument: the wish cannot be fulfilled. Unavailable: not now (a member is not
	//! heard of or too far behind, or the group would lose its quorum). Conflict: not while another change is under
	//! way, or the disk to be replaced is heard of. Each with the fix.
	Status status;
	//! Nothing to do: `words` say why.
	bool is_done = false;
	//! The leader itself would lose its vote: it hands over first.
	bool needs_handover = false;
	std::vector<raft::NodeId> voters;
	std::vector<raft::NodeId> learners;
	std::map<raft::NodeId, std::string> notes;
	//! What has happened when the change is done.
	std::string words;
};

MemberPlan PlanMemberChange(const MemberChange &change, const MemberView &view);

//! What the leader of another group does next to get the members of the root group.
struct FollowingPlan {
	bool is_settled = false; //! they are the same
	//! It would lose its own vote: this one leads on first.
	raft::NodeId successor = raft::NO_NODE;
	//! Nothing = wait, for a change under way to end or for a node to catch up.
	std::optional<MemberPlan> change;
};

//! `root`: the membership to be reached, not joint. Nodes that are new become learners first; the voters change in one
//! joint step when all new ones have caught up and both sets have a majority in reach.
FollowingPlan PlanFollowing(const raft::CoreStatus &core, const raft::Membership &root);

//! The same lists with the addresses that members call themselves by; nothing when all are right.
std::optional<MemberPlan> PlanAddressUpdate(const raft::Membership &membership,
                                            const std::map<raft::NodeId, MemberRecord> &moved);

} // namespace node
} // namespace quack
