#include "sim/node.hpp"

#include <algorithm>

#include "quack/common/check.hpp"
#include "quack/raft/quorum.hpp"

namespace quack {
namespace sim {

namespace {

//! Enough to get into the middle of opening a segment.
constexpr uint64_t POWER_CUT_CALLS_MAX = 10;

raft::SnapshotMeta FirstStart(const raft::Membership &initial) {
	raft::SnapshotMeta meta;
	meta.membership = initial;
	return meta;
}

} // namespace

SimNode::SimNode(World &world_p, NodeListener &listener_p, uint32_t slot_p, const raft::Membership &initial_p)
    : world(world_p), listener(listener_p), slot(slot_p), initial(initial_p), id(MakeNodeId(slot_p, 0)),
      prng(world_p.settings.seed ^ (0x6e6f646500000000ULL + slot_p)), machine(world_p.settings.key_count, initial_p),
      snapshots(world_p.settings, world_p.sabotage, world_p.coverage, *this),
      beats(world_p.settings.config.election_timeout) {
	membership = initial;
	disk = MakeDisk();
}

std::unique_ptr<SimDisk> SimNode::MakeDisk() {
	DiskOptions options;
	options.seed = world.settings.seed ^ (0x6469736b00000000ULL + id);
	options.cache_bytes = world.settings.log_cache_bytes;
	options.spare_segments_max = world.settings.log_spare_segments_max;
	options.recovery_crash_percent = world.settings.recovery_crash_percent;
	options.has_oracle = world.ChecksAll();
	options.sabotage = world.sabotage;
	return std::make_unique<SimDisk>(options, FirstStart(initial), world.sink);
}

void SimNode::Start() {
	QUACK_CHECK(!core, "a running node is not started again");
	disk->Recover();
	machine = disk->checkpoint ? *disk->checkpoint : RegisterMachine(world.settings.key_count, initial);
	life++;
	clock.Reset(world.queue.Now(), static_cast<MonotonicNs>(prng.Below(1000) * NS_PER_SECOND), clock_rate);
	snapshots.Begin(id, clock.Local(world.queue.Now()));
	raft::RestoredState restored;
	restored.hard_state = disk->Written().hard_state;
	restored.snapshot = disk->Written().base;
	restored.applied_index = machine.AppliedIndex();
	raft::Config config = world.settings.config;
	config.self = id;
	config.random_seed = prng.Next();
	if (world.settings.varied_priorities) {
		config.election_priority = 20 + 40 * slot;
	}
	if (slot == world.settings.zero_priority_slot) {
		config.election_priority = 0;
	}
	core = std::make_unique<raft::Raft>(config, *disk, restored, clock.Local(world.queue.Now()), world.sabotage);
	auto status = core->GetStatus();
	role = status.role;
	term = status.term;
	leader = raft::NO_NODE;
	membership = status.membership;
	hard_state = restored.hard_state;
	commit_index = restored.applied_index;
	beats.Watch({}, 0);
	was_quiet = false;
	awake_since = world.queue.Now();
	world.quiescence.OnStart(id);
	if (config.quiet_after > 0) {
		PushEvent(0, EventKind::BeatTick, 0);
	}
	world.trace.Add(Mix(id, life));
	world.trace.Print("%10.3f  node %llu starts life %u: term %llu, log %llu..%llu, applied %llu",
	                  static_cast<double>(world.queue.Now()) / NS_PER_MS, static_cast<unsigned long long>(id), life,
	                  static_cast<unsigned long long>(term), static_cast<unsigned long long>(disk->FirstIndex()),
	                  static_cast<unsigned long long>(disk->LastIndex()),
	                  static_cast<unsigned long long>(machine.AppliedIndex()));
	ScheduleTick();
}

void SimNode::Crash(CrashKind kind, BitFlip flip) {
	core.reset();
	life++;
	paused_until = 0;
	world.coverage.crashes++;
	world.quiescence.OnCrash(id, world.queue.Now());
	kind = disk->HasLostPower() ? CrashKind::PowerLoss : kind;
	world.coverage.lost_writes_at_crash += disk->Crash(kind, flip, prng);
	bool behind =
	    disk->checkpoint && !disk->Written().Holds(disk->checkpoint->AppliedIndex(), disk->checkpoint->AppliedTerm());
	world.coverage.logs_reset_at_recovery += behind ? 1 : 0;
	gated.clear();
	sync_in_flight = false;
	apply_queue.clear();
	apply_in_flight = false;
	pending_writes.clear();
	pending_reads.clear();
	world.coverage.snapshot_fetches_cut_by_crash += installing ? 1 : 0;
	installing = false;
	snapshots.End(kind);
	pending_install.reset();
	secret_entries = false;
	pending_checkpoint.reset();
	tick_generation++;
	tick_at = 0;
	role = raft::Role::Follower;
	leader = raft::NO_NODE;
	world.trace.Add(Mix(id, 0xdead));
	world.trace.Add(disk->OperationCount());
	world.trace.Add(Mix(disk->Written().base.index, disk->Written().LastIndex()));
	world.trace.Print("%10.3f  node %llu crashes (%s), log ends at %llu",
	                  static_cast<double>(world.queue.Now()) / NS_PER_MS, static_cast<unsigned long long>(id),
	                  kind == CrashKind::Process ? "process" : "power loss",
	                  static_cast<unsigned long long>(disk->Written().LastIndex()));
}

void SimNode::ReplaceIdentity() {
	QUACK_CHECK(!core, "only a crashed node loses its disk");
	bool keeps = disk->IsDamaged() && world.sabotage.keep_identity;
	incarnation += keeps ? 0 : 1;
	id = MakeNodeId(slot, incarnation);
	world.coverage.Add(disk->Counters());
	disk = MakeDisk();
	snapshots.Forget();
	membership = initial;
	world.coverage.identities_replaced++;
}

bool SimNode::Rot() {
	return disk->Rot(prng);
}

void SimNode::SetClockRate(int32_t rate_ppm) {
	clock_rate = rate_ppm;
	clock.SetRate(world.queue.Now(), rate_ppm);
}

void SimNode::MayCutPower() {
	if (!world.is_healed && prng.Chance(world.settings.power_cut_permille, 1000)) {
		disk->CutPowerAfter(1 + prng.Below(POWER_CUT_CALLS_MAX));
	}
}

void SimNode::CheckPower() {
	if (core && disk->HasLostPower()) {
		Crash(CrashKind::PowerLoss, BitFlip::None);
		listener.OnPowerLost(*this);
	}
}

void SimNode::Handle(const SimEvent &event) {
	HandleEvent(event);
	CheckPower();
}

void SimNode::HandleEvent(const SimEvent &event) {
	switch (event.kind) {
	case EventKind::Tick:
		if (event.arg == tick_generation) {
			tick_at = 0;
			Step(raft::TickEvent());
		}
		return;
	case EventKind::SyncDone:
		OnSyncDone(event.arg);
		return;
	case EventKind::BeatTick:
		OnBeatTick();
		return;
	case EventKind::EarlyAnswer:
		OpenGates(event.arg);
		return;
	case EventKind::ApplyDone:
		OnApplyDone();
		return;
	case EventKind::Unreachable: {
		raft::PeerUnreachableEvent unreachable;
		unreachable.peer = event.arg;
		Step(unreachable);
		return;
	}
	case EventKind::CheckpointBegin:
		OnCheckpointBegin();
		return;
	case EventKind::SnapshotTimeout:
	case EventKind::SnapshotRetry:
	case EventKind::SnapshotGiveUp:
		snapshots.Handle(event, clock.Local(world.queue.Now()));
		return;
	case EventKind::SnapshotDurable:
		FinishSnapshot();
		return;
	case EventKind::CheckpointDurable:
		OnCheckpointDurable();
		return;
	default:
		QUACK_CHECK(false, "not an event of a node");
	}
}

void SimNode::Deliver(raft::Message message) {
	world.trace.AddMessage(message);
	if (world.trace.IsPrinting()) {
		world.trace.Print("%10.3f    recv %s", static_cast<double>(world.queue.Now()) / NS_PER_MS,
		                  Describe(message).c_str());
	}
	HearBeat(message.from);
	raft::ReceiveEvent receive;
	receive.message = std::move(message);
	Step(std::move(receive));
}

void SimNode::Propose(const std::vector<uint32_t> &ops, const std::vector<SharedBytes> &payloads) {
	raft::ProposeEvent propose;
	for (size_t i = 0; i < ops.size(); i++) {
		raft::ProposeEvent::Item item;
		item.request = ops[i];
		item.payload = payloads[i];
		propose.items.push_back(std::move(item));
	}
	Step(std::move(propose));
}

void SimNode::Read(uint32_t op) {
	world.read_index.OnAsked(op, world.leader_completeness.CommitIndex());
	if (role == raft::Role::Leader) {
		world.coverage.reads_on_leader++;
		bool has_lease = core->GetStatus().lease_until > clock.Local(world.queue.Now());
		world.coverage.reads_under_lease += world.settings.config.lease_reads && has_lease ? 1 : 0;
	} else {
		world.coverage.reads_on_follower += leader != raft::NO_NODE ? 1 : 0;
	}
	raft::ReadBarrierEvent read;
	read.request = op;
	Step(read);
}

void SimNode::Step(decltype(raft::Event::body) body) {
	raft::Event event;
	event.now = clock.Local(world.queue.Now());
	event.body = std::move(body);
	raft::Role role_before = role;
	raft::Term term_before = term;
	if (role == raft::Role::Leader) {
		membership_before = membership;
	}
	raft::Ready ready = core->Step(event);
	world.coverage.steps++;
	if (world.ChecksAll()) {
		core->CheckInvariants();
	}
	world.trace.Add(id << 8 | event.body.index());
	world.trace.AddReady(ready);
	Process(ready, role_before, term_before);
	CheckPower();
	if (core) {
		NoteQuiet();
		ScheduleTick();
	}
}

void SimNode::HearBeat(raft::NodeId node) {
	beats.Heard(node, clock.Local(world.queue.Now()));
}

void SimNode::OnBeatTick() {
	auto now = clock.Local(world.queue.Now());
	std::set<raft::NodeId> others;
	for (auto member : raft::AllMembers(membership)) {
		others.insert(member);
	}
	others.erase(id);
	beats.Watch(others, now);
	auto silent = beats.Silent(now);
	if (core->IsQuiet() && !silent.empty() && !world.sabotage.ignore_silence) {
		Step(raft::WakeEvent {silent});
		world.coverage.woken_by_silence += core && !core->IsQuiet() ? 1 : 0;
	}
	if (!core) {
		return;
	}
	if (core->IsQuiet()) {
		world.quiescence.OnStaysQuiet(id, leader, awake_since, world.queue.Now());
	}
	for (auto node : beats.TakeDue(now)) {
		world.network.SendOther(EventKind::Beat, slot, SlotOf(node), id);
	}
	auto next = clock.Local(world.queue.Now()) + world.settings.config.heartbeat_interval / 2;
	PushEvent(clock.DelayUntil(world.queue.Now(), next), EventKind::BeatTick, 0);
}

void SimNode::NoteQuiet() {
	auto is_quiet = core->IsQuiet();
	if (is_quiet && !was_quiet && role == raft::Role::Leader) {
		world.coverage.leaders_gone_quiet++;
		auto status = core->GetStatus();
		for (auto member : raft::AllMembers(status.membership)) {
			world.quiescence.OnLeaderQuiet(id, status.last_index, disk->Written().TermAt(status.last_index).value_or(0),
			                               member, listener.SyncedLog(member));
		}
	}
	was_quiet = is_quiet;
}

void SimNode::Process(raft::Ready &ready, raft::Role role_before, raft::Term term_before) {
	if (!ready.fatal.IsOk() && disk->HasReaderFoundRot()) {
		world.trace.Print("%10.3f  node %llu stops: %s", static_cast<double>(world.queue.Now()) / NS_PER_MS,
		                  static_cast<unsigned long long>(id), ready.fatal.Message().c_str());
		world.queue.Push(0, EventKind::Latched, static_cast<uint16_t>(slot), life, 0);
		return;
	}
	if (!ready.fatal.IsOk()) {
		world.sink.Report("fatal", "node " + std::to_string(id) + " latched: " + ready.fatal.ToString());
		return;
	}
	if (ready.hard_state) {
		world.election_safety.OnHardState(id, hard_state, *ready.hard_state);
		hard_state = *ready.hard_state;
		term = hard_state.term;
	}
	if (ready.membership) {
		membership = *ready.membership;
		if (world.trace.IsPrinting()) {
			world.trace.Print("%10.3f  node %llu membership %s", static_cast<double>(world.queue.Now()) / NS_PER_MS,
			                  static_cast<unsigned long long>(id), Describe(membership).c_str());
		}
	}
	bool goes_on = ProcessWrites(ready, role_before, term_before);
	if (goes_on) {
		ProcessSoftState(ready);
	}
	if (role_before == raft::Role::Leader && !world.sink.Any()) {
		// Decided even if it could not be written down any more: the hint may survive.
		NoteCommit(term_before, membership_before);
	}
	if (!goes_on) {
		return;
	}
	if (!ready.committed.empty()) {
		ProcessCommitted(ready.committed);
	}
	if (ready.install_snapshot) {
		world.trace.Print("%10.3f  node %llu must fetch snapshot %llu from %llu",
		                  static_cast<double>(world.queue.Now()) / NS_PER_MS, static_cast<unsigned long long>(id),
		                  static_cast<unsigned long long>(ready.install_snapshot->index),
		                  static_cast<unsigned long long>(ready.snapshot_from));
		if (installing) {
			world.sink.Report("ready_contract",
			                  "node " + std::to_string(id) + " asks for a second snapshot before the first is done");
		}
		installing = true;
		snapshots.Fetch(ready.install_snapshot->index, ready.snapshot_from);
	}
	ProcessAnswers(ready);
}

void SimNode::ProcessSoftState(raft::Ready &ready) {
	if (!ready.soft_state) {
		return;
	}
	bool elected = ready.soft_state->role == raft::Role::Leader && role != raft::Role::Leader;
	role = ready.soft_state->role;
	leader = ready.soft_state->leader;
	world.trace.Print("%10.3f  node %llu is %s of term %llu, leader %llu",
	                  static_cast<double>(world.queue.Now()) / NS_PER_MS, static_cast<unsigned long long>(id),
	                  RoleName(role), static_cast<unsigned long long>(term), static_cast<unsigned long long>(leader));
	NoteLeadership();
	if (elected) {
		world.coverage.elections++;
		if (prng.Chance(world.settings.leader_strike_percent, 100)) {
			auto delay = prng.Below(static_cast<uint64_t>(world.settings.leader_strike_delay_max) + 1);
			world.queue.Push(static_cast<MonotonicNs>(delay), EventKind::LeaderStrike, static_cast<uint16_t>(slot),
			                 life, 0);
		}
		world.leader_completeness.OnLeader(id, term, disk->Written());
	}
}

void SimNode::NoteLeadership() {
	// A sole voter elects itself before its term is durable. It leads nobody until then: it has told no one.
	if (role != raft::Role::Leader || disk->Synced().hard_state.term < term) {
		return;
	}
	world.election_safety.OnLeader(id, life, term);
	if (secret_entries) {
		secret_entries = false;
		const LogImage &log = disk->Written();
		auto own = std::find_if(log.entries.begin(), log.entries.end(),
		                        [&](const raft::Entry &entry) { return entry.term == term; });
		if (own != log.entries.end()) {
			world.log_matching.OnAppend(id, *log.TermAt(own->index - 1), {own, log.entries.end()});
		}
	}
}

bool SimNode::ProcessWrites(raft::Ready &ready, raft::Role role_before, raft::Term term_before) {
	Gated gate;
	bool must_sync = false;
	if (ready.hard_state || !ready.entries.empty()) {
		LogWrite write;
		if (ready.hard_state) {
			const auto &before = disk->Written().hard_state;
			must_sync = ready.hard_state->term != before.term || ready.hard_state->voted_for != before.voted_for;
			write.hard_state = *ready.hard_state;
		}
		if (!ready.entries.empty()) {
			must_sync = true;
			raft::LogIndex first = ready.entries.front().index;
			raft::LogIndex last = disk->LastIndex();
			if (installing || first <= disk->Written().base.index || first > last + 1) {
				world.sink.Report("ready_contract", "node " + std::to_string(id) + " appends from index " +
				                                        std::to_string(first) + " to a log that ends at " +
				                                        std::to_string(last) +
				                                        (installing ? " while it installs a snapshot" : ""));
				return false;
			}
			world.coverage.log_conflicts += first <= last ? 1 : 0;
			world.state_machine_safety.OnAppend(id, commit_index, first);
			if (role_before == raft::Role::Leader && term == term_before) {
				world.leader_completeness.OnLeaderAppend(id, last, first);
			}
			secret_entries = ready.entries.front().term == term && disk->Synced().hard_state.term < term &&
			                 (ready.soft_state ? ready.soft_state->role : role) == raft::Role::Leader;
			if (!secret_entries) {
				world.log_matching.OnAppend(id, *disk->Written().TermAt(first - 1), ready.entries);
			}
			gate.completed = raft::AppendCompletedEvent {ready.entries.back().index, ready.entries.back().term};
			write.entries = std::move(ready.entries);
		}
		MayCutPower();
		disk->Write(std::move(write));
		if (disk->HasLostPower()) {
			return false;
		}
	}
	Send(ready.messages);
	gate.seq = disk->WrittenSeq();
	gate.messages = std::move(ready.messages_after_append);
	if (!gate.messages.empty() || gate.completed) {
		Gate(std::move(gate));
	} else if (must_sync) {
		StartSync();
	}
	return true;
}

void SimNode::Gate(Gated gate) {
	if (gated.empty() && disk->SyncedSeq() >= gate.seq && !gate.completed && !gate.installed) {
		Send(gate.messages);
		return;
	}
	if (world.sabotage.apply_before_durable) {
		world.queue.Push(0, EventKind::EarlyAnswer, static_cast<uint16_t>(slot), life, gate.seq);
	}
	gated.push_back(std::move(gate));
	StartSync();
}

void SimNode::StartSync() {
	if (sync_in_flight || disk->SyncedSeq() == disk->WrittenSeq()) {
		return;
	}
	sync_in_flight = true;
	const Settings &s = world.settings;
	sync_covers_late = prng.Chance(s.sync_covers_late_percent, 100);
	MayCutPower();
	if (!sync_covers_late && !disk->Sync()) {
		return;
	}
	auto spread = static_cast<uint64_t>(s.sync_latency_max - s.sync_latency_min);
	MonotonicNs latency = s.sync_latency_min + static_cast<MonotonicNs>(prng.Below(spread + 1));
	latency *= disk_factor;
	if (prng.Chance(s.sync_strike_permille, 1000)) {
		auto delay = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(latency) + 1));
		world.queue.Push(delay, EventKind::SyncStrike, static_cast<uint16_t>(slot), life, 0);
	}
	if (s.checkpoint_may_pass_log && s.checkpoint_interval != 0 && prng.Chance(1, 4)) {
		auto delay = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(latency) + 1));
		world.queue.Push(delay, EventKind::CheckpointBegin, static_cast<uint16_t>(slot), life, 0);
	}
	world.queue.Push(latency, EventKind::SyncDone, static_cast<uint16_t>(slot), life, disk->WrittenSeq());
}

