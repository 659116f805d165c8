#include "quack/node/apply_loop.hpp"

#include <algorithm>

#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

//! A no-op costs something too, so that a count of empty entries is bounded like bytes are.
constexpr size_t ENTRY_OVERHEAD = 64;

size_t Cost(const raft::Entry &entry) {
	return entry.payload->size() + ENTRY_OVERHEAD;
}

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
                     LoopMailbox &loop_p, DegradedLatch &latch_p)
    : config(config_p), state_machine(state_machine_p), clock(clock_p), loop(loop_p), latch(latch_p) {
}

ApplyLoop::~ApplyLoop() {
	Abort();
}

void ApplyLoop::Start() {
	for (auto &position : state_machine.Applied()) {
		applied[position.group] = position.index;
	}
	for (auto &position : state_machine.Durable()) {
		durable[position.group] = position.index;
	}
	thread = std::thread([this] { RunGuarded(latch, "apply", [this] { Run(); }); });
}

void ApplyLoop::Stop(bool final_checkpoint) {
	{
		std::lock_guard<std::mutex> guard(lock);
		wants_final_checkpoint = final_checkpoint && !is_stopping;
		is_stopping = true;
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
		is_checkpoint_wanted = true;
	}
	tasks_changed.notify_all();
}

void ApplyLoop::WakeAll() {
	{
		// Taken and released so that a waiter between its check and its wait is not missed.
		std::lock_guard<std::mutex> guard(lock);
	}
	tasks_changed.notify_all();
	applied_changed.notify_all();
}

void ApplyLoop::Push(raft::GroupId group, std::vector<raft::Entry> entries) {
	size_t bytes = 0;
	for (auto &entry : entries) {
		bytes += Cost(entry);
	}
	queue_bytes.fetch_add(bytes, std::memory_order_relaxed);
	queue_count.fetch_add(entries.size(), std::memory_order_relaxed);
	Task task;
	task.group = group;
	task.entries = std::move(entries);
	{
		std::lock_guard<std::mutex> guard(lock);
		tasks.push_back(std::move(task));
	}
	tasks_changed.notify_one();
}

void ApplyLoop::PushInstall(raft::GroupId group, std::string path, std::vector<wire::SnapshotPosition> positions) {
	Task task;
	task.group = group;
	task.is_install = true;
	task.path = std::move(path);
	task.positions = std::move(positions);
	{
		std::lock_guard<std::mutex> guard(lock);
		tasks.push_back(std::move(task));
	}
	tasks_changed.notify_one();
}

