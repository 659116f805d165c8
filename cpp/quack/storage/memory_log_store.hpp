//! A log store without a disk, deliberately plain: for tests of upper layers, and the model that the segmented log is
//! compared with. Nothing survives the object.
#pragma once

#include <map>
#include <mutex>

#include "quack/storage/append_rules.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace storage {

class MemoryLogStore final : public LogStore {
public:
	MemoryLogStore() = default;

	std::vector<RecoveredGroup> Recovered() const override;
	Status CreateGroup(raft::GroupId group, const raft::SnapshotMeta &start) override;
	Status Append(const std::vector<GroupAppend> &batch) override;
	Status Sync() override;
	Status TruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot) override;
	Status Reset(raft::GroupId group, const raft::SnapshotMeta &snapshot) override;
	Status RemoveGroup(raft::GroupId group) override;
	raft::LogReader &Reader(raft::GroupId group) override;
	LogStoreStatus GetStatus() const override;
	raft::LogIndex TailStart(raft::GroupId group, raft::LogIndex limit, uint64_t bytes) const override;

	//! Every group as recovery would report it now.
	std::vector<RecoveredGroup> Groups() const;

private:
	struct Group {
		raft::HardState hard_state;
		raft::SnapshotMeta snapshot;
		std::vector<raft::Entry> entries; //! from snapshot.index + 1 on

		raft::LogIndex LastIndex() const {
			return snapshot.index + entries.size();
		}
	};
	class GroupReader;

	BoundsSource Bounds() const;

	//! Guards everything.
	mutable std::mutex mutex;
	std::map<raft::GroupId, Group> groups;
	std::map<raft::GroupId, std::unique_ptr<raft::LogReader>> readers;
	LogStoreStatus counters;
};

} // namespace storage
} // namespace quack
