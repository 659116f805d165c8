//! Recent entries of all groups, bounded in bytes; the oldest appended leave first. No lock: the owner guards it.
#pragma once

#include <deque>
#include <unordered_map>

#include "quack/raft/types.hpp"

namespace quack {
namespace storage {

class EntryCache {
public:
	explicit EntryCache(uint64_t bytes_max_p) : bytes_max(bytes_max_p) {
	}

	//! Replaces cached entries of the group from entry.index on.
	void Put(raft::GroupId group, const raft::Entry &entry);
	//! Null when not cached. Valid until the next change.
	const raft::Entry *Find(raft::GroupId group, raft::LogIndex index) const;
	//! Drops entries up to and including `index`.
	void DropPrefix(raft::GroupId group, raft::LogIndex index);
	void DropGroup(raft::GroupId group);

	//! Payloads plus a fixed cost per entry; at most bytes_max.
	uint64_t Bytes() const {
		return bytes;
	}

private:
	struct Key {
		raft::GroupId group;
		raft::LogIndex index;
	};
	//! Consecutive; front().index is the oldest cached.
	using Run = std::deque<raft::Entry>;

	void PopFront(Run &run);
	void PopBack(Run &run);
	bool IsStale(const Key &key) const;
	void Shrink();

	const uint64_t bytes_max;
	uint64_t bytes = 0;
	size_t entry_count = 0;
	std::unordered_map<raft::GroupId, Run> runs;
	//! In append order; may hold keys of entries that are gone.
	std::deque<Key> order;
};

} // namespace storage
} // namespace quack
