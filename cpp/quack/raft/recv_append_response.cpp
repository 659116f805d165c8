#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::RecvAppendResponse(const Message &message) {
	auto peer = FindProgress(message.from);
	if (role != Role::Leader || !peer) {
		return;
	}
	peer->last_contact = now;
	if (message.reject) {
		RecvAppendRejected(message, *peer);
		return;
	}
	if (message.log_index > log.LastIndex()) {
		// Nobody can hold entries of this term that its only leader does not have.
		return;
	}
	bool moved = peer->UpdateMatch(message.log_index);
	bool is_current = message.context == peer->flow;
	if (peer->state == Progress::State::Probe && message.log_index == peer->match && is_current) {
		peer->BecomeReplicate();
	} else if (peer->state == Progress::State::Replicate) {
		peer->inflights.FreeTo(message.log_index);
	} else if (peer->state == Progress::State::Snapshot && peer->match + 1 >= log.FirstIndex()) {
		peer->BecomeProbe(peer->match + 1);
	}
	if (moved) {
		AfterMatchMoved(message.from, *peer);
	} else {
		SendAppends(message.from, *peer);
	}
}

void Core::AfterMatchMoved(NodeId from, Progress &peer) {
	bool committed = MaybeCommit();
	if (role != Role::Leader) {
		return;
	}
	if (!committed) {
		SendAppends(from, peer);
		// It may know less of the commit index than it is entitled to by now.
		NoticeCommit();
	}
	if (transfer_target == from) {
		ContinueTransfer();
	}
}

//! Back off to where the logs may agree; a stale answer must not move anything.
void Core::RecvAppendRejected(const Message &message, Progress &peer) {
	LogIndex refused = message.log_index;
	if (peer.state == Progress::State::Snapshot || refused <= peer.match || message.context != peer.flow) {
		return;
	}
	if (peer.state == Progress::State::Probe && refused != peer.next - 1) {
		return;
	}
	LogIndex agreed = log.LastIndexUpToTerm(std::min(message.hint_index, refused), message.hint_term);
	if (message.hint_index + 1 < log.FirstIndex()) {
		// Below our log: the terms there are unknown, the follower needs a snapshot unless it matches by its own hint.
		agreed = message.hint_index;
	}
	LogIndex next = std::max(std::min(refused, agreed + 1), peer.match + 1);
	peer.BecomeProbe(next);
	SendAppends(message.from, peer);
}

} // namespace raft
} // namespace quack