void SimNode::OnSyncDone(uint64_t seq) {
	if (sync_covers_late && !disk->Sync()) {
		return;
	}
	disk->CompleteSync(seq);
	sync_in_flight = false;
	NoteLeadership();
	OpenGates(disk->SyncedSeq());
	if (core && !gated.empty()) {
		StartSync();
	}
}

void SimNode::OpenGates(uint64_t seq) {
	while (core && !gated.empty() && gated.front().seq <= seq) {
		Gated gate = std::move(gated.front());
		gated.pop_front();
		Send(gate.messages);
		bool more = !gated.empty() && gated.front().seq <= seq && gated.front().completed;
		if (gate.completed && !(more && world.settings.coalesce_completions)) {
			Step(*gate.completed);
		}
		if (gate.installed) {
			installing = false;
			world.coverage.snapshots_installed++;
			Step(*gate.installed);
			if (!(membership == gate.installed->snapshot.membership)) {
				world.sink.Report("membership", "node " + std::to_string(id) + " installed a snapshot with " +
				                                    Describe(gate.installed->snapshot.membership) + " but holds " +
				                                    Describe(membership));
			}
		}
	}
}

void SimNode::Send(std::vector<raft::Message> &messages) {
	for (auto &message : messages) {
		if (message.from != id || message.to == id || message.to == raft::NO_NODE) {
			world.sink.Report("ready_contract", "node " + std::to_string(id) + " sends " + Describe(message));
			return;
		}
		if (message.type == raft::MessageType::AppendRequest || message.type == raft::MessageType::HeartbeatRequest) {
			world.election_safety.OnLeader(id, life, message.term);
		}
		if (message.type == raft::MessageType::VoteResponse && !message.reject && !message.pre_vote) {
			world.election_safety.OnVoteGranted(id, message.term, message.to);
		}
		if (world.ChecksAll()) {
			world.durability.OnSend(message, disk->Synced());
		}
		beats.Sent(message.to, clock.Local(world.queue.Now()));
		world.network.Send(std::move(message), life);
	}
	messages.clear();
}

