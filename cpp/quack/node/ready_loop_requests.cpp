#include <algorithm>

#include "quack/node/ready_loop_step.hpp"
#include "quack/node/status_report.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t APPEND_BYTES_PER_STEP = 8 * 1024 * 1024;
constexpr MonotonicNs ROUTE_PAUSE = 10 * NS_PER_MS;

} // namespace

Status ReadyLoop::NoGroup(raft::GroupId group) const {
	auto waiting_for = awaiting.empty() ? context.directory.WaitingFor() : awaiting_words;
	return waiting_for.empty()
	           ? Status(ErrorCode::NotFound, "group " + std::to_string(group) + " does not exist on this node")
			   : Status(ErrorCode::Unavailable, waiting_for);
}

void ReadyLoop::On(NewProposals &event) {
	auto group = Find(event.group);
	if (group == nullptr) {
		RefuseProposals(event.proposals, NoGroup(event.group));
		return;
	}
	std::vector<Proposal> refused;
	auto failure = DiskFailure();
	for (auto &proposal : event.proposals) {
		// A node whose disk is full or hangs may lead on for a moment, and others wait for its successor. What was
		// asked of itself is better asked of another: it could not be applied here before the disk works.
		if (!failure.IsOk() && !proposal.forwarded) {
			refused.push_back(std::move(proposal));
		} else {
			group->proposals.Add(std::move(proposal));
		}
	}
	if (!refused.empty()) {
		RefuseProposals(refused, failure);
	}
}

Status ReadyLoop::DiskFailure() const {
	if (DiskIsFull()) {
		return Status(ErrorCode::DiskFull, disk_alarm);
	}
	auto hung = context.disk.Describe(now);
	return hung.empty() ? Status::Ok() : Status(ErrorCode::Unavailable, hung + "; use another node");
}

void ReadyLoop::RefuseProposals(std::vector<Proposal> &proposals, const Status &failure) {
	for (auto &proposal : proposals) {
		context.budget.GiveBack(proposal.bytes);
		Later([done = std::move(proposal.done), failure] { done({failure, 0}); });
	}
}

//! Its parts meet in one round of the loop, so the requests of all groups to one leader leave in one envelope.
void ReadyLoop::On(NewRead &event) {
	auto wants_all = event.groups.empty();
	std::vector<GroupState *> asked;
	for (auto &entry : groups) {
		if (wants_all) {
			event.groups.push_back(entry.first);
		}
	}
	auto failure = event.groups.empty() ? NoGroup(raft::ROOT_GROUP) : Status::Ok();
	for (auto id : event.groups) {
		auto group = Find(id);
		auto count = group == nullptr ? 0 : group->reads.Count();
		if (group == nullptr) {
			failure = failure.IsOk() ? NoGroup(id) : failure;
		} else if (count >= config.pending_proposals_max) {
			failure = Status(ErrorCode::Overloaded, std::to_string(count) + " reads of group " + std::to_string(id) +
			                                            " wait already; retry later");
		}
		asked.push_back(group);
	}
	if (!failure.IsOk()) {
		Later([done = std::move(event.done), failure] { done(failure); });
		return;
	}
	auto round = std::make_shared<ReadRound>(std::move(event.groups), wants_all, std::move(event.done));
	for (size_t i = 0; i < asked.size(); i++) {
		asked[i]->reads.Add(
		    {event.deadline, [round, i](const Result<raft::LogIndex> &index) { round->Set(i, index); }});
	}
}

void ReadyLoop::On(StatusAsked &event) {
	Later([this, respond = std::move(event.respond)] { respond(status_source()); });
}

void ReadyLoop::On(AnswerLater &event) {
	Later(std::move(event.run));
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
	if (group.core.IsQuiet()) {
		// The leader may be none any more, unnoticed.
		Step(group, raft::WakeEvent {});
	}
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
		auto failure =
		    group == nullptr ? NoGroup(event.group) : Status(ErrorCode::Unavailable, "a snapshot is being installed");
		Later([done = std::move(event.done), failure] { done(failure); });
		return;
	}
	if (event.target != raft::NO_NODE && event.target == group->soft.leader) {
		Later([done = std::move(event.done), name = context.directory.NameOf(event.target)] { done(name); });
		return;
	}
	if (!IsLeader(*group)) {
		ForwardTransfer(*group, event);
		return;
	}
	auto request = group->next_transfer++;
	group->transfers[request] = {event.deadline, event.target, std::move(event.done)};
	Step(*group, raft::TransferLeadershipEvent {event.target, request});
}

void ReadyLoop::ForwardTransfer(GroupState &group, NewTransfer &event) {
	if (event.forwarded || group.soft.leader == raft::NO_NODE) {
		Later([done = std::move(event.done), failure = WaitingFailure(group)] { done(failure); });
		return;
	}
	auto timeout = event.deadline - now;
	auto body = Encode(wire::TransferRequest {group.id, event.target, timeout});
	CallLeader(group, wire::METHOD_TRANSFER, std::move(body), timeout, std::move(event.done));
}

void ReadyLoop::CallLeader(const GroupState &group, const char *method, std::string body, MonotonicNs timeout,
                           ConsensusEngine::TextCallback done) {
	Later([&transport = context.transport, leader = context.directory.NameOf(group.soft.leader), method,
	       body = std::move(body), timeout, done = std::move(done)]() mutable {
		transport.Call(leader, method, std::move(body), timeout, [done](const Result<std::string> &answer) {
			if (!answer.IsOk()) {
				done(answer.GetStatus());
				return;
			}
			auto decoded = wire::DecodeTextAnswer(answer.Value());
			auto status = decoded.IsOk() ? decoded.Value().status : decoded.GetStatus();
			done(status.IsOk() ? Result<std::string>(decoded.Value().text) : Result<std::string>(status));
		});
	});
}

