//! The memory side of the log: for every group its hard state, snapshot position and where each entry lies. One Apply
//! serves live writes and recovery alike, so that both cannot differ. No IO, no lock: the owner guards it.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "quack/storage/log_format.hpp"

namespace quack {
namespace storage {

//! Where an entry's record lies. 12 bytes per live entry.
struct EntryPosition {
	//! Low half of the sequence; 0 = in a segment that is gone (only between the head of the oldest segment and the
	//! truncation that let its predecessors go).
	uint32_t segment = 0;
	uint32_t offset_units = 0; //! of RECORD_ALIGNMENT
	uint32_t body_size = 0;

	uint64_t Offset() const {
		return static_cast<uint64_t>(offset_units) * RECORD_ALIGNMENT;
	}
};

//! How many live entries each segment holds; a segment without any may go once it is the oldest.
class LiveCounts {
public:
	void Add(uint32_t segment) {
		counts[segment]++;
	}
	void Drop(uint32_t segment);
	uint64_t Of(uint32_t segment) const;

private:
	std::map<uint32_t, uint64_t> counts;
};

//! One group. Invariant: positions cover (snapshot.index, LastIndex()] without gaps; terms never decrease.
class GroupLog {
public:
	raft::HardState hard_state;

	const raft::SnapshotMeta &Snapshot() const {
		return snapshot;
	}
	raft::LogIndex LastIndex() const {
		return snapshot.index + positions.size();
	}
	//! `index` in [Snapshot().index, LastIndex()].
	raft::Term TermAt(raft::LogIndex index) const;
	//! `index` in (Snapshot().index, LastIndex()].
	const EntryPosition &PositionOf(raft::LogIndex index) const {
		return positions[index - snapshot.index - 1];
	}

	//! `index` in (Snapshot().index, LastIndex() + 1]; entries from it on are replaced.
	void Append(raft::LogIndex index, raft::Term term, const EntryPosition &position, LiveCounts &live);
	//! `to.index` in [Snapshot().index, LastIndex()].
	void TruncatePrefix(const raft::SnapshotMeta &to, LiveCounts &live);
	void Reset(const raft::SnapshotMeta &to, LiveCounts &live);
	//! Entries up to `last_index` exist somewhere; see EntryPosition::segment.
	void AddUnplaced(raft::LogIndex last_index);

private:
	struct TermRun {
		raft::LogIndex first = 0;
		raft::Term term = 0;
	};
	void TruncateSuffix(raft::LogIndex first_dropped, LiveCounts &live);

	raft::SnapshotMeta snapshot;
	std::deque<EntryPosition> positions;
	//! Ascending; the first run starts at or before snapshot.index + 1 when there are entries.
	std::deque<TermRun> runs;
};

class LogTable {
public:
	//! Takes over one record that lies at `offset` of segment `segment` (low half). Corruption when it contradicts what
	//! came before; the message names group and index.
	Status Apply(const RecordFields &fields, ByteView body, uint32_t segment, uint64_t offset);

	//! Corruption when an entry that must exist lies in no segment.
	Status CheckComplete() const;

	GroupLog *Find(raft::GroupId group);
	const GroupLog *Find(raft::GroupId group) const;
	const std::map<raft::GroupId, GroupLog> &Groups() const {
		return groups;
	}
	GroupHead HeadOf(raft::GroupId group) const;
	const LiveCounts &Live() const {
		return live;
	}

private:
	Status ApplyHead(const RecordFields &fields, ByteView body);
	Status ApplyPosition(const RecordFields &fields, ByteView body);
	Status ApplyEntry(GroupLog &group, const RecordFields &fields, ByteView body, uint32_t segment, uint64_t offset);

	std::map<raft::GroupId, GroupLog> groups;
	LiveCounts live;
};

} // namespace storage
} // namespace quack