void SimNode::NoteCommit(raft::Term term_before, const raft::Membership &before) {
	// Read from the core, because Ready::committed may lag behind.
	raft::LogIndex index = core->GetStatus().commit_index;
	if (index > listener.GlobalCommitIndex()) {
		listener.OnFirstCommit(*this, term_before, index, before);
	}
}

void SimNode::ProcessCommitted(std::vector<raft::Entry> &committed) {
	for (auto &entry : committed) {
		world.state_machine_safety.OnCommitted(id, commit_index + 1, entry, listener.GlobalCommitIndex());
		if (world.sink.Any()) {
			return;
		}
		commit_index = entry.index;
		apply_queue.push_back(std::move(entry));
	}
	StartApply();
}

void SimNode::StartApply() {
	if (apply_in_flight || apply_queue.empty()) {
		return;
	}
	apply_in_flight = true;
	auto latency = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(world.settings.apply_latency_max) + 1));
	world.queue.Push(latency, EventKind::ApplyDone, static_cast<uint16_t>(slot), life, 0);
}

void SimNode::OnApplyDone() {
	apply_in_flight = false;
	if (apply_queue.empty()) {
		return;
	}
	while (!apply_queue.empty()) {
		raft::Entry entry = std::move(apply_queue.front());
		apply_queue.pop_front();
		CommandOutcome outcome = machine.Apply(entry);
		AnswerWrites(entry, outcome);
	}
	ServeReads();
	raft::AppliedEvent applied;
	applied.index = machine.AppliedIndex();
	Step(applied);
	StartApply();
}

