#include "quack/common/log.hpp"
#include "quack/node/group_start.hpp"
#include "quack/node/ready_loop_step.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs HELLO_TIMEOUT = 2 * NS_PER_SECOND;
constexpr MonotonicNs ADDRESSES_PAUSE = NS_PER_SECOND;
constexpr MonotonicNs REPLACE_PAUSE = 200 * NS_PER_MS;

} // namespace

void ReadyLoop::On(PeersLearned &) {
	if (groups.empty() && awaiting.empty()) {
		auto membership = context.directory.StartMembership();
		if (membership) {
			StartGroups(*membership);
		}
	}
	auto removed = context.directory.RemovedReason();
	if (!removed.empty()) {
		LeaveCluster(removed);
		return;
	}
	DialMembers();
}

//! After the messages of this round have left: a successor may be told to take over.
void ReadyLoop::LeaveCluster(const std::string &reason) {
	Later([this, reason] {
		context.latch.Latch(reason);
		context.transport.SetPeers({});
	});
}

//! The cluster is formed, or this node is let in. No group runs, so the writer is idle and the log is ours.
void ReadyLoop::StartGroups(const raft::Membership &membership) {
	storage::RecoveredGroup root;
	root.snapshot.membership = membership;
	auto status = context.log.CreateGroup(root.group, root.snapshot);
	status = status.IsOk() ? context.log.Sync() : status;
	status = status.IsOk() && config.mark_formed ? config.mark_formed() : status;
	// The log begins where a restored state stands.
	status = status.IsOk() ? OpenRecovered({root}) : status;
	if (!status.IsOk()) {
		context.latch.Latch("the groups of this node could not be made: " + status.ToString());
		return;
	}
	Log(LogLevel::Info, "node", "groups_started",
	    {{"voters", std::to_string(membership.voters.size())},
	     {"learners", std::to_string(membership.learners.size())}});
	AlignGroups();
	// Others may wait for a node that only this one has met.
	for (auto &peer : context.directory.PeerAddresses()) {
		SayHelloAgain(peer.node_id, [] {});
	}
}

//! Tells the directory who takes part, and acts on it.
void ReadyLoop::NoteMembership(const GroupState &group) {
	if (group.id == raft::ROOT_GROUP) {
		auto status = group.core.GetStatus();
		context.directory.SetMembership(status.membership, status.committed_membership);
		root_version++;
	}
	NoteOtherMembers();
	if (Find(raft::ROOT_GROUP) != nullptr || group.id == raft::ROOT_GROUP) {
		ActOnMembers();
	}
}

void ReadyLoop::ActOnMembers() {
	DialMembers();
	for (auto node : context.directory.TakeFarewells()) {
		auto name = context.directory.NameOf(node);
		Log(LogLevel::Info, "node", "member_removed", {{"node_id", name}});
		SayHelloAgain(name, [node, mailbox_p = context.mailbox, directory_p = context.gateway.Directory()] {
			directory_p->EndFarewell(node);
			mailbox_p->Push(LoopEvent(PeersLearned {}));
		});
	}
	auto removed = context.directory.RemovedReason();
	if (!removed.empty()) {
		LeaveCluster(removed);
	}
}

void ReadyLoop::DialMembers() {
	Later([&transport = context.transport, peers = context.directory.PeerAddresses()] { transport.SetPeers(peers); });
}

//! The session's first words are out of date.
void ReadyLoop::SayHelloAgain(const std::string &peer, std::function<void()> then) {
	Later([&transport = context.transport, peer, body = context.gateway.LocalHello(), then = std::move(then)] {
		transport.Call(peer, wire::METHOD_HELLO, body, HELLO_TIMEOUT, [then](const Result<std::string> &) { then(); });
	});
}

