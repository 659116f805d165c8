//! The core's view of its log: the owner's log below, the entries of the running step above, and what of it is durable.
#pragma once

#include <deque>

#include "quack/raft/log_reader.hpp"

namespace quack {
namespace raft {

//! Within a step appended entries are kept here, because the owner appends them only when it processes the Ready; from
//! the next step on they are read through the LogReader.
class RaftLog {
public:
	explicit RaftLog(LogReader &reader_p);

	//! Forgets the entries of the last step, which the owner has appended by now. Internal when it has not.
	Status BeginStep();
	//! Notes the step's entries as one batch on its way to disk and returns them.
	const std::vector<Entry> &EndStep(MonotonicNs now);

	LogIndex FirstIndex() const {
		return reader.FirstIndex();
	}
	LogIndex LastIndex() const {
		return last_index;
	}
	Term LastTerm() const {
		return last_term;
	}
	//! Everything up to here is on this node's disk as the log now reads.
	LogIndex DurableIndex() const {
		return durable_index;
	}
	//! Term of an index in [FirstIndex() - 1, LastIndex()]; NotFound outside.
	Result<Term> TermAt(LogIndex index) const;
	//! The log holds an entry (or its snapshot stands) at exactly this index and term.
	bool Matches(LogIndex index, Term term) const;
	//! [begin, end), cut by bytes, at least one entry. NotFound when begin is compacted.
	Result<std::vector<Entry>> Entries(LogIndex begin, LogIndex end, size_t bytes_max) const;
	//! Largest index <= `index` whose term is <= `term`; FirstIndex() - 1 at the least (fast back-off, paper §5.3).
	LogIndex LastIndexUpToTerm(LogIndex index, Term term) const;

	//! Replaces the suffix from the first entry's index on. Consecutive, first index in [FirstIndex(), LastIndex() +
	//! 1].
	void Append(std::vector<Entry> entries);
	//! A batch, and every batch before it, is durable. Matched against the batches handed out, first to last, never
	//! against the log alone: the same (index, term) may have been truncated and written again.
	void AppendCompleted(LogIndex index, Term term);
	//! The owner reset the log to a snapshot.
	void Reset(LogIndex index, Term term);
	//! Batches handed out and not yet reported durable.
	size_t PendingBatchCount() const {
		return batches.size();
	}
	//! When the oldest of them was handed out; there must be one.
	MonotonicNs OldestPendingSince() const {
		return batches.front().handed_out_at;
	}

private:
	struct Batch {
		LogIndex first;
		LogIndex last;
		Term last_term;
		MonotonicNs handed_out_at;
	};

	LogReader &reader;
	LogIndex last_index;
	Term last_term;
	LogIndex durable_index;
	//! Entries of the running step, consecutive, ending at last_index.
	std::vector<Entry> fresh;
	//! In the order in which they were handed out.
	std::deque<Batch> batches;
};

} // namespace raft
} // namespace quack
