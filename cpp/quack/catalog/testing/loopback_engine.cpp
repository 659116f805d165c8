#include "quack/catalog/testing/loopback_engine.hpp"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace quack {
namespace catalog {
namespace {

constexpr raft::Term TERM = 1;

raft::LogIndex AppliedOf(const node::StateMachine &machine, raft::GroupId group) {
	for (auto &position : machine.Applied()) {
		if (position.group == group) {
			return position.index;
		}
	}
	return 0;
}

} // namespace

LoopbackLog::LoopbackLog(const std::string &path) {
	if (path.empty()) {
		return;
	}
	file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	QUACK_CHECK(file >= 0, path.c_str());
	off_t offset = 0;
	for (;;) {
		uint64_t head[3];
		if (pread(file, head, sizeof(head), offset) != ssize_t(sizeof(head))) {
			break;
		}
		std::string payload(head[1], '\0');
		if (pread(file, &payload[0], payload.size(), offset + off_t(sizeof(head))) != ssize_t(payload.size())) {
			break;
		}
		auto &entries = groups[head[2]];
		entries.push_back({TERM, entries.size() + 1, raft::EntryType(head[0]), MakeSharedBytes(std::move(payload))});
		offset += off_t(sizeof(head) + head[1]);
	}
	QUACK_CHECK(ftruncate(file, offset) == 0, "cutting the torn tail of a test log");
}

LoopbackLog::~LoopbackLog() {
	if (file >= 0) {
		close(file);
	}
}

std::shared_ptr<LoopbackLog> LoopbackLog::Named(const std::string &name, const std::string &path) {
	static std::mutex registry_lock;
	static std::map<std::string, std::weak_ptr<LoopbackLog>> registry;
	std::lock_guard<std::mutex> guard(registry_lock);
	auto log = registry[name].lock();
	if (!log) {
		log = std::make_shared<LoopbackLog>(path);
		registry[name] = log;
	}
	return log;
}

void LoopbackLog::Store(raft::GroupId group, const raft::Entry &entry) {
	if (file < 0) {
		return;
	}
	uint64_t head[3] = {uint64_t(entry.type), entry.payload->size(), group};
	std::string record(sizeof(head), '\0');
	memcpy(&record[0], head, sizeof(head));
	record += *entry.payload;
	QUACK_CHECK(write(file, record.data(), record.size()) == ssize_t(record.size()), "writing a test log");
}

raft::LogIndex LoopbackLog::Append(SharedBytes payload, raft::EntryType type, raft::GroupId group) {
	std::lock_guard<std::mutex> guard(lock);
	auto &entries = groups[group];
	entries.push_back({TERM, entries.size() + 1, type, std::move(payload)});
	Store(group, entries.back());
	appended++;
	changed.notify_all();
	return entries.size();
}

raft::LogIndex LoopbackLog::LastIndex(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entries = groups.find(group);
	return entries == groups.end() ? 0 : entries->second.size();
}

std::vector<raft::Entry> LoopbackLog::Read(raft::GroupId group, raft::LogIndex after, size_t max) const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<raft::Entry> result;
	auto entries = groups.find(group);
	for (size_t i = after; entries != groups.end() && i < entries->second.size() && result.size() < max; i++) {
		result.push_back(entries->second[i]);
	}
	return result;
}

void LoopbackLog::Await(uint64_t &seen, MonotonicNs timeout) {
	std::unique_lock<std::mutex> guard(lock);
	changed.wait_for(guard, std::chrono::nanoseconds(timeout), [&]() { return appended != seen; });
	seen = appended;
}

void LoopbackLog::Wake() {
	changed.notify_all();
}

LoopbackEngine::LoopbackEngine(node::StateMachine &machine_p, std::shared_ptr<LoopbackLog> log_p, std::string node_id_p)
    : machine(machine_p), log(std::move(log_p)), node_id(std::move(node_id_p)),
      order({}, [this](const node::CommittedEntry &entry) { return machine.Needs(entry); }) {
}

LoopbackEngine::~LoopbackEngine() {
	Stop(0);
}