void SimNode::AnswerWrites(const raft::Entry &entry, const CommandOutcome &outcome) {
	// Several proposals may wait for one index: those of earlier terms in office were replaced.
	std::vector<PendingWrite> decided;
	for (size_t i = 0; i < pending_writes.size();) {
		if (pending_writes[i].index != entry.index) {
			i++;
			continue;
		}
		decided.push_back(pending_writes[i]);
		pending_writes.erase(pending_writes.begin() + static_cast<ptrdiff_t>(i));
	}
	for (const auto &write : decided) {
		if (write.term == entry.term) {
			listener.OnWriteApplied(*this, write.op, outcome);
		} else {
			listener.OnWriteRefused(*this, write.op, Status(ErrorCode::Unavailable, "another entry took its place"));
		}
	}
}

void SimNode::ProcessAnswers(const raft::Ready &ready) {
	for (const auto &proposal : ready.proposals) {
		if (proposal.request >= MEMBERSHIP_REQUESTS) {
			continue;
		}
		auto op = static_cast<uint32_t>(proposal.request);
		if (proposal.status.IsOk()) {
			pending_writes.push_back({proposal.index, proposal.term, op});
		} else {
			listener.OnWriteRefused(*this, op, proposal.status);
		}
	}
	for (const auto &read : ready.reads) {
		auto op = static_cast<uint32_t>(read.request);
		if (read.status.IsOk()) {
			if (world.ChecksAll()) {
				world.read_index.OnAnswered(id, op, read.read_index);
			}
			pending_reads.push_back({read.read_index, op});
		} else {
			listener.OnReadRefused(*this, op, read.status);
		}
	}
	if (!ready.reads.empty()) {
		ServeReads();
	}
}

