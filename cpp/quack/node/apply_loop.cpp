#include "quack/node/apply_loop.hpp"

#include <algorithm>
#include <cstdio>

#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

//! Failures of a checkpoint or an install that leave the state machine as it was.
bool IsRetryable(const Status &status) {
	switch (status.Code()) {
	case ErrorCode::DiskFull:
	case ErrorCode::Unavailable:
	case ErrorCode::Overloaded:
	case ErrorCode::Conflict:
	case ErrorCode::DeadlineExceeded:
		return true;
	default:
		return false;
	}
}

//! A bad image is the sender's fault: this node is as sound as before.
bool IsImageRefusal(const Status &status) {
	return status.Code() == ErrorCode::Corruption || status.Code() == ErrorCode::Incompatible ||
	       status.Code() == ErrorCode::InvalidArgument;
}

} // namespace

ApplyLoop::ApplyLoop(const RaftEngineConfig &config_p, StateMachine &state_machine_p, const Clock &clock_p,
                     const DiskWatch &disk_p, LoopMailbox &loop_p, DegradedLatch &latch_p)
    : config(config_p), state_machine(state_machine_p), clock(clock_p), disk(disk_p), loop(loop_p), latch(latch_p),
      order({config.apply_batch_bytes_max, config.apply_batch_entries_max},
	        [this](const CommittedEntry &entry) { return state_machine.Needs(entry); }) {
}

ApplyLoop::~ApplyLoop() {
	Abort();
}

void ApplyLoop::Start() {
	auto positions = state_machine.Applied();
	order.SetApplied(positions);
	for (auto &position : positions) {
		applied[position.group] = position.index;
	}
	groups_version = state_machine.GroupsVersion();
	order.SetGroups(state_machine.Groups());
	for (auto &position : state_machine.Durable()) {
		durable[position.group] = position.index;
	}
	thread = std::thread([this] { RunGuarded(latch, "apply", [this] { Run(); }); });
}

void ApplyLoop::Stop(bool final_checkpoint) {
	{
		std::lock_guard<std::mutex> guard(lock);
		wants_final_checkpoint = final_checkpoint && !orders.is_stopping;
		orders.is_stopping = true;
	}
	WakeAll();
	if (thread.joinable()) {
		thread.join();
	}
}

void ApplyLoop::Abort() {
	{
		std::lock_guard<std::mutex> guard(lock);
		is_aborting = true;
	}
	Stop(false);
}

void ApplyLoop::RequestCheckpoint() {
	{
		std::lock_guard<std::mutex> guard(lock);
		orders.is_checkpoint_wanted = true;
	}
	orders_changed.notify_all();
}

void ApplyLoop::WakeAll() {
	{
		// Taken and released so that a waiter between its check and its wait is not missed.
		std::lock_guard<std::mutex> guard(lock);
	}
	orders_changed.notify_all();
	applied_changed.notify_all();
}

void ApplyLoop::Push(raft::GroupId group, std::vector<raft::Entry> entries) {
	size_t bytes = 0;
	for (auto &entry : entries) {
		bytes += ApplyOrder::Cost(entry);
	}
	queue_bytes.fetch_add(bytes, std::memory_order_relaxed);
	queue_count.fetch_add(entries.size(), std::memory_order_relaxed);
	{
		std::lock_guard<std::mutex> guard(lock);
		orders.commits.push_back({group, std::move(entries)});
	}
	orders_changed.notify_one();
}

void ApplyLoop::PushInstall(raft::GroupId group, std::string path, std::vector<wire::SnapshotPosition> positions) {
	{
		std::lock_guard<std::mutex> guard(lock);
		orders.images.push_back({group, std::move(path), std::move(positions)});
	}
	orders_changed.notify_one();
}

void ApplyLoop::SetPaused(bool is_paused) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (orders.is_paused == is_paused) {
			return;
		}
		orders.is_paused = is_paused;
		is_resumed = !is_paused;
	}
	orders_changed.notify_one();
}