Status LoopbackEngine::Start() {
	started = true;
	thread = std::thread([this]() { Run(); });
	return Status::Ok();
}

void LoopbackEngine::Stop(MonotonicNs) {
	{
		std::lock_guard<std::mutex> guard(lock);
		stopping = true;
	}
	changed.notify_all();
	log->Wake();
	if (thread.joinable()) {
		thread.join();
	}
}

void LoopbackEngine::Run() {
	for (;;) {
		{
			std::unique_lock<std::mutex> guard(lock);
			changed.wait(guard, [&]() { return stopping || (!paused && degraded.empty()); });
			if (stopping) {
				return;
			}
		}
		auto status = ApplyOnce();
		if (!status.IsOk()) {
			LatchDegraded(status.ToString());
		}
		changed.notify_all();
	}
}

//! Some of what there is, of some of the groups.
void LoopbackEngine::HandIn(size_t max) {
	std::vector<raft::GroupId> groups {raft::ROOT_GROUP};
	for (auto &group : machine.Groups()) {
		groups.push_back(group.id);
	}
	std::lock_guard<std::mutex> guard(lock);
	if (is_shuffled) {
		std::shuffle(groups.begin(), groups.end(), random);
	}
	for (auto group : groups) {
		auto is_skipped = is_shuffled && random() % 3 == 0;
		if (held_back.count(group) != 0 || is_skipped) {
			continue;
		}
		auto &position = handed_in[group];
		position = std::max(position, order.AppliedIndex(group));
		auto entries = log->Read(group, position, is_shuffled ? 1 + random() % max : max);
		if (!entries.empty()) {
			position = entries.back().index;
			order.Push(group, std::move(entries));
		}
	}
}

Status LoopbackEngine::ApplyOnce() {
	size_t max;
	{
		std::lock_guard<std::mutex> guard(lock);
		max = batch;
	}
	std::unique_lock<std::mutex> guard(apply_lock);
	{
		std::lock_guard<std::mutex> state_guard(lock);
		if (paused) {
			return Status::Ok();
		}
	}
	order.SetApplied(machine.Applied());
	if (groups_version != machine.GroupsVersion()) {
		groups_version = machine.GroupsVersion();
		order.SetGroups(machine.Groups());
	}
	HandIn(max);
	auto taken = order.Take();
	for (size_t first = 0; first < taken.entries.size(); first += max) {
		auto end = std::min(taken.entries.size(), first + max);
		std::vector<node::CommittedEntry> entries(taken.entries.begin() + int64_t(first),
		                                          taken.entries.begin() + int64_t(end));
		auto status = machine.Apply(entries);
		if (!status.IsOk()) {
			return status;
		}
	}
	if (taken.Empty()) {
		auto stuck = order.Check();
		guard.unlock();
		log->Await(seen, 20 * NS_PER_MS);
		return stuck;
	}
	return Status::Ok();
}

void LoopbackEngine::HoldBack(std::set<raft::GroupId> groups, uint64_t seed) {
	std::lock_guard<std::mutex> guard(lock);
	held_back = std::move(groups);
	is_shuffled = seed != 0;
	random.seed(seed);
}

std::string LoopbackEngine::TakeFault() {
	std::lock_guard<std::mutex> guard(lock);
	if (fault_count == 0) {
		return std::string();
	}
	if (fault_skip > 0) {
		fault_skip--;
		return std::string();
	}
	fault_count--;
	return fault;
}

void LoopbackEngine::Propose(raft::GroupId group, SharedBytes payload, MonotonicNs, ProposeCallback done) {
	auto kind = TakeFault();
	node::ProposeOutcome outcome;
	if (IsDegraded()) {
		outcome.status = Status(ErrorCode::Degraded, degraded);
	} else if (kind == "unavailable") {
		outcome.status = Status(ErrorCode::Unavailable, "injected: no leader");
	} else if (kind == "lost") {
		outcome.status = Status(ErrorCode::OutcomeUnknown, "injected: lost");
	} else {
		outcome.index = log->Append(payload, raft::EntryType::Normal, group);
		if (kind == "twice") {
			log->Append(payload, raft::EntryType::Normal, group);
		}
		if (kind == "unknown") {
			outcome.status = Status(ErrorCode::OutcomeUnknown, "injected: answer lost");
		}
	}
	done(outcome);
}

