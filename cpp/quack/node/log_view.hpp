//! A group's log as its core sees it: the durable log plus entries that still wait in the writer's queue.
#pragma once

#include <deque>

#include "quack/raft/log_reader.hpp"

namespace quack {
namespace node {

//! Entries are visible here as soon as the loop hands them to the writer, so the loop never waits for a write; the tail
//! is dropped from memory once it is durable. Owned and called by the loop thread only. `durable` is read by the same
//! thread while the writer appends to it (LogStore allows that).
class LogView final : public raft::LogReader {
public:
	//! `start` is the position right before the first entry.
	LogView(raft::LogReader &durable, const raft::SnapshotMeta &start, raft::LogIndex last);

	raft::LogIndex FirstIndex() const override {
		return start.index + 1;
	}
	raft::LogIndex LastIndex() const override {
		return last;
	}
	Result<raft::Term> TermAt(raft::LogIndex index) const override;
	Result<std::vector<raft::Entry>> Entries(raft::LogIndex begin, raft::LogIndex end, size_t bytes_max) const override;

	const raft::SnapshotMeta &Start() const {
		return start;
	}
	//! Entries of a Ready; a first index at or below LastIndex() replaces the suffix.
	void Append(const std::vector<raft::Entry> &entries);
	//! The batch that ended with (index, term) is durable.
	void Flushed(raft::LogIndex index, raft::Term term);
	//! Hides everything up to `position`; done before the writer removes it, so that no read of a running step can
	//! miss.
	void Compact(const raft::SnapshotMeta &position);
	//! After a snapshot install: empty at `position`.
	void Reset(const raft::SnapshotMeta &position);

	//! Highest index that is surely durable here.
	raft::LogIndex DurableIndex() const {
		return TailBegin() - 1;
	}
	size_t TailBytes() const {
		return tail_bytes;
	}

private:
	raft::LogIndex TailBegin() const {
		return tail.empty() ? last + 1 : tail.front().index;
	}

	raft::LogReader &durable;
	raft::SnapshotMeta start;
	raft::LogIndex last;
	std::deque<raft::Entry> tail; //! consecutive, ends at `last` when not empty
	size_t tail_bytes = 0;
};

} // namespace node
} // namespace quack