std::vector<Position> ApplyLoop::AppliedPositions() const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<Position> result;
	for (auto &entry : applied) {
		result.push_back({entry.first, entry.second});
	}
	return result;
}

Status ApplyLoop::WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) {
	std::unique_lock<std::mutex> guard(lock);
	auto is_done = [&] {
		auto entry = applied.find(group);
		return (entry != applied.end() && entry->second >= index) || orders.is_stopping || latch.IsSet();
	};
	auto is_in_time =
	    applied_changed.wait_for(guard, std::chrono::nanoseconds(std::max<MonotonicNs>(timeout, 0)), is_done);
	if (latch.IsSet()) {
		return Status(ErrorCode::Degraded, "node '" + config.node_id + "' is out of service: " + latch.Reason());
	}
	if (applied[group] >= index) {
		return Status::Ok();
	}
	if (is_in_time) {
		return Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping");
	}
	auto queue = queues.find(group);
	auto why = queue == queues.end() || queue->second.waiting_for.empty() ? "" : " (" + queue->second.waiting_for + ")";
	return Status(ErrorCode::DeadlineExceeded, "node '" + config.node_id + "' applied group " + std::to_string(group) +
	                                               " up to " + std::to_string(applied[group]) + ", index " +
	                                               std::to_string(index) + " was waited for: it is behind" + why +
	                                               ", retry");
}

ApplyLoop::GroupQueue ApplyLoop::QueueOf(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = queues.find(group);
	auto result = entry == queues.end() ? GroupQueue() : entry->second;
	for (auto &commit : orders.commits) {
		for (size_t i = 0; commit.group == group && i < commit.entries.size(); i++) {
			result.bytes += ApplyOrder::Cost(commit.entries[i]);
			result.count++;
		}
	}
	return result;
}

raft::LogIndex ApplyLoop::AppliedIndex(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = applied.find(group);
	return entry == applied.end() ? 0 : entry->second;
}

raft::LogIndex ApplyLoop::CheckpointIndex(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = durable.find(group);
	return entry == durable.end() ? 0 : entry->second;
}

std::string ApplyLoop::Alarm() const {
	std::lock_guard<std::mutex> guard(lock);
	return alarm;
}

void ApplyLoop::SetAlarm(const std::string &message) {
	std::lock_guard<std::mutex> guard(lock);
	alarm = message;
}

bool ApplyLoop::ShouldQuit() const {
	return latch.IsSet() || is_aborting;
}

void ApplyLoop::Run() {
	while (RunOnce()) {
	}
	if (!ShouldQuit() && wants_final_checkpoint && dirty_since != 0) {
		Checkpoint();
	}
}

//! False when the thread shall end: at once after a failure or Abort, else when nothing more can be applied.
bool ApplyLoop::RunOnce() {
	auto taken = WaitForOrders();
	if (ShouldQuit()) {
		return false;
	}
	for (auto &image : taken.images) {
		Install(image);
	}
	for (auto &commit : taken.commits) {
		for (auto &entry : commit.entries) {
			counted_bytes += ApplyOrder::Cost(entry);
		}
		counted_count += commit.entries.size();
		order.Push(commit.group, std::move(commit.entries));
	}
	if (!taken.commits.empty()) {
		std::lock_guard<std::mutex> guard(lock);
		PublishGroups(); // with what is applied now, which may take long
	}
	auto batch = taken.is_paused ? ApplyOrder::Batch() : order.Take();
	may_have_more = !batch.Empty();
	if (!batch.entries.empty() && !latch.IsSet() && !Apply(batch)) {
		return false;
	}
	if (latch.IsSet()) {
		return false;
	}
	TakeGroups();
	ReportApplied(batch);
	auto is_asked_for = taken.is_checkpoint_wanted && dirty_since != 0;
	if (is_asked_for || (CheckpointDue(QueueCount() == 0 || !may_have_more) && !PutsOffForDisk())) {
		Checkpoint();
	}
	return may_have_more || !taken.is_stopping || !taken.commits.empty();
}