void ReadyLoop::On(NewMemberChange &event) {
	if (event.group != raft::ROOT_GROUP) {
		Status failure(ErrorCode::InvalidArgument, "members change in the root group, the others follow");
		Later([done = std::move(event.done), failure] { done(failure); });
		return;
	}
	auto group = Find(event.group);
	if (group == nullptr || group->is_frozen) {
		auto failure =
		    group == nullptr ? NoGroup(event.group) : Status(ErrorCode::Unavailable, "a snapshot is being installed");
		Later([done = std::move(event.done), failure] { done(failure); });
		return;
	}
	auto applicant = context.directory.FindApplicant(event.change.name);
	if (!IsLeader(*group)) {
		if (applicant && event.change.incarnation == 0) {
			event.change.incarnation = applicant->record.incarnation;
			event.change.host = applicant->record.host;
			event.change.port = applicant->record.port;
		}
		ForwardMemberChange(*group, event);
		return;
	}
	auto core = group->core.GetStatus();
	auto members = context.directory.Members();
	auto plan = PlanMemberChange(event.change, {core, members, applicant, now, config.election_timeout});
	if (plan.status.IsOk() && event.change.action == MemberAction::Reseed) {
		plan.status = LetGo(*group, event.change.name);
	}
	if (!plan.status.IsOk() || plan.is_done) {
		Result<std::string> answer = plan.words;
		if (!plan.status.IsOk()) {
			answer = plan.status;
		}
		Later([done = std::move(event.done), answer] { done(answer); });
	} else if (plan.needs_handover) {
		HandOverThenChange(*group, event);
	} else {
		ProposePlan(*group, std::move(plan), event.deadline, std::move(event.done));
	}
}

//! One node at a time may give its data up. Whom a leader let go leaves within RESEED_GRANT or not at all, and shows
//! from then on as one that is not heard of; so a new leader waits for as long before it lets anybody go.
Status ReadyLoop::LetGo(GroupState &group, const std::string &name) {
	if (now - group.leading_since < RESEED_GRANT) {
		return Status(ErrorCode::Unavailable, "node '" + config.node_id +
		                                          "' has only begun to lead, and another node may "
		                                          "have been let go before; retry in " +
		                                          std::to_string(RESEED_GRANT / NS_PER_SECOND) + " seconds");
	}
	if (now < group.let_go_until && group.let_go != name) {
		return Status(ErrorCode::Unavailable, "node '" + group.let_go +
		                                          "' gets its data again, and one node at a time may; "
		                                          "retry when it is back");
	}
	group.let_go = name;
	group.let_go_until = now + RESEED_GRANT;
	return Status::Ok();
}

void ReadyLoop::ForwardMemberChange(GroupState &group, NewMemberChange &event) {
	if (event.forwarded || group.soft.leader == raft::NO_NODE) {
		Later([done = std::move(event.done), failure = WaitingFailure(group)] { done(failure); });
		return;
	}
	auto &change = event.change;
	auto timeout = event.deadline - now;
	auto body = Encode(wire::MemberRequest {group.id, static_cast<uint32_t>(change.action), change.name,
	                                        change.incarnation, change.host, change.port, timeout});
	CallLeader(group, wire::METHOD_MEMBER, std::move(body), timeout, std::move(event.done));
}

//! A leader that is to lose its vote lets another one make the change: no election, no waiting writes.
void ReadyLoop::HandOverThenChange(GroupState &group, NewMemberChange &event) {
	auto again = std::make_shared<NewMemberChange>(std::move(event));
	again->forwarded = false;
	auto done = [again, mailbox_p = context.mailbox](const Result<std::string> &leader) {
		if (!leader.IsOk()) {
			again->done(leader.GetStatus());
			return;
		}
		auto fallback = again->done;
		if (!mailbox_p->Push(LoopEvent(std::move(*again)))) {
			fallback(Status(ErrorCode::Unavailable, "the node is stopping; retry on another one"));
		}
	};
	auto request = group.next_transfer++;
	group.transfers[request] = {again->deadline, raft::NO_NODE, std::move(done)};
	Step(group, raft::TransferLeadershipEvent {raft::NO_NODE, request});
}

void ReadyLoop::ProposePlan(GroupState &group, MemberPlan plan, MonotonicNs deadline,
                            ConsensusEngine::TextCallback done) {
	Proposal proposal;
	proposal.deadline = deadline;
	proposal.done = [group_id = group.id, deadline, words = plan.words, done,
	                 mailbox_p = context.mailbox](const ProposeOutcome &outcome) {
		if (!outcome.status.IsOk()) {
			done(outcome.status);
			return;
		}
		if (!mailbox_p->Push(LoopEvent(MemberChangeCommitted {group_id, deadline, words, done}))) {
			done(Status(ErrorCode::Unavailable, "the change is committed, but the node is stopping"));
		}
	};
	if (!context.budget.Take(0)) {
		Later([done = std::move(done)] {
			done(Status(ErrorCode::Overloaded, "too many proposals are pending; retry later"));
		});
		return;
	}
	raft::ChangeMembershipEvent change;
	change.request = group.proposals.AddChange(std::move(proposal));
	change.voters = std::move(plan.voters);
	change.learners = std::move(plan.learners);
	change.notes = std::move(plan.notes);
	Step(group, std::move(change));
}

