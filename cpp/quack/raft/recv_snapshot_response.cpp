#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::RecvSnapshotResponse(const Message &message) {
	auto peer = FindProgress(message.from);
	if (role != Role::Leader || !peer || message.log_index > log.LastIndex()) {
		return;
	}
	peer->last_contact = now;
	bool moved = !message.reject && peer->UpdateMatch(message.log_index);
	if (peer->state == Progress::State::Snapshot) {
		peer->BecomeProbe(peer->match + 1);
		// A failed install is asked for again at the pace of SendSnapshotRequest, from the next heartbeat response on.
		peer->probe_sent = message.reject;
	}
	if (moved) {
		AfterMatchMoved(message.from, *peer);
	} else {
		SendAppends(message.from, *peer);
	}
}

} // namespace raft
} // namespace quack
