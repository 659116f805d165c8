//! Contract of the durable log: one per node, shared by all groups. The segmented implementation is segmented_log.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/raft/log_reader.hpp"

namespace quack {
namespace storage {

//! What one group adds in one batch; order of members: hard state, then entries.
struct GroupAppend {
	raft::GroupId group = raft::ROOT_GROUP;
	std::optional<raft::HardState> hard_state;
	//! Consecutive. When the first index is at or below LastIndex() the suffix from it on is replaced.
	std::vector<raft::Entry> entries;
};

//! What recovery found for one group.
struct RecoveredGroup {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::HardState hard_state;
	//! Position right before FirstIndex(), with the membership in force there.
	raft::SnapshotMeta snapshot;
	raft::LogIndex first_index = 1;
	raft::LogIndex last_index = 0;
};

//! Sizes and counters for status and metrics.
struct LogStoreStatus {
	uint64_t segment_count = 0;
	uint64_t disk_bytes = 0;
	uint64_t cached_bytes = 0;
	uint64_t sync_count = 0;
	uint64_t appended_bytes = 0;
	//! Bytes cut from a torn, unacknowledged tail at the last Open.
	uint64_t torn_bytes = 0;
	//! Ok, DiskFull (heals by itself), or IoError/Corruption (latched: no append until reopened).
	Status health;
};

//! Threads: Append, Sync, CreateGroup, Reset, TruncatePrefix, RemoveGroup and TryHeal from one writer thread; Reader()
//! objects from the thread that steps the cores; GetStatus from any. Append makes entries visible to the reader at
//! once.
class LogStore {
public:
	virtual ~LogStore() = default;

	//! Groups found by recovery, in id order.
	virtual std::vector<RecoveredGroup> Recovered() const = 0;

	//! Starts a group's log at a snapshot position ({0, 0, initial membership} for a new one). AlreadyExists if known.
	//! Durable after the next Sync.
	virtual Status CreateGroup(raft::GroupId group, const raft::SnapshotMeta &start) = 0;

	//! Writes the batch, all or nothing for the reader; durable only after the next successful Sync (a crash before it
	//! may keep any prefix). DiskFull leaves the log as before the call and may be tried again
	//! (until that succeeds, a crash may still keep a prefix of the refused batch, as of any unsynced one). NotFound
	//! and InvalidArgument (append_rules.hpp) are bugs of the caller, found before anything is written. Any other
	//! failure latches the log.
	virtual Status Append(const std::vector<GroupAppend> &batch) = 0;

	//! Makes every earlier write durable (fdatasync). A failure latches the log for good: it is never retried
	//! (fsync may drop dirty pages).
	virtual Status Sync() = 0;

	//! Forgets entries up to and including `snapshot.index`, which a durable checkpoint covers. Removes whole segments
	//! only, after the next Sync. InvalidArgument when the position is not in the log.
	virtual Status TruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot) = 0;

	//! After a snapshot install: drops all entries of the group and starts again at the snapshot.
	virtual Status Reset(raft::GroupId group, const raft::SnapshotMeta &snapshot) = 0;

	//! Retires a group.
	virtual Status RemoveGroup(raft::GroupId group) = 0;

	//! Read side of a group; lives as long as the store. Empty while the group is unknown or after it was removed.
	virtual raft::LogReader &Reader(raft::GroupId group) = 0;

	virtual LogStoreStatus GetStatus() const = 0;

	//! Where to cut for a bounded tail: the highest index <= `limit` so that what the log holds behind it, of all
	//! groups together, weighs at least `bytes` (the index before FirstIndex() when all of it weighs less; 0 for an
	//! unknown group). Any thread.
	virtual raft::LogIndex TailStart(raft::GroupId group, raft::LogIndex limit, uint64_t bytes) const = 0;

	//! After DiskFull: looks whether the log can grow again, without writing a record; Ok also clears `health`. Writer
	//! thread. The latched failure when there is one.
	virtual Status TryHeal() {
		return GetStatus().health;
	}
};

} // namespace storage
} // namespace quack