void SimNode::ServeReads() {
	for (size_t i = 0; i < pending_reads.size();) {
		if (pending_reads[i].read_index > machine.AppliedIndex()) {
			i++;
			continue;
		}
		uint32_t op = pending_reads[i].op;
		pending_reads.erase(pending_reads.begin() + static_cast<ptrdiff_t>(i));
		listener.OnReadReady(*this, op);
	}
}

void SimNode::ScheduleTick() {
	MonotonicNs now = world.queue.Now();
	MonotonicNs deadline = core->NextDeadline();
	if (!world.settings.sparse_ticks) {
		deadline = std::min(deadline, clock.Local(now) + world.settings.config.heartbeat_interval / 2);
	}
	if (deadline == INT64_MAX) {
		return;
	}
	// A deadline that lies in the past although the core was just stepped must not stop time.
	MonotonicNs delay = std::max<MonotonicNs>(clock.DelayUntil(now, deadline), 1000);
	if (tick_at != 0 && tick_at <= now + delay) {
		return;
	}
	tick_at = now + delay;
	world.queue.Push(delay, EventKind::Tick, static_cast<uint16_t>(slot), life, ++tick_generation);
}

void SimNode::OnCheckpointBegin() {
	bool fresh = !disk->checkpoint || disk->checkpoint->AppliedIndex() < machine.AppliedIndex();
	if (pending_checkpoint || installing || !fresh || machine.AppliedIndex() == 0) {
		return;
	}
	pending_checkpoint = std::make_shared<const RegisterMachine>(machine);
	world.queue.Push(world.settings.checkpoint_latency, EventKind::CheckpointDurable, static_cast<uint16_t>(slot), life,
	                 0);
}

