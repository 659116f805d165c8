#include <tuple>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Dissertation §3.10. Stops taking proposals, brings the target up to date, tells it to campaign at once.
void Core::TransferLeadership(NodeId target) {
	if (role != Role::Leader || !CommittedInOwnTerm()) {
		return;
	}
	if (target == NO_NODE) {
		target = BestSuccessor(false);
	}
	if (!Contains(InForce().voters, target) || !FindProgress(target)) {
		return;
	}
	transfer_target = target;
	transfer_deadline = now + config.election_timeout;
	ContinueTransfer();
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
			TransferLeadership(successor);
		}
	}
}

//! Repeated with every heartbeat, because TimeoutNow may get lost.
void Core::ContinueTransfer() {
	auto peer = FindProgress(transfer_target);
	if (!peer || !Contains(InForce().voters, transfer_target)) {
		EndTransfer();
		return;
	}
	if (peer->match < log.LastIndex()) {
		SendAppends(transfer_target, *peer);
		return;
	}
	lease_given_up = true;
	Send(MakeMessage(MessageType::TimeoutNow, transfer_target));
}

void Core::EndTransfer() {
	transfer_target = NO_NODE;
}

} // namespace raft
} // namespace quack