void LoopbackEngine::ReadBarriers(const std::vector<raft::GroupId> &, MonotonicNs, PositionsCallback done) {
	auto kind = TakeFault();
	if (kind == "unavailable") {
		done(Status(ErrorCode::Unavailable, "injected: no leader"));
		return;
	}
	std::vector<node::Position> positions {{raft::ROOT_GROUP, log->LastIndex()}};
	for (auto &group : machine.Groups()) {
		positions.push_back({group.id, log->LastIndex(group.id)});
	}
	done(std::move(positions));
}

Status LoopbackEngine::WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) {
	std::unique_lock<std::mutex> guard(lock);
	bool reached = changed.wait_for(guard, std::chrono::nanoseconds(timeout), [&]() {
		return stopping || !degraded.empty() || AppliedOf(machine, group) >= index;
	});
	if (AppliedOf(machine, group) >= index) {
		return Status::Ok();
	}
	if (!degraded.empty()) {
		return Status(ErrorCode::Degraded, degraded);
	}
	return reached ? Status(ErrorCode::Unavailable, "stopping")
	               : Status(ErrorCode::DeadlineExceeded, "index " + std::to_string(index) + " not applied in time");
}

void LoopbackEngine::TransferLeadership(raft::GroupId, const std::string &, MonotonicNs, TextCallback done) {
	done(Status(ErrorCode::NotSupported, "one log, no leader"));
}

std::vector<node::GroupStatus> LoopbackEngine::GetStatus() const {
	std::vector<node::GroupDefinition> definitions = machine.Groups();
	definitions.push_back({raft::ROOT_GROUP, "root", {}});
	std::vector<node::GroupStatus> rows;
	std::lock_guard<std::mutex> guard(lock);
	for (auto &definition : definitions) {
		node::GroupStatus status;
		status.node_id = node_id;
		status.group = definition.id;
		status.group_name = definition.name;
		status.applied_index = AppliedOf(machine, definition.id);
		status.commit_index = status.last_log_index = log->LastIndex(definition.id);
		status.voters = voters;
		status.is_leader = is_leader;
		status.degraded = !degraded.empty();
		status.reason = degraded;
		rows.push_back(std::move(status));
	}
	return rows;
}

Result<raft::Membership> LoopbackEngine::RootMembership() const {
	raft::Membership membership;
	membership.voters = {1};
	return membership;
}

void LoopbackEngine::LatchDegraded(const std::string &reason) {
	std::lock_guard<std::mutex> guard(lock);
	if (degraded.empty()) {
		degraded = reason;
	}
}

bool LoopbackEngine::IsDegraded() const {
	std::lock_guard<std::mutex> guard(lock);
	return !degraded.empty();
}

void LoopbackEngine::SetPaused(bool paused_p) {
	{
		std::lock_guard<std::mutex> guard(lock);
		paused = paused_p;
	}
	changed.notify_all();
	// An Apply that is running ends first.
	std::lock_guard<std::mutex> guard(apply_lock);
}

void LoopbackEngine::InjectFault(const std::string &kind, int count, int skip) {
	std::lock_guard<std::mutex> guard(lock);
	fault_skip = skip;
	fault = kind;
	fault_count = count;
}

void LoopbackEngine::SetGroup(std::vector<std::string> voters_p, bool is_leader_p) {
	std::lock_guard<std::mutex> guard(lock);
	voters = std::move(voters_p);
	is_leader = is_leader_p;
}

void LoopbackEngine::SetBatch(size_t entries) {
	std::lock_guard<std::mutex> guard(lock);
	batch = entries;
}

Status LoopbackEngine::OnApplyThread(const std::function<Status()> &work) {
	std::lock_guard<std::mutex> guard(apply_lock);
	return work();
}

} // namespace catalog
} // namespace quack
