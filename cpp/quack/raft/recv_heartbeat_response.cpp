#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::RecvHeartbeatResponse(const Message &message) {
	auto peer = FindProgress(message.from);
	if (role != Role::Leader || !peer || message.context > round_number) {
		return;
	}
	peer->last_contact = now;
	NoteQuietAnswer(message, *peer);
	peer->election_priority = static_cast<uint32_t>(std::min<uint64_t>(message.hint_index, UINT32_MAX));
	if (message.context > peer->round_acked) {
		peer->round_acked = message.context;
		auto round = std::lower_bound(rounds.begin(), rounds.end(), message.context,
		                              [](const HeartbeatRound &item, uint64_t number) { return item.number < number; });
		if (round != rounds.end() && round->number == message.context) {
			peer->round_sent_at = round->sent_at;
		}
		CompleteReads();
	}
	// Heals lost appends and lost answers: ask again from where we believe the follower to be. Not after the round that
	// left together with a probe: the probe's answer waits for a disk and is merely later.
	bool is_probe_fresh = peer->probe_sent && message.context <= peer->probe_round + 1;
	if (peer->state == Progress::State::Snapshot || (peer->state == Progress::State::Probe && is_probe_fresh)) {
		return;
	}
	peer->probe_sent = false;
	if (peer->match < log.LastIndex() || peer->state == Progress::State::Probe) {
		auto had = ready.messages.size();
		SendAppends(message.from, *peer);
		if (ready.messages.size() == had) {
			SendOneAppend(message.from, *peer);
		}
	}
}

} // namespace raft
} // namespace quack
