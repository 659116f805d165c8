#include "quack/node/ready_loop.hpp"

#include <algorithm>

#include "quack/common/log.hpp"
#include "quack/node/group_start.hpp"
#include "quack/node/ready_loop_step.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs EXPIRY_INTERVAL = 10 * NS_PER_MS;

raft::Config CoreConfig(const RaftEngineConfig &config, const MemberDirectory &directory, raft::GroupId group,
                        MonotonicNs now) {
	raft::Config result;
	result.self = directory.Self();
	result.group = group;
	result.election_timeout = config.election_timeout;
	result.heartbeat_interval = config.heartbeat_interval;
	result.clock_drift_ppm = config.clock_drift_ppm;
	result.lease_reads = config.lease_reads;
	result.election_priority = directory.SelfConfig().election_priority;
	result.append_bytes_max = config.append_bytes_max;
	result.append_entries_max = config.append_entries_max;
	result.uncommitted_bytes_max = config.uncommitted_bytes_max;
	result.unapplied_bytes_max = config.apply_queue_bytes_max;
	result.committed_bytes_max = std::min(result.committed_bytes_max, config.apply_queue_bytes_max);
	result.quiet_after = config.quiet_after;
	result.random_seed = directory.Self() ^ static_cast<uint64_t>(now);
	return result;
}

} // namespace

ReadyLoop::ReadyLoop(LoopContext context_p)
    : context(std::move(context_p)), config(context.config), mailbox(*context.mailbox),
      outbox(context.directory, context.transport), beats(config.election_timeout) {
}

ReadyLoop::~ReadyLoop() {
	Stop();
}

//! With the lock held.
Status ReadyLoop::OpenGroup(const storage::RecoveredGroup &recovered, const AppliedPosition &applied) {
	if (recovered.snapshot.index > applied.index) {
		return Status(ErrorCode::Corruption, "group " + std::to_string(recovered.group) +
		                                         ": the log starts after index " +
		                                         std::to_string(recovered.snapshot.index) +
		                                         " but the state machine stands at " + std::to_string(applied.index) +
		                                         "; the database file is older than the log: reseed this node");
	}
	raft::RestoredState restored;
	restored.hard_state = recovered.hard_state;
	restored.snapshot = recovered.snapshot;
	restored.applied_index = applied.index;
	auto start = context.clock.Now();
	auto group = std::make_unique<GroupState>(recovered.group, context.log.Reader(recovered.group), recovered,
	                                          CoreConfig(config, context.directory, recovered.group, start), restored,
	                                          start, context.budget);
	group->leaderless_since = start;
	group->soft.role = group->core.GetStatus().role;
	// A state machine that never saw a membership entry is still in the membership the log starts with.
	if (applied.membership.voters.empty()) {
		group->history.Reset(recovered.snapshot.index, recovered.snapshot.membership);
	} else {
		group->history.Reset(applied.index, applied.membership);
	}
	auto &opened = *group;
	groups[recovered.group] = std::move(group);
	NoteMembership(opened);
	return Status::Ok();
}

void ReadyLoop::Start() {
	mailbox.Push(LoopEvent(GroupsChanged {}));
	thread = std::thread([this] {
		while (!is_stopping.load()) {
			// After a panic the loop lives on, degraded: it no longer touches the cores but answers callers.
			RunGuarded(context.latch, "event loop", [this] { Run(); });
		}
	});
}

