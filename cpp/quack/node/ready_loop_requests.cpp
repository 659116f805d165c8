#include <algorithm>

#include "quack/node/ready_loop_step.hpp"
#include "quack/node/status_report.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t APPEND_BYTES_PER_STEP = 8 * 1024 * 1024;
constexpr MonotonicNs ROUTE_PAUSE = 10 * NS_PER_MS;

Status UnknownGroup(raft::GroupId group) {
	return Status(ErrorCode::NotFound, "group " + std::to_string(group) + " does not exist on this node");
}

} // namespace

void ReadyLoop::On(NewProposals &event) {
	auto group = Find(event.group);
	if (group == nullptr) {
		RefuseProposals(event.proposals, UnknownGroup(event.group));
		return;
	}
	for (auto &proposal : event.proposals) {
		group->proposals.Add(std::move(proposal));
	}
}

void ReadyLoop::RefuseProposals(std::vector<Proposal> &proposals, const Status &failure) {
	for (auto &proposal : proposals) {
		context.budget.GiveBack(proposal.bytes);
		Later([done = std::move(proposal.done), failure] { done({failure, 0}); });
	}
}

void ReadyLoop::On(NewRead &event) {
	auto group = Find(event.group);
	auto count = group == nullptr ? 0 : group->reads.Count();
	if (group == nullptr || count >= config.pending_proposals_max) {
		auto failure = group == nullptr
		                   ? UnknownGroup(event.group)
		                   : Status(ErrorCode::Overloaded, std::to_string(count) + " reads wait already; retry later");
		Later([done = std::move(event.done), failure] { done(Result<raft::LogIndex>(failure)); });
		return;
	}
	group->reads.Add({event.deadline, std::move(event.done)});
}

void ReadyLoop::On(StatusAsked &event) {
	Later([this, respond = std::move(event.respond)] { respond(status_source()); });
}

void ReadyLoop::On(AnswerLater &event) {
	Later(std::move(event.run));
}

void ReadyLoop::On(NewMembershipChange &event) {
	auto group = Find(event.group);
	if (group == nullptr || group->is_frozen) {
		std::vector<Proposal> refused;
		refused.push_back(std::move(event.proposal));
		RefuseProposals(refused, group == nullptr ? UnknownGroup(event.group)
		                                          : Status(ErrorCode::Unavailable, "a snapshot is being installed"));
		return;
	}
	raft::ChangeMembershipEvent change;
	change.request = group->proposals.AddChange(std::move(event.proposal));
	change.voters = std::move(event.voters);
	change.learners = std::move(event.learners);
	Step(*group, std::move(change));
}

//! Sends waiting proposals where the leader is.
void ReadyLoop::Route(GroupState &group) {
	if (!group.proposals.HasWaiting() || now < group.route_after || group.is_frozen) {
		return;
	}
	if (IsLeader(group)) {
		Append(group);
	} else if (group.soft.leader != raft::NO_NODE) {
		Forward(group);
	} else {
		group.proposals.RefuseForwarded("", completions);
	}
}

void ReadyLoop::Append(GroupState &group) {
	while (group.proposals.HasWaiting() && now >= group.route_after && IsLeader(group) && TakesEntries() &&
	       context.apply.QueueBytes() < config.apply_queue_bytes_max && !context.latch.IsSet()) {
		Step(group, group.proposals.TakeForAppend(APPEND_BYTES_PER_STEP));
	}
}

void ReadyLoop::Forward(GroupState &group) {
	auto leader = context.directory.NameOf(group.soft.leader);
	group.proposals.RefuseForwarded(leader, completions);
	while (group.proposals.HasWaiting() && group.proposals.ForwardsInFlight() < config.forwards_in_flight_max) {
		wire::ProposeRequest request;
		request.group = group.id;
		auto batch = group.proposals.TakeForForward(now, config.forward_bytes_max, leader, request, completions);
		if (batch == 0) {
			return;
		}
		MonotonicNs timeout = 0;
		for (auto &item : request.items) {
			timeout = std::max(timeout, item.timeout);
			// The leader gives up a little earlier, so that its answer still arrives in time.
			item.timeout -= std::min<MonotonicNs>(item.timeout / 10, 50 * NS_PER_MS);
		}
		Later([&transport = context.transport, leader, body = Encode(request), timeout, mailbox_p = context.mailbox,
		       group_id = group.id, batch]() mutable {
			transport.Call(leader, wire::METHOD_PROPOSE, std::move(body), timeout,
			               [mailbox_p, group_id, batch](Result<std::string> answer) {
				               ForwardAnswered event {group_id, batch, Status::Ok(), std::string()};
				               if (answer.IsOk()) {
					               event.body = std::move(answer.Value());
				               } else {
					               event.status = answer.GetStatus();
				               }
				               mailbox_p->Push(LoopEvent(std::move(event)));
			               });
		});
	}
}

void ReadyLoop::On(ForwardAnswered &event) {
	auto group = Find(event.group);
	if (group == nullptr) {
		return;
	}
	wire::ProposeAnswer answer;
	if (event.status.IsOk()) {
		auto decoded = wire::DecodeProposeAnswer(event.body);
		if (decoded.IsOk()) {
			answer = std::move(decoded.Value());
		}
	}
	if (group->proposals.OnForwardAnswer(event.batch, event.status, answer, completions)) {
		group->route_after = now + ROUTE_PAUSE;
	}
}

void ReadyLoop::AskReads(GroupState &group) {
	if (!group.reads.HasWaiting() || now < group.ask_after || group.is_frozen || context.latch.IsSet()) {
		return;
	}
	Step(group, raft::ReadBarrierEvent {group.reads.Ask()});
}