void SimNode::OnCheckpointDurable() {
	raft::LogIndex index = pending_checkpoint->AppliedIndex();
	bool log_has_it =
	    disk->Synced().LastIndex() >= index && disk->Synced().Holds(index, pending_checkpoint->AppliedTerm());
	if (!log_has_it && !world.settings.checkpoint_may_pass_log) {
		world.queue.Push(world.settings.checkpoint_latency, EventKind::CheckpointDurable, static_cast<uint16_t>(slot),
		                 life, 0);
		return;
	}
	MachineImage image = std::move(pending_checkpoint);
	pending_checkpoint.reset();
	if (installing || (disk->checkpoint && disk->checkpoint->AppliedIndex() >= index)) {
		return;
	}
	disk->checkpoint = image;
	world.coverage.checkpoints++;
	stale_image = stale_image ? stale_image : image;
	if (!log_has_it && world.settings.crash_interval != 0) {
		// The moment at which a power loss leaves a log that is behind its checkpoint.
		world.queue.Push(0, EventKind::SyncStrike, static_cast<uint16_t>(slot), life, 0);
	}
	raft::SnapshotMeta meta;
	meta.index = index - std::min<raft::LogIndex>(index, world.settings.checkpoint_tail);
	meta.index = std::min(meta.index, snapshots.HeldIndex(clock.Local(world.queue.Now())));
	if (meta.index > disk->Written().base.index) {
		meta.term = *disk->Written().TermAt(meta.index);
		meta.membership = image->MembershipAt(meta.index);
		LogWrite write;
		write.truncate_prefix = meta;
		disk->Write(std::move(write));
	}
}

