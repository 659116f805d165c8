//! A group in which everybody has everything stops ticking (DESIGN.md, "A quiet group").
#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Leader: puts off the quiet, and takes back the offer of it.
void Core::NoteActivity() {
	active_at = now;
	quiet_round = 0;
}

//! Leader: nothing is under way, and every member holds all of the log as far as is known. A leader that only fills in
//! for others (priority 0) goes on looking for a successor.
bool Core::IsIdle() const {
	if (!CommittedInOwnTerm() || commit_index != log.LastIndex() || log.PendingBatchCount() > 0 || !reads.empty() ||
	    transfer_target != NO_NODE || InForce().IsJoint() || config.election_priority == 0) {
		return false;
	}
	return std::all_of(progress.begin(), progress.end(), [&](const std::pair<const NodeId, Progress> &item) {
		auto &peer = item.second;
		return peer.state == Progress::State::Replicate && peer.match == log.LastIndex() && !peer.departing;
	});
}

//! With every heartbeat: from the first quiet one on all are, until something happens.
void Core::OfferQuiet() {
	if (config.quiet_after == 0 || (!IsIdle() && !sabotage.quiet_with_follower_behind)) {
		NoteActivity();
	} else if (quiet_round == 0 && now - active_at >= config.quiet_after) {
		quiet_round = round_number + 1;
	}
}

void Core::NoteQuietAnswer(const Message &message, Progress &peer) {
	if (message.quiet) {
		peer.quiet_acked = std::max(peer.quiet_acked, message.context);
		GoQuietWhenAllAre();
	}
}

//! The leader is the last to stop: until then it repeats the offer, and whoever missed it hears it again.
void Core::GoQuietWhenAllAre() {
	if (role != Role::Leader || quiet_round == 0) {
		return;
	}
	bool all_are = IsIdle() && std::all_of(progress.begin(), progress.end(),
	                                       [&](const auto &item) { return item.second.quiet_acked >= quiet_round; });
	quiet = all_are || sabotage.quiet_with_follower_behind;
}

//! A late offer finds a log that has grown, or a leader that will speak again because this node has not answered.
bool Core::MayFollowQuietly(const Message &request) const {
	bool has_all = request.commit_index == log.LastIndex() && commit_index == log.LastIndex();
	return request.quiet && !installing_snapshot && forwarded_reads.empty() &&
	       (has_all || sabotage.quiet_with_follower_behind);
}

//! Answers to what was asked before the quiet came do not end it, nor do repeated offers.
bool Core::Disturbs(const Message &message) const {
	switch (message.type) {
	case MessageType::HeartbeatRequest:
		return !message.quiet;
	case MessageType::HeartbeatResponse:
	case MessageType::AppendResponse:
	case MessageType::VoteResponse:
	case MessageType::SnapshotResponse:
	case MessageType::ReadIndexResponse:
		return false;
	default:
		return true;
	}
}

void Core::WakeFor(const WakeEvent &event) {
	bool concerns = event.silent.empty() || event.silent.count(leader) > 0 ||
	                std::any_of(progress.begin(), progress.end(),
	                            [&](const auto &item) { return event.silent.count(item.first) > 0; });
	if (concerns) {
		Wake(event.silent);
	}
}

//! Goes on as if a message of the group had come from every node when the node itself was last heard of: what was not
//! silent was heard of just now.
void Core::Wake(const std::map<NodeId, MonotonicNs> &silent) {
	if (!quiet) {
		return;
	}
	quiet = false;
	auto heard_at = [&](NodeId node) {
		auto found = silent.find(node);
		return found == silent.end() ? now : std::min(found->second, now);
	};
	if (role == Role::Leader) {
		NoteActivity();
		heartbeat_due = now;
		for (auto &item : progress) {
			item.second.last_contact = std::max(item.second.last_contact, heard_at(item.first));
		}
		return;
	}
	promise_until = std::max(promise_until, heard_at(leader) + config.election_timeout);
	ResetElectionTimer(heard_at(leader));
}

} // namespace raft
} // namespace quack