void ReadyLoop::On(NewTransfer &event) {
	auto group = Find(event.group);
	if (group == nullptr || group->is_frozen) {
		auto failure = group == nullptr ? UnknownGroup(event.group)
		                                : Status(ErrorCode::Unavailable, "a snapshot is being installed");
		Later([done = std::move(event.done), failure] { done(failure); });
		return;
	}
	if (event.target != raft::NO_NODE && event.target == group->soft.leader) {
		Later([done = std::move(event.done)] { done(Status::Ok()); });
		return;
	}
	if (!IsLeader(*group)) {
		ForwardTransfer(*group, event);
		return;
	}
	Step(*group, raft::TransferLeadershipEvent {event.target});
	group->transfers.push_back({event.deadline, std::move(event.done)});
}

void ReadyLoop::ForwardTransfer(GroupState &group, NewTransfer &event) {
	if (event.forwarded || group.soft.leader == raft::NO_NODE) {
		Later([done = std::move(event.done), failure = WaitingFailure(group)] { done(failure); });
		return;
	}
	auto body = Encode(wire::TransferRequest {group.id, event.target, event.deadline - now});
	Later([&transport = context.transport, leader = context.directory.NameOf(group.soft.leader), body = std::move(body),
	       timeout = event.deadline - now, done = std::move(event.done)]() mutable {
		transport.Call(leader, wire::METHOD_TRANSFER, std::move(body), timeout,
		               [done](const Result<std::string> &answer) {
			               if (!answer.IsOk()) {
				               done(answer.GetStatus());
				               return;
			               }
			               auto decoded = wire::DecodeStatusAnswer(answer.Value());
			               done(decoded.IsOk() ? decoded.Value().status : decoded.GetStatus());
		               });
	});
}

void ReadyLoop::CheckTransfers(GroupState &group) {
	if (group.transfers.empty()) {
		return;
	}
	Status outcome(ErrorCode::DeadlineExceeded, "no other node took over the group before the deadline");
	auto is_over = false;
	if (!IsLeader(group)) {
		is_over = group.soft.leader != raft::NO_NODE;
		outcome = is_over ? Status::Ok() : outcome;
	} else if (!group.core.GetStatus().transfer_in_progress) {
		is_over = true;
		outcome =
		    Status(ErrorCode::Unavailable, "node '" + config.node_id +
			                                   "' still leads: the target is no live, caught-up voter, or did not "
			                                   "take over within an election timeout");
	}
	std::vector<TransferWaiter> kept;
	for (auto &waiter : group.transfers) {
		if (is_over || now >= waiter.deadline) {
			Later([done = std::move(waiter.done), outcome] { done(outcome); });
		} else {
			kept.push_back(std::move(waiter));
		}
	}
	group.transfers.swap(kept);
}

Status ReadyLoop::WaitingFailure(const GroupState &group) const {
	if (DiskIsFull()) {
		return Status(ErrorCode::DiskFull, disk_alarm);
	}
	if (group.soft.leader == raft::NO_NODE) {
		return Status(ErrorCode::Unavailable, "group " + std::to_string(group.id) + " has no leader: " +
		                                          DescribeMissing(context.directory, context.transport.GetPeers(),
		                                                          group.core.GetStatus().membership, now));
	}
	return Status(ErrorCode::Unavailable, "the leader of group " + std::to_string(group.id) + ", node '" +
	                                          context.directory.NameOf(group.soft.leader) +
	                                          "', did not take it before the deadline");
}

void ReadyLoop::Expire(GroupState &group) {
	if (!HasRequests(group)) {
		return;
	}
	auto failure = group.proposals.HasWaiting() || group.reads.Count() > 0 ? WaitingFailure(group) : Status::Ok();
	group.proposals.Expire(now, failure, completions);
	group.reads.Expire(now, failure, completions);
}

bool ReadyLoop::HasRequests(const GroupState &group) const {
	return !group.proposals.Empty() || group.reads.Count() > 0 || !group.transfers.empty();
}

void ReadyLoop::FailPending(const Status &failure) {
	for (auto &entry : groups) {
		auto &group = *entry.second;
		group.proposals.FailAll(failure, completions);
		group.reads.FailAll(failure, completions);
		for (auto &waiter : group.transfers) {
			Later([done = std::move(waiter.done), failure] { done(failure); });
		}
		group.transfers.clear();
		group.deferred.clear();
	}
}

//! An event that comes while the cores may not be stepped any more.
void ReadyLoop::RefuseEvent(LoopEvent &event, const Status &failure) {
	if (auto bytes = std::get_if<PeerBytes>(&event)) {
		inbound_bytes.fetch_sub(bytes->bytes.size());
	} else if (auto proposals = std::get_if<NewProposals>(&event)) {
		RefuseProposals(proposals->proposals, failure);
	} else if (auto read = std::get_if<NewRead>(&event)) {
		Later([done = std::move(read->done), failure] { done(Result<raft::LogIndex>(failure)); });
	} else if (auto transfer = std::get_if<NewTransfer>(&event)) {
		Later([done = std::move(transfer->done), failure] { done(failure); });
	} else if (auto change = std::get_if<NewMembershipChange>(&event)) {
		std::vector<Proposal> refused;
		refused.push_back(std::move(change->proposal));
		RefuseProposals(refused, failure);
	} else if (auto status = std::get_if<StatusAsked>(&event)) {
		On(*status);
	} else if (auto answer = std::get_if<AnswerLater>(&event)) {
		On(*answer);
	} else if (auto forward = std::get_if<ForwardAnswered>(&event)) {
		On(*forward);
	}
}

} // namespace node
} // namespace quack