void SimNode::TakeCall(const SnapshotCall &call) {
	snapshots.Take(call, clock.Local(world.queue.Now()));
}

void SimNode::SendCall(SnapshotCall call) {
	listener.OnCall(std::move(call));
}

void SimNode::PushEvent(MonotonicNs delay, EventKind kind, uint64_t arg) {
	world.queue.Push(delay, kind, static_cast<uint16_t>(slot), life, arg);
}

MachineImage SimNode::ImageToServe() {
	if (world.sabotage.install_backwards && stale_image) {
		return stale_image;
	}
	return disk->checkpoint && prng.Chance(1, 2) ? disk->checkpoint : std::make_shared<const RegisterMachine>(machine);
}

uint64_t SimNode::NewImageId() {
	return prng.Next() | 1;
}

void SimNode::OnImage(const std::string &bytes, const raft::SnapshotMeta &position) {
	auto decoded = RegisterMachine::Decode(bytes);
	if (!decoded.IsOk() || decoded.Value().AppliedIndex() != position.index ||
	    decoded.Value().AppliedTerm() != position.term) {
		world.sink.Report("snapshot", "node " + std::to_string(id) + " received " + std::to_string(bytes.size()) +
		                                  " bytes that are not the image at index " + std::to_string(position.index));
		return;
	}
	if (position.index < machine.AppliedIndex() && !world.sabotage.install_backwards) {
		snapshots.DropReceived();
		OnFetchFailed();
		return;
	}
	machine = std::move(decoded.Value());
	pending_install = std::make_shared<const RegisterMachine>(machine);
	pending_position = position;
	apply_queue.clear();
	commit_index = std::max(commit_index, machine.AppliedIndex());
	// Whether these were part of the snapshot is not known here: their outcome stays open.
	auto covered = [&](const PendingWrite &write) {
		return write.index <= machine.AppliedIndex();
	};
	pending_writes.erase(std::remove_if(pending_writes.begin(), pending_writes.end(), covered), pending_writes.end());
	ServeReads();
	PushEvent(world.settings.checkpoint_latency, EventKind::SnapshotDurable, 0);
}

void SimNode::FinishSnapshot() {
	disk->checkpoint = std::move(pending_install);
	snapshots.DropReceived();
	pending_install.reset();
	Gated gate;
	gate.installed = raft::SnapshotInstalledEvent();
	gate.installed->ok = true;
	gate.installed->snapshot = pending_position;
	LogWrite write;
	write.reset = pending_position;
	gate.seq = disk->Write(std::move(write));
	Gate(std::move(gate));
}

void SimNode::OnPiece() {
	if (prng.Chance(world.settings.transfer_strike_percent, 100)) {
		world.queue.Push(0, EventKind::TransferStrike, static_cast<uint16_t>(slot), life, 0);
	}
}

void SimNode::OnFetchFailed() {
	installing = false;
	Step(raft::SnapshotInstalledEvent());
}

} // namespace sim
} // namespace quack