ApplyLoop::Orders ApplyLoop::WaitForOrders() {
	std::unique_lock<std::mutex> guard(lock);
	auto wait = may_have_more ? 0 : WaitTime();
	orders_changed.wait_for(guard, std::chrono::nanoseconds(wait), [this] {
		return !orders.commits.empty() || !orders.images.empty() || orders.is_stopping || orders.is_checkpoint_wanted ||
		       is_resumed || ShouldQuit();
	});
	Orders taken;
	taken.commits.swap(orders.commits);
	taken.images.swap(orders.images);
	taken.is_checkpoint_wanted = orders.is_checkpoint_wanted;
	taken.is_stopping = orders.is_stopping;
	taken.is_paused = orders.is_paused;
	orders.is_checkpoint_wanted = false;
	is_resumed = false;
	return taken;
}

bool ApplyLoop::Apply(const ApplyOrder::Batch &batch) {
	auto status = state_machine.Apply(batch.entries);
	bool has_waited = false;
	while (status.Code() == ErrorCode::DiskFull) {
		if (!AwaitSpace(status)) {
			return false;
		}
		has_waited = true;
		status = state_machine.Apply(batch.entries);
	}
	if (has_waited) {
		SetAlarm("");
	}
	if (!status.IsOk()) {
		auto &first = batch.entries.front();
		latch.Latch("apply of entries from index " + std::to_string(first.entry.index) + " of group " +
		            std::to_string(first.group) + ": " + status.ToString());
		return false;
	}
	bytes_since_checkpoint += batch.bytes;
	entries_since_checkpoint += batch.entries.size();
	last_applied = clock.Now();
	dirty_since = dirty_since == 0 ? last_applied : dirty_since;
	return true;
}

//! A while later; false when the thread shall end.
bool ApplyLoop::AwaitSpace(const Status &failure) {
	auto alarm_text = "apply waits: " + failure.Message();
	if (Alarm() != alarm_text) {
		SetAlarm(alarm_text);
		Log(LogLevel::Warn, "node", "apply_waits_for_space", {{"message", failure.Message()}});
	}
	std::unique_lock<std::mutex> guard(lock);
	orders_changed.wait_for(guard, std::chrono::nanoseconds(config.disk_retry_interval),
	                        [this] { return orders.is_stopping || ShouldQuit(); });
	return !orders.is_stopping && !ShouldQuit();
}

//! Before anybody hears that the entries are applied: who waited for the creation of a group finds it then.
void ApplyLoop::TakeGroups() {
	auto version = state_machine.GroupsVersion();
	if (version == groups_version) {
		return;
	}
	groups_version = version;
	order.SetGroups(state_machine.Groups());
	loop.Push(LoopEvent(GroupsChanged {}));
}

void ApplyLoop::ReportApplied(const ApplyOrder::Batch &batch) {
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &position : batch.reached) {
			applied[position.group] = std::max(applied[position.group], position.index);
		}
		PublishQueues();
	}
	if (batch.Empty()) {
		auto status = order.Check();
		if (!status.IsOk()) {
			latch.Latch("apply: " + status.ToString());
		}
		return;
	}
	applied_changed.notify_all();
	for (auto &position : batch.reached) {
		loop.Push(LoopEvent(EntriesApplied {position.group, position.index}));
	}
}

//! With the lock held.
void ApplyLoop::PublishQueues() {
	queue_bytes.fetch_sub(counted_bytes - order.Bytes(), std::memory_order_relaxed);
	queue_count.fetch_sub(counted_count - order.Count(), std::memory_order_relaxed);
	counted_bytes = order.Bytes();
	counted_count = order.Count();
	PublishGroups();
}

//! With the lock held.
void ApplyLoop::PublishGroups() {
	queues.clear();
	if (order.Count() == 0) {
		return;
	}
	for (auto &group : order.Waiting()) {
		queues[group.group] = {group.bytes, group.count, group.head ? group.head->Words() : "",
		                       group.head ? group.head->need.group : 0};
	}
}

