//! Members change in the root group; the leader of every other group brings its own membership into line.
#include "quack/common/log.hpp"
#include "quack/node/ready_loop_step.hpp"
#include "quack/raft/quorum.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs FOLLOW_PAUSE = 50 * NS_PER_MS;
constexpr MonotonicNs FOLLOW_TIMEOUT = 10 * NS_PER_SECOND;

bool IsSettled(const raft::CoreStatus &core) {
	return !core.membership.IsJoint() && core.membership_index <= core.commit_index;
}

} // namespace

//! Acts only on a membership of the root group that is at least as new as any that an earlier leader of the group acted
//! on: it asks the root group for its end once per term. From then on what it sees there only gets newer.
void ReadyLoop::FollowRoot(GroupState &group) {
	auto root = Find(raft::ROOT_GROUP);
	if (group.id == raft::ROOT_GROUP || root == nullptr || group.is_frozen || now < group.follow_after) {
		return;
	}
	if (!IsLeader(group)) {
		TakeFromDeparted(group, *root);
		return;
	}
	auto term = group.hard_state.term;
	if (group.followed_version == root_version && group.followed_term == term) {
		return;
	}
	group.follow_after = now + FOLLOW_PAUSE;
	if (group.fresh_term != term) {
		AskForRootEnd(group, *root, term);
		return;
	}
	auto core = group.core.GetStatus();
	auto root_core = root->core.GetStatus();
	if (root_core.commit_index < group.root_end || !IsSettled(root_core)) {
		return;
	}
	auto plan = PlanFollowing(core, root_core.committed_membership);
	if (plan.is_settled) {
		group.followed_version = root_version;
		group.followed_term = term;
	} else if (plan.successor != raft::NO_NODE) {
		Step(group, raft::TransferLeadershipEvent {plan.successor});
		group.follow_after = now + config.election_timeout;
	} else if (plan.change) {
		Log(LogLevel::Info, "node", "group_follows_members",
		    {{"group", std::to_string(group.id)}, {"voters", std::to_string(plan.change->voters.size())}});
		ProposePlan(group, std::move(*plan.change), now + FOLLOW_TIMEOUT, [](const Result<std::string> &) {});
	}
}

//! A node that the root group has let go may never hear of it, and leads other groups on. The leader of the root group
//! asks it to hand over.
void ReadyLoop::TakeFromDeparted(GroupState &group, GroupState &root) {
	group.follow_after = now + config.election_timeout;
	if (!IsLeader(root) || group.soft.leader == raft::NO_NODE) {
		return;
	}
	auto root_core = root.core.GetStatus();
	auto &members = root_core.committed_membership;
	if (!IsSettled(root_core) || raft::IsVoter(members, group.soft.leader) ||
	    raft::Contains(members.learners, group.soft.leader)) {
		return;
	}
	auto is_voter = raft::IsVoter(group.core.GetStatus().membership, context.directory.Self());
	NewTransfer wish;
	wish.group = group.id;
	wish.target = is_voter ? context.directory.Self() : raft::NO_NODE;
	wish.deadline = now + 4 * config.election_timeout;
	wish.done = [](const Result<std::string> &) {
	};
	ForwardTransfer(group, wish);
}

void ReadyLoop::AskForRootEnd(GroupState &group, GroupState &root, raft::Term term) {
	if (group.root_asked_term == term) {
		return;
	}
	group.root_asked_term = term;
	root.reads.Add({now + FOLLOW_TIMEOUT, [id = group.id, term, mailbox_p = context.mailbox](const auto &end) {
		                mailbox_p->Push(LoopEvent(RootEndKnown {id, term, end.IsOk(), end.IsOk() ? end.Value() : 0}));
	                }});
}

void ReadyLoop::On(RootEndKnown &event) {
	auto group = Find(event.group);
	if (group == nullptr) {
		return;
	}
	group->root_asked_term = 0;
	if (event.is_known) {
		group->fresh_term = event.term;
		group->root_end = event.end;
	}
	group->follow_after = 0;
}

//! Groups whose committed membership, as this node knows it, is not that of the root group yet: "3, 4"; empty = none.
std::string ReadyLoop::GroupsBehindRoot() const {
	auto root = groups.find(raft::ROOT_GROUP);
	std::string names;
	if (root == groups.end()) {
		return names;
	}
	auto root_core = root->second->core.GetStatus();
	for (auto &entry : groups) {
		auto core = entry.second->core.GetStatus();
		auto has_followed = IsSettled(core) && core.membership == root_core.committed_membership;
		if (entry.first != raft::ROOT_GROUP && !has_followed) {
			names += (names.empty() ? "" : ", ") + std::to_string(entry.first);
		}
	}
	return names;
}

//! Tells the directory who is still needed by another group than the root group, and watches whoever is needed by any.
void ReadyLoop::NoteOtherMembers() {
	std::set<raft::NodeId> members;
	std::set<raft::NodeId> others;
	for (auto &entry : groups) {
		auto core = entry.second->core.GetStatus();
		for (auto membership : {&core.membership, &core.committed_membership}) {
			for (auto list : {&membership->voters, &membership->outgoing, &membership->learners}) {
				members.insert(list->begin(), list->end());
				if (entry.first != raft::ROOT_GROUP) {
					others.insert(list->begin(), list->end());
				}
			}
		}
	}
	context.directory.SetOtherMembers(std::move(others));
	members.erase(context.directory.Self());
	beats.Watch(members, now);
}

} // namespace node
} // namespace quack
