#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Counted for every entry besides its payload, so that empty payloads are bounded too.
static constexpr size_t ENTRY_OVERHEAD_BYTES = 32;
//! Heartbeat rounds remembered; an answer to an older one still counts as contact, not for the lease.
static constexpr size_t ROUNDS_MAX = 1024;

void Core::Propose(const ProposeEvent &event) {
	Wake({});
	std::vector<Entry> entries;
	size_t batch_bytes = 0;
	for (auto &item : event.items) {
		ProposeResult result;
		result.request = item.request;
		result.status = CheckProposal(item);
		if (result.status.IsOk()) {
			LogIndex index = log.LastIndex() + entries.size() + 1;
			entries.push_back(MakeOwnEntry(index, EntryType::Normal, item.payload));
			batch_bytes += item.payload->size() + ENTRY_OVERHEAD_BYTES;
			uncommitted_bytes += item.payload->size() + ENTRY_OVERHEAD_BYTES;
			result.term = term;
			result.index = index;
		}
		ready.proposals.push_back(std::move(result));
	}
	if (entries.empty()) {
		return;
	}
	uncommitted.push_back({entries.back().index, batch_bytes});
	NoteActivity();
	log.Append(std::move(entries));
	BroadcastAppends();
}

Status Core::CheckProposal(const ProposeEvent::Item &item) const {
	if (!item.payload) {
		return Status(ErrorCode::InvalidArgument, "a proposal needs a payload, got none");
	}
	if (role != Role::Leader) {
		return Status(ErrorCode::NotLeader, "this node does not lead group " + std::to_string(config.group) +
		                                        "; the leader it knows is " + std::to_string(leader));
	}
	if (transfer_target != NO_NODE) {
		return Status(ErrorCode::Unavailable, "the leader of group " + std::to_string(config.group) +
		                                          " is handing over to node " + std::to_string(transfer_target) +
		                                          "; retry");
	}
	// A single proposal above the limit is let through when nothing else is pending, so that it is possible at all.
	if (uncommitted_bytes > 0 &&
	    uncommitted_bytes + item.payload->size() + ENTRY_OVERHEAD_BYTES > config.uncommitted_bytes_max) {
		return Status(ErrorCode::Overloaded, "group " + std::to_string(config.group) + " has " +
		                                         std::to_string(uncommitted_bytes) +
		                                         " bytes of uncommitted proposals, the limit is " +
		                                         std::to_string(config.uncommitted_bytes_max) + "; retry later");
	}
	return Status::Ok();
}

Entry Core::MakeOwnEntry(LogIndex index, EntryType type, SharedBytes payload) const {
	Entry entry;
	entry.term = term;
	entry.index = index;
	entry.type = type;
	entry.payload = std::move(payload);
	return entry;
}

void Core::AppendOwn(EntryType type, SharedBytes payload) {
	NoteActivity();
	log.Append({MakeOwnEntry(log.LastIndex() + 1, type, std::move(payload))});
}

Progress *Core::FindProgress(NodeId node) {
	auto found = progress.find(node);
	return found == progress.end() ? nullptr : &found->second;
}

//! The leader's own vote for an index counts only once it is durable here (dissertation §10.2.1).
LogIndex Core::MatchOf(NodeId node) const {
	if (node == config.self) {
		return log.DurableIndex();
	}
	auto found = progress.find(node);
	return found == progress.end() ? 0 : found->second.match;
}

void Core::BroadcastAppends() {
	for (auto &peer : progress) {
		SendAppends(peer.first, peer.second);
	}
}

bool Core::MaySendAppend(const Progress &peer) const {
	switch (peer.state) {
	case Progress::State::Probe:
		return !peer.probe_sent;
	case Progress::State::Replicate:
		return peer.inflights.Count() < config.inflight_messages_max &&
		       peer.inflights.Bytes() < config.inflight_bytes_max;
	case Progress::State::Snapshot:
		return false;
	}
	return false;
}

void Core::SendAppends(NodeId to, Progress &peer) {
	while (MaySendAppend(peer) && peer.next <= log.LastIndex()) {
		if (!SendOneAppend(to, peer)) {
			return;
		}
	}
	if (peer.state == Progress::State::Probe && MaySendAppend(peer)) {
		// Nothing new, but where the follower stands is not known.
		SendOneAppend(to, peer);
	}
}