void ApplyLoop::Install(const ImageFile &image) {
	auto status = state_machine.InstallSnapshot(image.path);
	if (!status.IsOk()) {
		// Whatever was wrong with it: the next attempt must not find it and resume there.
		static_cast<void>(std::remove(image.path.c_str()));
		if (!IsRetryable(status) && !IsImageRefusal(status)) {
			latch.Latch("snapshot install: " + status.ToString());
			return;
		}
		Log(LogLevel::Error, "node", "snapshot_refused", {{"message", status.Message()}});
		SetAlarm("snapshot refused: " + status.ToString());
		loop.Push(LoopEvent(SnapshotFailed {image.group, status}));
		return;
	}
	SetAlarm("");
	bytes_since_checkpoint = 0;
	entries_since_checkpoint = 0;
	dirty_since = 0;
	auto positions = state_machine.Applied();
	order.SetApplied(positions);
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &position : positions) {
			applied[position.group] = position.index;
		}
	}
	TakeGroups();
	applied_changed.notify_all();
	Log(LogLevel::Info, "node", "snapshot_installed", {{"group", std::to_string(image.group)}});
	loop.Push(LoopEvent(SnapshotInstalled {image.group, image.positions}));
	PublishDurable();
}

MonotonicNs ApplyLoop::WaitTime() const {
	if (dirty_since == 0) {
		return NS_PER_SECOND;
	}
	auto due = std::min(dirty_since + config.checkpoint_interval, last_applied + config.checkpoint_idle);
	due = std::max(due, retry_after);
	return std::min(std::max<MonotonicNs>(due - clock.Now(), NS_PER_MS), NS_PER_SECOND);
}

bool ApplyLoop::CheckpointDue(bool is_idle) const {
	if (dirty_since == 0) {
		return false;
	}
	auto now = clock.Now();
	if (now < retry_after) {
		return false;
	}
	// A busy apply loop may put the checkpoint off until an idle moment, but not for ever.
	auto is_due = bytes_since_checkpoint >= config.checkpoint_log_bytes ||
	              entries_since_checkpoint >= config.checkpoint_log_entries ||
	              now - dirty_since >= config.checkpoint_interval || now - last_applied >= config.checkpoint_idle;
	auto is_late = bytes_since_checkpoint >= config.checkpoint_log_bytes + config.checkpoint_log_bytes / 2 ||
	               entries_since_checkpoint >= config.checkpoint_log_entries + config.checkpoint_log_entries / 2 ||
	               now - dirty_since >= config.checkpoint_interval + config.checkpoint_interval / 2;
	return (is_due && is_idle) || is_late;
}

//! Committed entries can be applied and answered while the log's disk hangs, unless this thread hangs with it.
bool ApplyLoop::PutsOffForDisk() {
	auto now = clock.Now();
	if (!disk.LogIsSlow(now)) {
		return false;
	}
	retry_after = now + config.disk_retry_interval;
	return true;
}

void ApplyLoop::Checkpoint() {
	auto status = state_machine.Checkpoint();
	if (!status.IsOk()) {
		if (!IsRetryable(status)) {
			latch.Latch("checkpoint: " + status.ToString());
			return;
		}
		SetAlarm("checkpoint postponed: " + status.ToString());
		Log(LogLevel::Warn, "node", "checkpoint_postponed", {{"message", status.Message()}});
		retry_pause = std::min(std::max(config.disk_retry_interval, 2 * retry_pause), config.checkpoint_retry_max);
		retry_after = clock.Now() + retry_pause;
		return;
	}
	SetAlarm("");
	retry_pause = 0;
	bytes_since_checkpoint = 0;
	entries_since_checkpoint = 0;
	dirty_since = 0;
	PublishDurable();
}

void ApplyLoop::PublishDurable() {
	auto positions = state_machine.Durable();
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &position : positions) {
			durable[position.group] = position.index;
		}
	}
	loop.Push(LoopEvent(StateDurable {std::move(positions)}));
}

} // namespace node
} // namespace quack