void ReadyLoop::Stop() {
	is_stopping.store(true);
	mailbox.Close();
	if (thread.joinable()) {
		thread.join();
	}
	std::vector<LoopEvent> events;
	mailbox.TakeAll(events, 0);
	Completions calls;
	{
		std::lock_guard<std::mutex> guard(lock);
		Status failure(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping; retry on another node");
		while (round_next < round.size()) {
			RefuseEvent(round[round_next++], failure);
		}
		for (auto &event : events) {
			RefuseEvent(event, failure);
		}
		FailPending(failure);
		calls.swap(completions);
	}
	for (auto &call : calls) {
		call();
	}
}

void ReadyLoop::Run() {
	while (!is_stopping.load()) {
		RunOnce();
	}
}

void ReadyLoop::RunOnce() {
	MonotonicNs wait = 0;
	auto is_interrupted = false;
	{
		std::lock_guard<std::mutex> guard(lock);
		wait = WaitTime();
		is_interrupted = round_next < round.size();
	}
	// Only this thread touches the round, except when it has ended.
	if (!is_interrupted) {
		round_next = 0;
		mailbox.TakeAll(round, wait);
	}
	Completions calls;
	{
		std::lock_guard<std::mutex> guard(lock);
		// After TakeAll: a lease read is linearizable only if the time is taken after it was asked for.
		now = context.clock.Now();
		if (context.latch.IsSet()) {
			RunDegraded();
		} else {
			RunLive();
		}
		calls.swap(completions);
	}
	if (context.latch.IsSet()) {
		outbox.Clear();
	} else {
		outbox.Flush();
		auto to_self = outbox.TakeSelf();
		if (!to_self.empty()) {
			mailbox.Push(LoopEvent(SelfMessages {std::move(to_self)}));
		}
	}
	for (auto &call : calls) {
		call();
	}
}

void ReadyLoop::RunDegraded() {
	Status failure(ErrorCode::Degraded, "node '" + config.node_id + "' is out of service: " + context.latch.Reason());
	while (round_next < round.size()) {
		RefuseEvent(round[round_next++], failure);
	}
	FailPending(failure);
}

void ReadyLoop::RunLive() {
	while (round_next < round.size()) {
		Handle(round[round_next++]);
	}
	WakeForSilentNodes();
	TickGroups();
	AskForState();
	PauseApplying();
	AskForWhatIsGone();
	auto is_expiry_due = now - expired_at >= EXPIRY_INTERVAL;
	expired_at = is_expiry_due ? now : expired_at;
	for (auto &entry : groups) {
		auto &group = *entry.second;
		DrainDeferred(group);
		HandOverWhenDiskFails(group);
		Route(group);
		AskReads(group);
		CheckMembers(group);
		CampaignInNewGroup(group);
		FollowRoot(group);
		SpreadLeader(group);
		if (is_expiry_due) {
			UpdateAddresses(group);
			ReplaceLostDisks(group);
			Expire(group);
			CutLater(group);
		}
	}
	outbox.AddBeats(beats, now);
}

MonotonicNs ReadyLoop::WaitTime() const {
	if (context.latch.IsSet()) {
		return NS_PER_SECOND;
	}
	auto current = context.clock.Now();
	auto deadline = current + NS_PER_SECOND;
	if (!awaiting.empty() && !is_state_asked) {
		deadline = std::max(current, ask_state_after);
	}
	deadline = std::min(deadline, beats.NextDeadline(current));
	for (auto &entry : groups) {
		auto &group = *entry.second;
		if (!group.is_frozen) {
			deadline = std::min(deadline, TickTime(group));
		}
		if (HasRequests(group)) {
			deadline = std::min(deadline, expired_at + EXPIRY_INTERVAL);
		}
		if (group.campaign_after != 0) {
			deadline = std::min(deadline, group.campaign_after);
		}
		if (group.proposals.HasWaiting() && group.route_after > current) {
			deadline = std::min(deadline, group.route_after);
		}
	}
	return std::max<MonotonicNs>(deadline - current, 0);
}

GroupState *ReadyLoop::Find(raft::GroupId group) {
	auto entry = groups.find(group);
	return entry == groups.end() ? nullptr : entry->second.get();
}

void ReadyLoop::Handle(LoopEvent &event) {
	std::visit([this](auto &body) { On(body); }, event);
}

bool ReadyLoop::TakeInboundBytes(size_t bytes) {
	auto before = inbound_bytes.fetch_add(bytes);
	if (before + bytes > config.inbound_bytes_max && before > 0) {
		inbound_bytes.fetch_sub(bytes);
		return false;
	}
	return true;
}

void ReadyLoop::On(PeerBytes &event) {
	inbound_bytes.fetch_sub(event.bytes.size());
	auto messages = wire::DecodeEnvelope(event.bytes);
	if (!messages.IsOk()) {
		Log(LogLevel::Error, "node", "bad_envelope",
		    {{"peer", event.peer}, {"message", messages.GetStatus().ToString()}});
		return;
	}
	beats.Heard(context.directory.IdOf(event.peer), now);
	for (auto &message : messages.Value()) {
		if (message.to == context.directory.Self() && context.directory.MaySpeakFor(event.peer, message.from)) {
			Receive(std::move(message));
			continue;
		}
		refused_messages++;
		if ((refused_messages & (refused_messages - 1)) == 0) {
			Log(LogLevel::Warn, "node", "message_of_another_node_refused",
			    {{"peer", event.peer}, {"count", std::to_string(refused_messages)}});
		}
	}
}

void ReadyLoop::On(SelfMessages &event) {
	for (auto &message : event.messages) {
		Receive(std::move(message));
	}
}

bool ReadyLoop::TakesEntries() const {
	return !DiskIsFull() && context.writer.QueueBytes() < config.log_queue_bytes_max;
}

void ReadyLoop::Receive(raft::Message message) {
	auto group = Find(message.group);
	if (group == nullptr) {
		return;
	}
	if (message.type == raft::MessageType::AppendRequest && !message.entries.empty() &&
	    (!TakesEntries() || !group->deferred.empty())) {
		// With a full disk the sender will repeat it; a merely busy one takes it in soon.
		if (!DiskIsFull() && group->deferred.size() < config.append_entries_max) {
			group->deferred.push_back(std::move(message));
		}
		return;
	}
	Step(*group, raft::ReceiveEvent {std::move(message)});
}

void ReadyLoop::DrainDeferred(GroupState &group) {
	while (!group.deferred.empty() && TakesEntries()) {
		auto message = std::move(group.deferred.front());
		group.deferred.pop_front();
		Step(group, raft::ReceiveEvent {std::move(message)});
	}
}

//! A quiet group has no timers of its own.
void ReadyLoop::WakeForSilentNodes() {
	auto silent = beats.Silent(now);
	for (auto &entry : groups) {
		if (!silent.empty() && entry.second->core.IsQuiet()) {
			Step(*entry.second, raft::WakeEvent {silent});
		}
	}
}

//! When the core wants to be stepped. A leader's heartbeat may leave a little late, at times that all groups share:
//! then those of all groups to one peer leave in one envelope, and the thread wakes up once for all.
MonotonicNs ReadyLoop::TickTime(const GroupState &group) const {
	if (group.core.IsQuiet()) {
		return group.core.NextDeadline();
	}
	auto grid = std::max<MonotonicNs>(config.heartbeat_interval / 4, 1);
	auto due = std::min(group.core.NextDeadline(), group.last_tick + config.heartbeat_interval / 2);
	return IsLeader(group) && due > group.last_tick ? (due + grid - 1) / grid * grid : due;
}

void ReadyLoop::TickGroups() {
	for (auto &entry : groups) {
		auto &group = *entry.second;
		if (now >= TickTime(group)) {
			group.last_tick = now;
			Step(group, raft::TickEvent {});
		}
	}
}

void ReadyLoop::On(EntriesDurable &event) {
	auto group = Find(event.group);
	if (group != nullptr && !group->is_frozen) {
		group->view.Flushed(event.index, event.term);
		Step(*group, raft::AppendCompletedEvent {event.index, event.term});
		CutLater(*group);
	}
}

void ReadyLoop::On(EntriesApplied &event) {
	auto group = Find(event.group);
	if (group != nullptr) {
		Step(*group, raft::AppliedEvent {event.index});
	}
	if (event.group == raft::ROOT_GROUP && !shelved.empty()) {
		AlignGroups();
	}
}

void ReadyLoop::On(DiskState &event) {
	disk_alarm = event.is_full ? event.message : "";
	if (!event.is_full) {
		return;
	}
	for (auto &entry : groups) {
		entry.second->deferred.clear();
	}
	// The tail for slow followers is a luxury now.
	StateDurable durable {context.state_machine.Durable()};
	On(durable);
}

void ReadyLoop::On(StateDurable &event) {
	for (auto &position : event.positions) {
		auto group = Find(position.group);
		if (group != nullptr && !group->is_frozen) {
			Truncate(*group, position.index);
		}
	}
}

//! Forgets the log up to `limit`, less the tail for slow followers and what receivers of open images still need.
void ReadyLoop::Truncate(GroupState &group, raft::LogIndex limit) {
	auto held = context.server.Shelf().HeldIndex(group.id);
	group.cut_later = std::min(held, group.view.DurableIndex()) < limit ? limit : 0;
	if (held < limit) {
		held = std::max(held, context.log.TailStart(group.id, limit, config.snapshot_log_bytes_max));
	}
	limit = std::min({limit, held, group.view.DurableIndex()});
	auto target = limit;
	if (!DiskIsFull() && config.log_tail_bytes > 0 && config.log_tail_entries > 0) {
		auto by_entries = limit > config.log_tail_entries ? limit - config.log_tail_entries : 0;
		target = std::max(context.log.TailStart(group.id, limit, config.log_tail_bytes), by_entries);
	}
	if (target <= group.view.Start().index) {
		return;
	}
	auto term = group.view.TermAt(target);
	auto membership = group.history.At(target);
	if (!term.IsOk() || !membership) {
		return;
	}
	LogCommand command;
	command.kind = LogCommand::Kind::TruncatePrefix;
	command.group = group.id;
	command.position = {target, term.Value(), std::move(*membership)};
	// Hidden first, removed later: no read of a core can meet a half removed log.
	group.view.Compact(command.position);
	group.history.Prune(target);
	context.writer.Push(std::move(command));
}

//! Without this an idle node would keep the log of an image that is long gone, or of entries that were applied before
//! they were durable here, until its next checkpoint.
void ReadyLoop::CutLater(GroupState &group) {
	auto limit = group.cut_later;
	if (limit != 0 && !group.is_frozen && group.view.DurableIndex() >= limit &&
	    context.server.Shelf().HeldIndex(group.id) >= limit) {
		Truncate(group, limit);
	}
}

//! A leader that cannot write is of no use as one: followers still hear its heartbeats, so it must go by itself.
void ReadyLoop::HandOverWhenDiskFails(GroupState &group) {
	auto is_hung = context.disk.IsHung(now);
	if ((!DiskIsFull() && !is_hung) || !IsLeader(group) || now < group.handover_after) {
		return;
	}
	group.handover_after = now + 2 * config.election_timeout;
	Log(LogLevel::Warn, "node", "handing_over",
	    {{"group", std::to_string(group.id)}, {"why", is_hung ? context.disk.Describe(now) : "the disk is full"}});
	Step(group, raft::TransferLeadershipEvent {raft::NO_NODE});
}

void ReadyLoop::On(SnapshotInstalled &event) {
	if (!awaiting.empty()) {
		StateFetched();
		return;
	}
	auto group = Find(event.group);
	auto is_answered = false;
	for (auto &position : event.positions) {
		if (group == nullptr || !group->awaits_image || position.group != event.group) {
			continue;
		}
		is_answered = true;
		group->is_frozen = true;
		group->deferred.clear();
		LogCommand command;
		command.kind = LogCommand::Kind::Reset;
		command.group = group->id;
		command.hard_state = group->hard_state;
		command.position = position.meta;
		context.writer.Push(std::move(command));
	}
	if (group != nullptr && group->awaits_image && !is_answered) {
		Step(*group, raft::SnapshotInstalledEvent {raft::SnapshotMeta(), false});
	}
	if (group != nullptr) {
		group->awaits_image = false;
	}
	paused_until = 0;
	for (auto &entry : PositionsOf(context.state_machine)) {
		auto other = Find(entry.first);
		auto is_beyond = other != nullptr && !other->is_frozen && entry.second.index > other->view.LastIndex();
		if (is_beyond && !other->awaits_image) {
			MoveToState(*other, entry.second);
		}
	}
}

void ReadyLoop::On(LogWasReset &event) {
	auto group = Find(event.group);
	if (group == nullptr) {
		return;
	}
	if (group->is_new_core) {
		Thaw(*group);
		return;
	}
	group->view.Reset(event.position);
	group->history.Reset(event.position.index, event.position.membership);
	group->proposals.OnSnapshot(event.position.index, completions);
	group->is_frozen = false;
	Step(*group, raft::SnapshotInstalledEvent {event.position, true});
	NoteMembership(*group);
}

void ReadyLoop::On(SnapshotFailed &event) {
	if (!awaiting.empty()) {
		StateNotFetched();
		return;
	}
	auto group = Find(event.group);
	if (group != nullptr && group->awaits_image) {
		group->awaits_image = false;
		Step(*group, raft::SnapshotInstalledEvent {raft::SnapshotMeta(), false});
	}
}

void ReadyLoop::On(PeerChanged &event) {
	auto peer = context.directory.IdOf(event.peer);
	if (event.is_up && context.directory.HasTold(event.peer)) {
		DialMembers();
	}
	if (event.is_up && !groups.empty()) {
		// The hello of this session may have left before the cluster was formed.
		SayHelloAgain(event.peer, [] {});
	}
	for (auto &entry : groups) {
		if (!event.is_up) {
			Step(*entry.second, raft::PeerUnreachableEvent {peer});
		}
		entry.second->route_after = 0;
	}
}

std::vector<GroupView> ReadyLoop::View() const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<GroupView> result;
	for (auto &entry : groups) {
		auto &group = *entry.second;
		result.push_back({group.core.GetStatus(), group.soft, group.leaderless_since, group.is_frozen});
	}
	return result;
}

std::string ReadyLoop::Alarm() const {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (!disk_alarm.empty()) {
			return disk_alarm;
		}
	}
	return context.disk.Describe(context.clock.Now());
}

raft::Membership ReadyLoop::StartMembership(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = groups.find(group);
	return entry == groups.end() ? raft::Membership() : entry->second->view.Start().membership;
}

} // namespace node
} // namespace quack