//! One append from peer.next on, perhaps empty. False when nothing could be sent.
bool Core::SendOneAppend(NodeId to, Progress &peer) {
	if (!term_is_durable || peer.state == Progress::State::Snapshot) {
		return false;
	}
	auto request = MakeMessage(MessageType::AppendRequest, to);
	request.context = peer.flow;
	request.log_index = peer.next - 1;
	auto previous_term = log.TermAt(request.log_index);
	if (!previous_term.IsOk()) {
		if (previous_term.GetStatus().Code() == ErrorCode::NotFound) {
			SendSnapshotRequest(to, peer);
		} else {
			Fail(previous_term.GetStatus());
		}
		return false;
	}
	request.log_term = previous_term.Value();
	size_t bytes = 0;
	if (peer.next <= log.LastIndex() && MaySendAppend(peer)) {
		LogIndex end = std::min<LogIndex>(log.LastIndex() + 1, peer.next + config.append_entries_max);
		size_t room = config.inflight_bytes_max - std::min(config.inflight_bytes_max, peer.inflights.Bytes());
		auto entries = log.Entries(peer.next, end, std::min(config.append_bytes_max, room));
		if (!entries.IsOk()) {
			Fail(entries.GetStatus());
			return false;
		}
		request.entries = std::move(entries.Value());
		for (auto &entry : request.entries) {
			bytes += entry.payload->size();
		}
	}
	LogIndex last = request.log_index + request.entries.size();
	request.commit_index = commit_index;
	peer.commit_sent = std::max(peer.commit_sent, std::min(commit_index, last));
	if (peer.state == Progress::State::Probe) {
		peer.probe_sent = true;
		peer.probe_round = round_number;
	} else if (!request.entries.empty()) {
		peer.inflights.Add(last, bytes);
		peer.next = last + 1;
	}
	Send(std::move(request));
	return true;
}

//! Not to a peer that is not heard of, and not again before an election timeout has passed.
void Core::SendSnapshotRequest(NodeId to, Progress &peer) {
	bool is_active = now - peer.last_contact < config.election_timeout;
	bool is_due = peer.snapshot_sent_at == INT64_MIN || now - peer.snapshot_sent_at >= config.election_timeout;
	if (!is_active || !is_due) {
		peer.probe_sent = peer.state == Progress::State::Probe;
		return;
	}
	LogIndex index = log.FirstIndex() - 1;
	auto index_term = log.TermAt(index);
	if (!index_term.IsOk()) {
		Fail(index_term.GetStatus());
		return;
	}
	peer.BecomeSnapshot(index, now);
	auto request = MakeMessage(MessageType::SnapshotRequest, to);
	request.snapshot.index = index;
	request.snapshot.term = index_term.Value();
	request.snapshot.membership = CommittedMembership();
	Send(std::move(request));
}

//! One round to every node: contact, lease, read index and commit notice in one.
void Core::BroadcastHeartbeats() {
	if (!term_is_durable) {
		return;
	}
	round_number++;
	rounds.push_back({round_number, now});
	while (rounds.size() > ROUNDS_MAX || rounds.front().sent_at + config.election_timeout < now) {
		rounds.pop_front();
	}
	AssignReads();
	for (auto &item : progress) {
		SendHeartbeat(item.first, item.second, round_number);
		if (item.second.state == Progress::State::Snapshot) {
			SendSnapshotRequest(item.first, item.second);
		}
	}
	CompleteReads();
}

void Core::SendHeartbeat(NodeId to, Progress &peer, uint64_t round) {
	auto request = MakeMessage(MessageType::HeartbeatRequest, to);
	request.context = round;
	request.quiet = round != 0 && quiet_round != 0;
	request.commit_index = std::min(commit_index, peer.match);
	peer.commit_sent = std::max(peer.commit_sent, request.commit_index);
	Send(std::move(request));
}

//! Tells a new commit index to those that no append of this step told it.
void Core::NoticeCommit() {
	for (auto &item : progress) {
		if (term_is_durable && std::min(commit_index, item.second.match) > item.second.commit_sent) {
			SendHeartbeat(item.first, item.second, 0);
		}
	}
}

//! Leader: commit what a quorum has, if it is of this term (paper §5.4.2). True when the commit index moved.
bool Core::MaybeCommit() {
	auto quorum_index = std::min(JointValue(InForce(), [&](NodeId node) { return MatchOf(node); }), log.LastIndex());
	if (quorum_index <= commit_index) {
		return false;
	}
	auto quorum_term = log.TermAt(quorum_index);
	if (!quorum_term.IsOk()) {
		Fail(quorum_term.GetStatus());
		return false;
	}
	if (quorum_term.Value() != term && !sabotage.commit_old_term_by_count) {
		return false;
	}
	AdvanceCommit(quorum_index);
	ReleaseUncommitted();
	BroadcastAppends();
	NoticeCommit();
	if (term_start_index <= commit_index) {
		FollowUpMembershipCommit();
	}
	if (role == Role::Leader && !reads.empty() && reads.front().round == 0) {
		// They waited for the first commit of this term.
		BroadcastHeartbeats();
	}
	return true;
}

void Core::AdvanceCommit(LogIndex index) {
	commit_index = std::max(commit_index, std::min(index, log.LastIndex()));
}

//! Room for new proposals: bytes are freed when committed and durable here, so that a hung local disk cannot pile up
//! entries in memory.
void Core::ReleaseUncommitted() {
	LogIndex done = std::min(commit_index, log.DurableIndex());
	while (!uncommitted.empty() && uncommitted.front().last_index <= done) {
		uncommitted_bytes -= uncommitted.front().bytes;
		uncommitted.pop_front();
	}
}

} // namespace raft
} // namespace quack