Status ApplyLoop::WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) {
	std::unique_lock<std::mutex> guard(lock);
	auto is_done = [&] {
		auto entry = applied.find(group);
		return (entry != applied.end() && entry->second >= index) || is_stopping || latch.IsSet();
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
	return Status(ErrorCode::DeadlineExceeded, "node '" + config.node_id + "' applied group " + std::to_string(group) +
	                                               " up to " + std::to_string(applied[group]) + ", index " +
	                                               std::to_string(index) + " was waited for: it is behind, retry");
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
	std::vector<CommittedEntry> batch;
	while (true) {
		Task install;
		bool checkpoint_wanted = false;
		{
			std::unique_lock<std::mutex> guard(lock);
			auto wait = WaitTime();
			tasks_changed.wait_for(guard, std::chrono::nanoseconds(wait), [this] {
				return !tasks.empty() || is_stopping || is_checkpoint_wanted || ShouldQuit();
			});
			if (ShouldQuit()) {
				return;
			}
			if (tasks.empty() && is_stopping) {
				break;
			}
			batch.clear();
			taken.clear();
			TakeTasks(batch, install);
			checkpoint_wanted = is_checkpoint_wanted;
			is_checkpoint_wanted = false;
		}
		if (!batch.empty()) {
			Apply(batch);
		}
		if (!latch.IsSet()) {
			ReportApplied();
		}
		if (install.is_install && !latch.IsSet()) {
			Install(install);
		}
		auto is_asked_for = checkpoint_wanted && dirty_since != 0;
		if (!latch.IsSet() && (is_asked_for || CheckpointDue(QueueCount() == 0))) {
			Checkpoint();
		}
	}
	if (wants_final_checkpoint && dirty_since != 0) {
		Checkpoint();
	}
}

//! Under the lock. Takes entries up to the batch bounds, or up to an install, which comes after them.
bool ApplyLoop::TakeTasks(std::vector<CommittedEntry> &batch, Task &install) {
	size_t bytes = 0;
	while (!tasks.empty()) {
		auto &task = tasks.front();
		if (task.is_install) {
			install = std::move(task);
			tasks.pop_front();
			return true;
		}
		TakeEntries(task, batch, bytes);
		if (!task.entries.empty()) {
			return true;
		}
		tasks.pop_front();
	}
	return !batch.empty();
}

//! Moves as many entries as the bounds allow; the rest stays in the task.
void ApplyLoop::TakeEntries(Task &task, std::vector<CommittedEntry> &batch, size_t &bytes) {
	size_t count = 0;
	size_t count_bytes = 0;
	auto applied_index = applied[task.group];
	for (auto &entry : task.entries) {
		auto cost = Cost(entry);
		if (!batch.empty() &&
		    (bytes + cost > config.apply_batch_bytes_max || batch.size() >= config.apply_batch_entries_max)) {
			break;
		}
		count++;
		count_bytes += cost;
		taken[task.group] = entry.index;
		// A snapshot asked for by another group may have brought this group forward as well.
		if (entry.index > applied_index) {
			bytes += cost;
			batch.push_back({task.group, std::move(entry)});
		}
	}
	task.entries.erase(task.entries.begin(), task.entries.begin() + static_cast<ptrdiff_t>(count));
	taken_bytes += count_bytes;
	taken_count += count;
}

void ApplyLoop::Apply(const std::vector<CommittedEntry> &batch) {
	auto status = state_machine.Apply(batch);
	if (!status.IsOk()) {
		auto &first = batch.front();
		latch.Latch("apply of entries from index " + std::to_string(first.entry.index) + " of group " +
		            std::to_string(first.group) + ": " + status.ToString());
		return;
	}
	for (auto &entry : batch) {
		bytes_since_checkpoint += Cost(entry.entry);
	}
	entries_since_checkpoint += batch.size();
	last_applied = clock.Now();
	dirty_since = dirty_since == 0 ? last_applied : dirty_since;
}

void ApplyLoop::ReportApplied() {
	if (taken.empty()) {
		return;
	}
	queue_bytes.fetch_sub(taken_bytes, std::memory_order_relaxed);
	queue_count.fetch_sub(taken_count, std::memory_order_relaxed);
	taken_bytes = 0;
	taken_count = 0;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : taken) {
			applied[entry.first] = std::max(applied[entry.first], entry.second);
		}
	}
	applied_changed.notify_all();
	for (auto &entry : taken) {
		loop.Push(LoopEvent(EntriesApplied {entry.first, entry.second}));
	}
}

void ApplyLoop::Install(const Task &task) {
	auto status = state_machine.InstallSnapshot(task.path);
	if (!status.IsOk()) {
		if (!IsRetryable(status) && !IsImageRefusal(status)) {
			latch.Latch("snapshot install: " + status.ToString());
			return;
		}
		Log(LogLevel::Error, "node", "snapshot_refused", {{"message", status.Message()}});
		SetAlarm("snapshot refused: " + status.ToString());
		loop.Push(LoopEvent(SnapshotFailed {task.group, status}));
		return;
	}
	SetAlarm("");
	bytes_since_checkpoint = 0;
	entries_since_checkpoint = 0;
	dirty_since = 0;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &position : state_machine.Applied()) {
			applied[position.group] = position.index;
		}
	}
	applied_changed.notify_all();
	Log(LogLevel::Info, "node", "snapshot_installed", {{"group", std::to_string(task.group)}});
	loop.Push(LoopEvent(SnapshotInstalled {task.group, task.positions}));
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