void ReadyLoop::On(MemberChangeCommitted &event) {
	auto group = Find(event.group);
	if (group == nullptr) {
		Later([done = std::move(event.done), failure = NoGroup(event.group)] { done(failure); });
		return;
	}
	group->member_waiters.push_back({event.deadline, std::move(event.words), std::move(event.done)});
}

void ReadyLoop::CheckMembers(GroupState &group) {
	if (group.member_waiters.empty()) {
		return;
	}
	auto core = group.core.GetStatus();
	auto is_settled = !core.membership.IsJoint() && core.membership_index <= core.commit_index;
	auto behind = is_settled ? GroupsBehindRoot() : std::string();
	auto is_over = is_settled && behind.empty();
	std::vector<MemberWaiter> kept;
	for (auto &waiter : group.member_waiters) {
		if (!is_over && now < waiter.deadline) {
			kept.push_back(std::move(waiter));
			continue;
		}
		Result<std::string> answer = waiter.words;
		if (!behind.empty()) {
			answer =
			    Status(ErrorCode::DeadlineExceeded,
				       "the change is committed, but these groups have not followed before the deadline: " + behind +
				           "; each does so by itself as soon as it has a leader and a majority of its voters is in "
				           "reach: see quack_raft_status()");
		} else if (!is_over) {
			answer = Status(ErrorCode::DeadlineExceeded,
			                "the change is committed, but its joint phase did not end before the deadline; it goes on "
			                "by itself as soon as a majority of the voters is in reach: see quack_members()");
		}
		Later([done = std::move(waiter.done), answer] { done(answer); });
	}
	group.member_waiters.swap(kept);
}

//! Members tell their address in every hello; the leader writes down what differs.
void ReadyLoop::UpdateAddresses(GroupState &group) {
	if (group.id != raft::ROOT_GROUP || !IsLeader(group) || now < group.addresses_after) {
		return;
	}
	group.addresses_after = now + ADDRESSES_PAUSE;
	auto moved = context.directory.MovedMembers();
	if (moved.empty()) {
		return;
	}
	auto core = group.core.GetStatus();
	auto plan = PlanAddressUpdate(core.membership, moved);
	if (plan && !core.membership.IsJoint() && core.membership_index <= core.commit_index) {
		ProposePlan(group, std::move(*plan), now + NS_PER_SECOND * 10, [](const Result<std::string> &) {});
	}
}

//! A node that has moved its damaged log aside comes back as another member and says which disk is gone for good. With
//! that word the leader does what an operator would: the new disk becomes a learner and, once it has caught up, takes
//! the vote. The joint change keeps it safe whatever the node says; a disk that is still heard of is left alone.
void ReadyLoop::ReplaceLostDisks(GroupState &group) {
	if (group.id != raft::ROOT_GROUP || !IsLeader(group) || group.is_frozen || now < group.replace_after) {
		return;
	}
	group.replace_after = now + REPLACE_PAUSE;
	for (auto &name : context.directory.LostDisks()) {
		MemberChange change;
		change.action = MemberAction::Replace;
		change.name = name;
		change.is_by_itself = true;
		auto core = group.core.GetStatus();
		auto members = context.directory.Members();
		auto applicant = context.directory.FindApplicant(name);
		auto plan = PlanMemberChange(change, {core, members, applicant, now, config.election_timeout});
		if (plan.status.IsOk() && !plan.is_done && !plan.needs_handover) {
			Log(LogLevel::Info, "node", "lost_disk_is_replaced", {{"node_id", name}, {"message", plan.words}});
			ProposePlan(group, std::move(plan), now + NS_PER_SECOND * 10, [](const Result<std::string> &) {});
			return;
		}
	}
}

} // namespace node
} // namespace quack