void ReadyLoop::AnswerTransfer(GroupState &group, const raft::TransferResult &result) {
	auto waiter = group.transfers.find(result.request);
	if (waiter == group.transfers.end()) {
		return;
	}
	Result<std::string> answer = context.directory.NameOf(result.leader);
	auto is_other = waiter->second.target != raft::NO_NODE && result.leader != waiter->second.target;
	if (result.outcome != raft::TransferResult::Outcome::HandedOver) {
		answer = TransferFailure(result);
	} else if (is_other) {
		answer = Status(ErrorCode::Unavailable, "node '" + context.directory.NameOf(waiter->second.target) +
		                                            "' was to take over, but node '" + answer.Value() +
		                                            "' won the election and leads now");
	}
	Later([done = std::move(waiter->second.done), answer] { done(answer); });
	group.transfers.erase(waiter);
}

Status ReadyLoop::TransferFailure(const raft::TransferResult &result) const {
	using Outcome = raft::TransferResult::Outcome;
	auto target = "node '" + context.directory.NameOf(result.target) + "'";
	auto still = "; node '" + config.node_id + "' still leads";
	switch (result.outcome) {
	case Outcome::HandedOver:
		return Status::Ok();
	case Outcome::NotLeader:
		return Status(ErrorCode::Unavailable, "node '" + config.node_id + "' stopped leading; retry");
	case Outcome::Busy:
		return Status(ErrorCode::Unavailable,
		              "a hand-over is under way already, or this leader's term has only begun; retry" + still);
	case Outcome::NotVoter:
		return Status(ErrorCode::InvalidArgument, target + " is no voter, so it cannot lead" + still);
	case Outcome::Excluded:
		return Status(ErrorCode::InvalidArgument, target + " has election_priority 0, so it never leads" + still);
	case Outcome::NotHeard:
		return Status(ErrorCode::Unavailable, target + " has not been heard of for " +
		                                          std::to_string(config.election_timeout / NS_PER_MS) +
		                                          " ms: it is down or cut off; see quack_peers() for why" + still);
	case Outcome::Lagging:
		return Status(ErrorCode::Unavailable, target + " is " + std::to_string(result.behind) +
		                                          " entries behind and did not catch up within " +
		                                          std::to_string(config.election_timeout / NS_PER_MS) +
		                                          " ms; retry when it has, or name another node" + still);
	case Outcome::NoSuccessor:
		return Status(ErrorCode::Unavailable, "no other voter is in reach and allowed to lead" + still);
	case Outcome::NotTaken:
		break;
	}
	return Status(ErrorCode::Unavailable, target + " was told to take over and did not win an election within " +
	                                          std::to_string(config.election_timeout / NS_PER_MS) + " ms; retry" +
	                                          still);
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
	for (auto waiter = group.transfers.begin(); waiter != group.transfers.end();) {
		if (now < waiter->second.deadline) {
			++waiter;
			continue;
		}
		Status outcome(ErrorCode::DeadlineExceeded,
		               IsLeader(group)
		                   ? "no other node took over the group before the deadline"
						   : "node '" + config.node_id + "' handed over, but no leader was known before the deadline");
		Later([done = std::move(waiter->second.done), outcome] { done(outcome); });
		waiter = group.transfers.erase(waiter);
	}
}

bool ReadyLoop::HasRequests(const GroupState &group) const {
	return !group.proposals.Empty() || group.reads.Count() > 0 || !group.transfers.empty() ||
	       !group.member_waiters.empty();
}

void ReadyLoop::FailPending(const Status &failure) {
	for (auto &entry : groups) {
		FailRequests(*entry.second, failure);
	}
}

void ReadyLoop::FailRequests(GroupState &group, const Status &failure) {
	group.proposals.FailAll(failure, completions);
	group.reads.FailAll(failure, completions);
	for (auto &waiter : group.transfers) {
		Later([done = std::move(waiter.second.done), failure] { done(failure); });
	}
	for (auto &waiter : group.member_waiters) {
		Later([done = std::move(waiter.done), failure] { done(failure); });
	}
	group.transfers.clear();
	group.member_waiters.clear();
	group.deferred.clear();
}

//! An event that comes while the cores may not be stepped any more.
void ReadyLoop::RefuseEvent(LoopEvent &event, const Status &failure) {
	if (auto bytes = std::get_if<PeerBytes>(&event)) {
		inbound_bytes.fetch_sub(bytes->bytes.size());
	} else if (auto proposals = std::get_if<NewProposals>(&event)) {
		RefuseProposals(proposals->proposals, failure);
	} else if (auto read = std::get_if<NewRead>(&event)) {
		Later([done = std::move(read->done), failure] { done(failure); });
	} else if (auto transfer = std::get_if<NewTransfer>(&event)) {
		Later([done = std::move(transfer->done), failure] { done(failure); });
	} else if (auto rebalance = std::get_if<NewRebalance>(&event)) {
		Later([done = std::move(rebalance->done), failure] { done(failure); });
	} else if (auto member = std::get_if<NewMemberChange>(&event)) {
		Later([done = std::move(member->done), failure] { done(failure); });
	} else if (auto committed = std::get_if<MemberChangeCommitted>(&event)) {
		Later([done = std::move(committed->done), failure] { done(failure); });
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
