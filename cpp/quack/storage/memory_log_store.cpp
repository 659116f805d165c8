#include "quack/storage/memory_log_store.hpp"

#include <algorithm>

namespace quack {
namespace storage {

namespace {

Status NoGroup(raft::GroupId group) {
	return Status(ErrorCode::NotFound, "the log has no group " + std::to_string(group));
}

} // namespace

class MemoryLogStore::GroupReader final : public raft::LogReader {
public:
	GroupReader(const MemoryLogStore &store_p, raft::GroupId group_p) : store(store_p), group(group_p) {
	}

	raft::LogIndex FirstIndex() const override {
		std::lock_guard<std::mutex> lock(store.mutex);
		auto found = store.groups.find(group);
		return found == store.groups.end() ? 1 : found->second.snapshot.index + 1;
	}

	raft::LogIndex LastIndex() const override {
		std::lock_guard<std::mutex> lock(store.mutex);
		auto found = store.groups.find(group);
		return found == store.groups.end() ? 0 : found->second.LastIndex();
	}

	Result<raft::Term> TermAt(raft::LogIndex index) const override {
		std::lock_guard<std::mutex> lock(store.mutex);
		auto found = store.groups.find(group);
		if (found == store.groups.end()) {
			return NoGroup(group);
		}
		auto &log = found->second;
		if (index < log.snapshot.index || index > log.LastIndex()) {
			return Status(ErrorCode::NotFound, "index " + std::to_string(index) + " is not in the log");
		}
		return index == log.snapshot.index ? log.snapshot.term : log.entries[index - log.snapshot.index - 1].term;
	}

	Result<std::vector<raft::Entry>> Entries(raft::LogIndex begin, raft::LogIndex end,
	                                         size_t bytes_max) const override {
		std::lock_guard<std::mutex> lock(store.mutex);
		auto found = store.groups.find(group);
		if (found == store.groups.end()) {
			return NoGroup(group);
		}
		auto &log = found->second;
		if (begin <= log.snapshot.index) {
			return Status(ErrorCode::NotFound, "index " + std::to_string(begin) + " is compacted");
		}
		std::vector<raft::Entry> result;
		size_t bytes = 0;
		for (auto index = begin; index < std::min(end, log.LastIndex() + 1); index++) {
			result.push_back(log.entries[index - log.snapshot.index - 1]);
			bytes += result.back().payload->size();
			if (bytes >= bytes_max) {
				break;
			}
		}
		return result;
	}

private:
	const MemoryLogStore &store;
	const raft::GroupId group;
};

BoundsSource MemoryLogStore::Bounds() const {
	BoundsSource source;
	source.bounds = [this](raft::GroupId id) -> std::optional<GroupBounds> {
		auto found = groups.find(id);
		if (found == groups.end()) {
			return std::nullopt;
		}
		return GroupBounds {found->second.hard_state, found->second.snapshot.index, found->second.LastIndex()};
	};
	source.term_at = [this](raft::GroupId id, raft::LogIndex index) {
		auto &log = groups.at(id);
		return index == log.snapshot.index ? log.snapshot.term : log.entries[index - log.snapshot.index - 1].term;
	};
	return source;
}

std::vector<RecoveredGroup> MemoryLogStore::Recovered() const {
	return {};
}

std::vector<RecoveredGroup> MemoryLogStore::Groups() const {
	std::lock_guard<std::mutex> lock(mutex);
	std::vector<RecoveredGroup> result;
	for (auto &item : groups) {
		auto &log = item.second;
		result.push_back({item.first, log.hard_state, log.snapshot, log.snapshot.index + 1, log.LastIndex()});
	}
	return result;
}

Status MemoryLogStore::CreateGroup(raft::GroupId group, const raft::SnapshotMeta &start) {
	std::lock_guard<std::mutex> lock(mutex);
	if (groups.count(group) != 0) {
		return Status(ErrorCode::AlreadyExists, "the log has group " + std::to_string(group) + " already");
	}
	groups[group].snapshot = start;
	groups[group].hard_state.commit_index = start.index;
	return Status::Ok();
}

Status MemoryLogStore::Append(const std::vector<GroupAppend> &batch) {
	std::lock_guard<std::mutex> lock(mutex);
	auto status = CheckAppend(batch, Bounds());
	if (!status.IsOk()) {
		return status;
	}
	for (auto &item : batch) {
		auto &log = groups.at(item.group);
		if (item.hard_state) {
			log.hard_state = *item.hard_state;
		}
		if (!item.entries.empty()) {
			log.entries.resize(item.entries.front().index - log.snapshot.index - 1);
		}
		for (auto &entry : item.entries) {
			log.entries.push_back(entry);
			counters.appended_bytes += entry.payload->size();
		}
	}
	return Status::Ok();
}

Status MemoryLogStore::Sync() {
	std::lock_guard<std::mutex> lock(mutex);
	counters.sync_count++;
	return Status::Ok();
}

Status MemoryLogStore::TruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot) {
	std::lock_guard<std::mutex> lock(mutex);
	auto status = CheckTruncatePrefix(group, snapshot, Bounds());
	if (!status.IsOk()) {
		return status;
	}
	auto &log = groups.at(group);
	auto count = static_cast<std::ptrdiff_t>(snapshot.index - log.snapshot.index);
	log.entries.erase(log.entries.begin(), log.entries.begin() + count);
	log.snapshot = snapshot;
	log.hard_state = ClampCommit(log.hard_state, snapshot.index, log.LastIndex());
	return Status::Ok();
}

Status MemoryLogStore::Reset(raft::GroupId group, const raft::SnapshotMeta &snapshot) {
	std::lock_guard<std::mutex> lock(mutex);
	auto found = groups.find(group);
	if (found == groups.end()) {
		return NoGroup(group);
	}
	found->second.entries.clear();
	found->second.snapshot = snapshot;
	found->second.hard_state.commit_index = snapshot.index;
	return Status::Ok();
}

Status MemoryLogStore::RemoveGroup(raft::GroupId group) {
	std::lock_guard<std::mutex> lock(mutex);
	return groups.erase(group) != 0 ? Status::Ok() : NoGroup(group);
}

raft::LogReader &MemoryLogStore::Reader(raft::GroupId group) {
	std::lock_guard<std::mutex> lock(mutex);
	auto &reader = readers[group];
	if (!reader) {
		reader = std::make_unique<GroupReader>(*this, group);
	}
	return *reader;
}

raft::LogIndex MemoryLogStore::TailStart(raft::GroupId group, raft::LogIndex limit, uint64_t bytes) const {
	std::lock_guard<std::mutex> lock(mutex);
	auto found = groups.find(group);
	if (found == groups.end()) {
		return 0;
	}
	auto &log = found->second;
	auto index = log.LastIndex();
	uint64_t kept = 0;
	while (index > log.snapshot.index && (index > limit || kept < bytes)) {
		kept += log.entries[index - log.snapshot.index - 1].payload->size();
		index--;
	}
	return index;
}

LogStoreStatus MemoryLogStore::GetStatus() const {
	std::lock_guard<std::mutex> lock(mutex);
	return counters;
}

} // namespace storage
} // namespace quack
