//! A MemoryLogStore that outlives the engine (so that restarts can be played) and fails on demand.
#pragma once

#include <atomic>

#include "quack/storage/memory_log_store.hpp"

namespace quack {
namespace test {

class FaultyLog final : public storage::LogStore {
public:
	std::vector<storage::RecoveredGroup> Recovered() const override {
		return inner.Groups();
	}
	Status CreateGroup(raft::GroupId group, const raft::SnapshotMeta &start) override {
		return inner.CreateGroup(group, start);
	}
	Status Append(const std::vector<storage::GroupAppend> &batch) override {
		if (is_full.load()) {
			return Status(ErrorCode::DiskFull, "no space left on device");
		}
		return inner.Append(batch);
	}
	Status Sync() override {
		if (fails_sync.load()) {
			return Status(ErrorCode::IoError, "fdatasync: input/output error");
		}
		return inner.Sync();
	}
	Status TruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot) override {
		return inner.TruncatePrefix(group, snapshot);
	}
	Status Reset(raft::GroupId group, const raft::SnapshotMeta &snapshot) override {
		return inner.Reset(group, snapshot);
	}
	Status RemoveGroup(raft::GroupId group) override {
		return inner.RemoveGroup(group);
	}
	raft::LogReader &Reader(raft::GroupId group) override {
		return inner.Reader(group);
	}
	storage::LogStoreStatus GetStatus() const override {
		return inner.GetStatus();
	}
	raft::LogIndex TailStart(raft::GroupId group, raft::LogIndex limit, uint64_t bytes) const override {
		return inner.TailStart(group, limit, bytes);
	}

	std::atomic<bool> is_full {false};
	std::atomic<bool> fails_sync {false};

private:
	storage::MemoryLogStore inner;
};

} // namespace test
} // namespace quack
