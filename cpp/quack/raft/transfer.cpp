#include <algorithm>
#include <tuple>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Dissertation §3.10. Stops taking proposals, brings the target up to date, tells it to campaign at once.
void Core::TransferLeadership(NodeId target, uint64_t request) {
	using Outcome = TransferResult::Outcome;
	Wake({});
	if (role != Role::Leader) {
		AnswerTransfer(request, Outcome::NotLeader, target);
		return;
	}
	if (target == config.self) {
		AnswerTransfer(request, Outcome::HandedOver, target);
		return;
	}
	if (!CommittedInOwnTerm() || (transfer_request != 0 && request != 0)) {
		AnswerTransfer(request, Outcome::Busy, target);
		return;
	}
	if (target == NO_NODE) {
		target = BestSuccessor(false);
		if (target == NO_NODE) {
			AnswerTransfer(request, Outcome::NoSuccessor, target);
			return;
		}
	}
	auto fitness = CheckSuccessor(target);
	if (fitness != Outcome::HandedOver) {
		AnswerTransfer(request, fitness, target);
		return;
	}
	NoteActivity();
	transfer_target = target;
	transfer_request = request != 0 ? request : transfer_request;
	transfer_deadline = now + config.election_timeout;
	ContinueTransfer();
}

//! HandedOver = nothing speaks against it.
TransferResult::Outcome Core::CheckSuccessor(NodeId target) {
	auto peer = FindProgress(target);
	if (!peer || !Contains(InForce().voters, target)) {
		return TransferResult::Outcome::NotVoter;
	}
	if (now - peer->last_contact >= config.election_timeout) {
		return TransferResult::Outcome::NotHeard;
	}
	if (peer->election_priority == 0) {
		return TransferResult::Outcome::Excluded;
	}
	return peer->state == Progress::State::Snapshot ? TransferResult::Outcome::Lagging
	                                                : TransferResult::Outcome::HandedOver;
}

void Core::AnswerTransfer(uint64_t request, TransferResult::Outcome outcome, NodeId target) {
	if (request == 0) {
		return;
	}
	TransferResult result;
	result.request = request;
	result.outcome = outcome;
	result.target = target;
	result.leader = leader;
	auto peer = FindProgress(target);
	result.behind = peer ? log.LastIndex() - std::min(log.LastIndex(), peer->match) : 0;
	ready.transfers.push_back(result);
}

//! The leader stepped down while it handed over: who leads next is the answer.
void Core::AnswerTransferAfterwards() {
	if (left_request == 0 || leader == NO_NODE) {
		return;
	}
	auto outcome = leader == config.self ? TransferResult::Outcome::NotTaken : TransferResult::Outcome::HandedOver;
	AnswerTransfer(left_request, outcome, left_target);
	left_request = 0;
}

//! Heard of lately, allowed to lead; then highest priority, then most caught up, then lowest id.
NodeId Core::BestSuccessor(bool caught_up_only) const {
	NodeId best = NO_NODE;
	std::tuple<uint32_t, LogIndex> best_rank {0, 0};
	for (auto &item : progress) {
		auto &peer = item.second;
		bool is_eligible = Contains(InForce().voters, item.first) && peer.election_priority > 0 &&
		                   now - peer.last_contact < config.election_timeout &&
		                   (!caught_up_only || peer.match == log.LastIndex());
		std::tuple<uint32_t, LogIndex> rank {peer.election_priority, peer.match};
		if (is_eligible && (best == NO_NODE || rank > best_rank)) {
			best = item.first;
			best_rank = rank;
		}
	}
	return best;
}

//! A leader whose own writes do not end still commits through the others, but no longer takes part in durability. Once
//! per term: a successor may be no better off.
void Core::HandOverWhenDiskHangs() {
	bool is_hanging = log.PendingBatchCount() > 0 && now - log.OldestPendingSince() >= 2 * config.election_timeout;
	if (is_hanging && !disk_handover_tried && transfer_target == NO_NODE) {
		disk_handover_tried = true;
		auto successor = BestSuccessor(false);
		if (successor != NO_NODE) {
			TransferLeadership(successor, 0);
		}
	}
}

//! It leads because nobody else could be elected; now somebody can.
void Core::HandOverAsLastResort() {
	if (config.election_priority == 0 && transfer_target == NO_NODE) {
		auto successor = BestSuccessor(true);
		if (successor != NO_NODE) {
			TransferLeadership(successor, 0);
		}
	}
}

//! Repeated with every heartbeat, because TimeoutNow may get lost.
void Core::ContinueTransfer() {
	auto peer = FindProgress(transfer_target);
	if (!peer || !Contains(InForce().voters, transfer_target)) {
		EndTransfer(TransferResult::Outcome::NotVoter);
		return;
	}
	if (peer->match < log.LastIndex()) {
		SendAppends(transfer_target, *peer);
		return;
	}
	lease_given_up = true;
	Send(MakeMessage(MessageType::TimeoutNow, transfer_target));
}

void Core::EndTransfer(TransferResult::Outcome outcome) {
	AnswerTransfer(transfer_request, outcome, transfer_target);
	transfer_request = 0;
	transfer_target = NO_NODE;
}

} // namespace raft
} // namespace quack
