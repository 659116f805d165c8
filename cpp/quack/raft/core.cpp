#include "quack/raft/core.hpp"

#include <algorithm>

namespace quack {
namespace raft {

static uint64_t MixSeed(const Config &config) {
	Prng prng(config.random_seed ^ (config.self * 0x9e3779b97f4a7c15ULL) ^ (config.group << 1));
	return prng.Next();
}

Core::Core(const Config &config_p, LogReader &log_p, const RestoredState &restored, MonotonicNs now_p,
           const Sabotage &sabotage_p)
    : config(config_p), sabotage(sabotage_p), log(log_p), prng(MixSeed(config_p)), now(now_p) {
	QUACK_CHECK(config.self != NO_NODE, "a core needs a node id");
	QUACK_CHECK(config.heartbeat_interval > 0 && config.heartbeat_interval <= config.election_timeout / 3,
	            "heartbeat_interval must be in (0, election_timeout / 3]");
	QUACK_CHECK(config.inflight_messages_max > 0 && config.append_entries_max > 0,
	            "limits of messages and entries must be at least 1");
	Restore(restored);
	// Contexts of an earlier life of this node must not match: an old answer would be a stale read index.
	next_read_context = prng.Next() ^ (static_cast<uint64_t>(now) * 0x9e3779b97f4a7c15ULL) ^ term;
	if (term > 0) {
		// It may have promised a leader its vote right before it went down.
		promise_until = now + config.election_timeout;
	}
	ResetElectionTimer();
	emitted_soft_state = {VisibleRole(), leader};
}

void Core::Restore(const RestoredState &restored) {
	term = restored.hard_state.term;
	voted_for = restored.hard_state.voted_for;
	if (restored.snapshot.term > term) {
		// Went down between the reset of the log to a snapshot of a newer term and the write of that term. A vote in it
		// would have been written, so there is none.
		term = restored.snapshot.term;
		voted_for = NO_NODE;
	}
	LogIndex start = restored.snapshot.index;
	applied_index = std::max(restored.applied_index, start);
	handed_index = applied_index;
	restored_applied_index = applied_index;
	// The state machine may be ahead of the log: it applies entries that a quorum has and that are not durable here
	// yet.
	commit_index = std::min(std::max(restored.hard_state.commit_index, applied_index), log.LastIndex());
	emitted_hard_state = {term, voted_for, restored.hard_state.commit_index};
	must_emit_hard_state = restored.snapshot.term > restored.hard_state.term;
	if (log.FirstIndex() != start + 1 || log.LastIndex() < start) {
		Fail(Status(ErrorCode::Corruption, "group " + std::to_string(config.group) +
		                                       ": the log holds entries from index " +
		                                       std::to_string(log.FirstIndex()) +
		                                       " but its start is recorded as index " + std::to_string(start)));
	} else if (log.LastTerm() > term) {
		Fail(Status(ErrorCode::Corruption, "group " + std::to_string(config.group) + ": the log ends in term " +
		                                       std::to_string(log.LastTerm()) + " above the persisted term " +
		                                       std::to_string(term)));
	}
	RestoreMemberships(restored.snapshot);
}

void Core::RestoreMemberships(const SnapshotMeta &start) {
	memberships.push_back({start.index, start.membership});
	LogIndex next = start.index + 1;
	while (fatal.IsOk() && next <= log.LastIndex()) {
		auto entries = log.Entries(next, log.LastIndex() + 1, config.committed_bytes_max);
		if (!entries.IsOk()) {
			Fail(entries.GetStatus());
			return;
		}
		for (auto &entry : entries.Value()) {
			if (entry.type == EntryType::Membership && !NoteMembershipEntry(entry)) {
				return;
			}
		}
		next = entries.Value().back().index + 1;
	}
	PruneMemberships();
}

Ready Core::Step(const Event &event) {
	ready = Ready();
	now = std::max(now, event.now);
	if (fatal.IsOk() && !std::holds_alternative<SnapshotInstalledEvent>(event.body)) {
		auto status = log.BeginStep();
		if (!status.IsOk()) {
			Fail(status);
		}
	}
	if (fatal.IsOk()) {
		Dispatch(event);
	}
	if (fatal.IsOk()) {
		AnswerTransferAfterwards();
		FinishStep();
	}
	if (!fatal.IsOk()) {
		ready = Ready();
		ready.fatal = fatal;
	}
	return std::move(ready);
}

void Core::Dispatch(const Event &event) {
	if (std::holds_alternative<TickEvent>(event.body)) {
		Tick();
	} else if (auto receive = std::get_if<ReceiveEvent>(&event.body)) {
		Receive(receive->message);
	} else if (auto propose = std::get_if<ProposeEvent>(&event.body)) {
		Propose(*propose);
	} else if (auto completed = std::get_if<AppendCompletedEvent>(&event.body)) {
		AppendCompleted(*completed);
	} else if (auto applied = std::get_if<AppliedEvent>(&event.body)) {
		Applied(applied->index);
	} else if (auto read = std::get_if<ReadBarrierEvent>(&event.body)) {
		ReadBarrier(read->request);
	} else if (auto transfer = std::get_if<TransferLeadershipEvent>(&event.body)) {
		TransferLeadership(transfer->target, transfer->request);
	} else if (auto change = std::get_if<ChangeMembershipEvent>(&event.body)) {
		ChangeMembership(*change);
	} else if (auto installed = std::get_if<SnapshotInstalledEvent>(&event.body)) {
		SnapshotInstalled(*installed);
	} else if (auto unreachable = std::get_if<PeerUnreachableEvent>(&event.body)) {
		auto peer = FindProgress(unreachable->peer);
		if (peer || unreachable->peer == leader) {
			Wake({});
		}
		if (role == Role::Leader && peer && peer->state == Progress::State::Replicate) {
			peer->BecomeProbe(peer->match + 1);
		}
	} else if (std::holds_alternative<CampaignEvent>(event.body)) {
		Wake({});
		Campaign(false);
	} else if (auto wake = std::get_if<WakeEvent>(&event.body)) {
		WakeFor(*wake);
	}
}

void Core::Tick() {
	if (quiet) {
		return;
	}
	if (role == Role::Leader) {
		TickLeader();
		return;
	}
	RetryForwardedReads();
	if (now >= election_deadline) {
		ElectionTimedOut();
	}
}

void Core::TickLeader() {
	if (!HasQuorumContact() && !sabotage.lease_without_check_quorum) {
		// Check-quorum (dissertation §6.2): a leader cut off from its quorum must not look like one.
		BecomeFollower(term, NO_NODE);
		return;
	}
	if (transfer_target != NO_NODE && now >= transfer_deadline) {
		auto peer = FindProgress(transfer_target);
		bool is_behind = peer && peer->match < log.LastIndex();
		EndTransfer(is_behind ? TransferResult::Outcome::Lagging : TransferResult::Outcome::NotTaken);
	}
	if (now >= heartbeat_due) {
		heartbeat_due = now + config.heartbeat_interval;
		OfferQuiet();
		BroadcastHeartbeats();
		HandOverWhenDiskHangs();
		HandOverAsLastResort();
		if (transfer_target != NO_NODE) {
			ContinueTransfer();
		}
		GoQuietWhenAllAre();
	}
}

void Core::FinishStep() {
	PruneMemberships();
	auto &entries = log.EndStep(now);
	ready.entries = entries;
	HandOutCommitted();
	// A torn batch may keep the hard state and lose the entries after it: the hint must not name what only they hold.
	LogIndex hint = entries.empty() ? commit_index : std::min(commit_index, entries.front().index - 1);
	HardState hard_state {term, voted_for, hint};
	bool must_persist =
	    must_emit_hard_state || term != emitted_hard_state.term || voted_for != emitted_hard_state.voted_for;
	must_emit_hard_state = false;
	// A commit index alone is not worth a write; it rides along.
	if (must_persist || (!entries.empty() && hard_state != emitted_hard_state)) {
		ready.hard_state = hard_state;
		emitted_hard_state = hard_state;
	}
	SoftState soft_state {VisibleRole(), leader};
	if (soft_state.role != emitted_soft_state.role || soft_state.leader != emitted_soft_state.leader) {
		ready.soft_state = soft_state;
		emitted_soft_state = soft_state;
	}
}

void Core::HandOutCommitted() {
	LogIndex limit = sabotage.apply_past_commit ? log.LastIndex() : std::min(commit_index, log.LastIndex());
	if (installing_snapshot || handed_index >= limit || unapplied_bytes >= config.unapplied_bytes_max) {
		return;
	}
	auto entries = log.Entries(handed_index + 1, limit + 1, config.committed_bytes_max);
	if (!entries.IsOk()) {
		Fail(entries.GetStatus());
		return;
	}
	ready.committed = std::move(entries.Value());
	size_t bytes = 0;
	for (auto &entry : ready.committed) {
		bytes += entry.payload->size();
	}
	handed_index = ready.committed.back().index;
	unapplied.push_back({handed_index, bytes});
	unapplied_bytes += bytes;
}

void Core::Applied(LogIndex index) {
	if (index > handed_index) {
		Fail(Status(ErrorCode::Internal, "group " + std::to_string(config.group) + ": index " + std::to_string(index) +
		                                     " was reported applied, but entries were handed out only up to " +
		                                     std::to_string(handed_index)));
		return;
	}
	applied_index = std::max(applied_index, index);
	while (!unapplied.empty() && unapplied.front().last_index <= applied_index) {
		unapplied_bytes -= unapplied.front().bytes;
		unapplied.pop_front();
	}
}

void Core::AppendCompleted(const AppendCompletedEvent &event) {
	log.AppendCompleted(event.index, event.term);
	if (role != Role::Leader) {
		return;
	}
	if (!term_is_durable && log.DurableIndex() >= term_start_index) {
		term_is_durable = true;
		BroadcastAppends();
		BroadcastHeartbeats();
	}
	MaybeCommit();
	ReleaseUncommitted();
}

void Core::Fail(Status status) {
	if (fatal.IsOk()) {
		fatal = std::move(status);
	}
}

Message Core::MakeMessage(MessageType type, NodeId to) const {
	Message message;
	message.type = type;
	message.group = config.group;
	message.from = config.self;
	message.to = to;
	message.term = term;
	return message;
}

void Core::Send(Message message) {
	ready.messages.push_back(std::move(message));
}

void Core::SendAfterAppend(Message message) {
	ready.messages_after_append.push_back(std::move(message));
}

Role Core::VisibleRole() const {
	if (role == Role::Follower && Contains(InForce().learners, config.self) && !IsVoter(InForce(), config.self)) {
		return Role::Learner;
	}
	return role;
}

MonotonicNs Core::NextDeadline() const {
	LogIndex limit = std::min(commit_index, log.LastIndex());
	if (!installing_snapshot && handed_index < limit && unapplied_bytes < config.unapplied_bytes_max) {
		return now;
	}
	if (quiet) {
		return INT64_MAX;
	}
	if (role == Role::Leader) {
		return transfer_target != NO_NODE ? std::min(heartbeat_due, transfer_deadline) : heartbeat_due;
	}
	MonotonicNs deadline = election_deadline;
	for (auto &read : forwarded_reads) {
		deadline = std::min(deadline, read.second.last_sent + 2 * config.heartbeat_interval);
	}
	return deadline;
}

CoreStatus Core::GetStatus() const {
	CoreStatus status;
	status.self = config.self;
	status.group = config.group;
	status.role = VisibleRole();
	status.term = term;
	status.leader = leader;
	status.commit_index = commit_index;
	status.applied_index = applied_index;
	status.last_index = log.LastIndex();
	status.durable_index = log.DurableIndex();
	status.membership = InForce();
	status.membership_index = InForceIndex();
	status.committed_membership = CommittedMembership();
	status.pending_reads = forwarded_reads.size();
	status.is_quiet = quiet;
	if (role != Role::Leader) {
		return status;
	}
	status.transfer_in_progress = transfer_target != NO_NODE;
	status.transfer_target = transfer_target;
	status.lease_until = HasLease() ? LeaseUntil() : 0;
	status.uncommitted_bytes = uncommitted_bytes;
	status.pending_reads = reads.size();
	for (auto &item : progress) {
		auto &peer = item.second;
		ProgressStatus row;
		row.node = item.first;
		row.state = peer.state;
		row.match = peer.match;
		row.next = peer.next;
		row.is_learner = !IsVoter(InForce(), item.first);
		row.recent_active = quiet || now - peer.last_contact < config.election_timeout;
		row.inflight_messages = peer.inflights.Count();
		row.last_contact = peer.last_contact;
		row.election_priority = peer.election_priority;
		status.progress.push_back(row);
	}
	return status;
}

} // namespace raft
} // namespace quack
