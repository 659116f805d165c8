//! A group's log as plain values: what the checkers look at, and the oracle beside the real log.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quack/raft/types.hpp"

namespace quack {
namespace sim {

//! One write to the log; members take effect in this order.
struct LogWrite {
	std::optional<raft::HardState> hard_state;
	std::vector<raft::Entry> entries;
	//! Drop everything and start again here.
	std::optional<raft::SnapshotMeta> reset;
	//! Forget entries up to here.
	std::optional<raft::SnapshotMeta> truncate_prefix;
};

//! A group's log as of some moment.
class LogImage {
public:
	raft::HardState hard_state;
	raft::SnapshotMeta base;
	//! entries[i] has index base.index + 1 + i.
	std::vector<raft::Entry> entries;

	raft::LogIndex LastIndex() const {
		return base.index + entries.size();
	}
	//! True when the entry at `index` is here with `term`, or covered by the base (committed, so equal everywhere).
	bool Holds(raft::LogIndex index, raft::Term term) const;
	std::optional<raft::Term> TermAt(raft::LogIndex index) const;
	//! Applies the first `entry_limit` entries of a write; a torn write ends there.
	void Apply(const LogWrite &write, size_t entry_limit);
	void Apply(const LogWrite &write) {
		Apply(write, write.entries.size());
	}
	//! Equal to the last byte; a commit hint beyond the log counts as pointing at its end.
	bool SameAs(const LogImage &other) const;
	std::string Describe() const;
};

bool SameEntry(const raft::Entry &a, const raft::Entry &b);

} // namespace sim
} // namespace quack
