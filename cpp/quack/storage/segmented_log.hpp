//! The durable log on disk: one per node, shared by all groups, so that one fdatasync covers every lane.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "quack/storage/append_rules.hpp"
#include "quack/storage/entry_cache.hpp"
#include "quack/storage/file_system.hpp"
#include "quack/storage/log_recovery.hpp"
#include "quack/storage/log_store.hpp"
#include "quack/storage/log_table.hpp"
#include "quack/storage/segment_pool.hpp"

namespace quack {
namespace storage {

struct LogOptions {
	//! Created when missing. Belongs to this log alone.
	std::string directory;
	//! Preallocated size of a segment; a batch that needs more gets a segment of its own size. At least 16 KiB.
	uint64_t segment_bytes = 64ULL << 20;
	//! Memory for recent entries of all groups.
	uint64_t cache_bytes = 64ULL << 20;
	//! Old segments kept for reuse; more are removed.
	size_t spare_segments_max = 2;
	//! A helper thread makes the next segment ahead of need. Off in deterministic tests.
	bool prepare_in_background = true;
	LogSabotage sabotage;
};

//! Opens or creates the log in options.directory. Fails with
//! Unavailable (another process has it), Corruption (damage before the acknowledged end: file, offset, group and
//! index), Incompatible (another format version), DiskFull, IoError, InvalidArgument. `files` outlives the log.
Result<std::unique_ptr<LogStore>> OpenSegmentedLog(FileSystem &files, const LogOptions &options);

//! A log store over segment files.
//!
//! FILES. `segment-<sequence>.log` hold the log; sequences rise by one. `spare-<n>` are preallocated files, zeroed or
//! left over from old segments, that will become segments. `temporary-<n>` are spares in the making. `LOCK` is locked
//! while the log is open. Formats: log_format.hpp.
//!
//! A SEGMENT starts with a header (version, store id, sequence, where the segment before ended and with which checksum)
//! and a head: one GroupState record per group with hard state, snapshot position, membership and last index. Thus the
//! oldest segment can go as soon as no live entry lies in it. Then follow batches of records. Each record carries its
//! segment, its own offset, the checksum of the record before it (a chain) and `synced`: up to where the segment was
//! known durable when the record was written. A batch ends with an End record; the next batch overwrites it. After each
//! successful fdatasync the End record is written again with the new `synced`, without a sync of its own: it reaches
//! the disk with the next one or when the kernel pleases. Leftovers of a reused file never pass for records: segment,
//! offset or checksum (seeded by the header, which holds a random number) differ.
//!
//! THE ACKNOWLEDGED END of a segment is the highest `synced` that any valid record in it shows, also one behind a gap.
//! A segment that has a successor was durable up to where the successor's header says it ended.
//!
//! CRASH CASES and what Open does:
//!  1. Between Append and Sync: any part of the batch may be there, in any order of sectors. The valid chain is kept,
//!  the
//!     rest lies behind the acknowledged end: it is cut, overwritten with zeros and counted in torn_bytes. Kept records
//!     are synced before Open returns.
//!     When a hard state survived but not the entries of its batch, its commit index is lowered by a new record.
//!  2. In the middle of a write that overwrites an End record: as 1; the chain ends at the same place.
//!  3. After Sync, before its End record is written: all records are valid; the chain simply ends.
//!  4. While a spare is made: a `temporary` file, removed.
//!  5. While a segment is opened: its header and head are written and synced under the spare's name, then it is renamed
//!     and the directory is synced before any batch goes in. Either name may be found; a segment file is always whole
//!     up to the end of its head.
//!  6. While old segments are removed or renamed to spares: the truncation that freed them was durable before. Some may
//!     still be there, even with a gap; those before the gap are removed when everything live lies behind it.
//!  7. Before Open returns: mending the tail only writes behind the acknowledged end, so Open can run again.
//!  8. The file of the newest segment is shorter than its header says (a crash cannot do that, a copy or a bad file
//!  system
//!     can): treated like 1 and reported; the file gets its size back.
//!  9. A damaged record before the acknowledged end, in any segment; a segment missing between others, while entries in
//!     it are needed; a damaged header or head: refused with Corruption, nothing is changed.
//! 10. After a failed fdatasync (latched, then the process ended): the page cache may show bytes the disk never got.
//! Open
//!     writes everything behind the acknowledged end again before it syncs.
//!
//! DISK FULL. Inside a preallocated segment there is space. When a new segment cannot be had, smaller sizes are tried,
//! then the call answers DiskFull and nothing changed. The last part of each segment is kept for records that are small
//! or free space (hard state, truncation, groups), so that a full disk can still be helped by truncating.
//!
//! THREADS: see LogStore. `mutex` is not held across writes and syncs; readers hold it only to look at positions.
class SegmentedLog final : public LogStore {
public:
	SegmentedLog(FileSystem &files, const LogOptions &options, std::unique_ptr<FileLock> lock);
	~SegmentedLog() override;

	//! Recovers or creates; call once, before anything else.
	Status Open();

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
	Status TryHeal() override;

private:
	class GroupReader;
	struct ReadPlan;

	Status LowerCommitHints();
	BoundsSource Bounds() const;
	Status WriteControl(RecordType type, raft::GroupId group, const raft::SnapshotMeta &position);
	Status WriteRecords(const std::vector<PendingRecord> &records, bool may_use_reserve);
	Status MakeRoom(uint64_t bytes, bool may_use_reserve);
	Status WriteBatch(const std::vector<PendingRecord> &records);
	Status WriteEnd();
	Status OpenSegment(uint64_t batch_bytes);
	Status WriteHead(const SpareSegment &spare, const std::vector<PendingRecord> &heads, SegmentHeader &header,
	                 LogTail &head_tail);
	Status SyncCurrent();
	Status ReleaseSegments();
	Status Note(Status status);
	Status Health() const;
	uint64_t Reserve() const;
	void Remember(const PendingRecord &record);

	Result<std::vector<raft::Entry>> ReadEntries(raft::GroupId group, raft::LogIndex begin, raft::LogIndex end,
	                                             size_t bytes_max) const;
	Status PlanRead(raft::GroupId group, raft::LogIndex begin, raft::LogIndex end, size_t bytes_max,
	                ReadPlan &plan) const;
	Status ReadPlanned(raft::GroupId group, ReadPlan &plan) const;
	bool StillCurrent(raft::GroupId group, const ReadPlan &plan) const;

	FileSystem &files;
	const LogOptions options;
	const std::unique_ptr<FileLock> lock;
	SegmentPool pool;
	std::vector<RecoveredGroup> recovered;

	// Writer thread only.
	uint64_t store_id = 0;
	Segment current;
	LogTail tail;
	uint64_t last_sequence = 0;
	//! A refused batch may have left bytes at the tail; the End record must be restored first.
	bool is_tail_dirty = false;
	//! The End record that took back a refused batch is not durable yet.
	bool is_retreat_unsynced = false;

	//! Guards what follows. Only the writer thread changes `table`, so it may look at it without the lock.
	mutable std::mutex mutex;
	LogTable table;
	EntryCache cache;
	std::deque<Segment> segments; //! oldest first; the last one is `current`
	uint64_t tail_end = 0;        //! copy of tail.offset
	std::map<raft::GroupId, std::unique_ptr<raft::LogReader>> readers;
	LogStoreStatus status;
};

} // namespace storage
} // namespace quack
