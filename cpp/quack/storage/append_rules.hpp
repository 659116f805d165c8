//! What a batch must fulfil before any store writes it. Pure.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "quack/storage/log_store.hpp"

namespace quack {
namespace storage {

//! What the rules need to know about one group.
struct GroupBounds {
	raft::HardState hard_state;
	raft::LogIndex snapshot_index = 0;
	raft::LogIndex last_index = 0;
};

//! How a store shows itself to the rules.
struct BoundsSource {
	//! Nothing for an unknown group.
	std::function<std::optional<GroupBounds>(raft::GroupId)> bounds;
	//! Term of an index in [snapshot_index, last_index].
	std::function<raft::Term(raft::GroupId, raft::LogIndex)> term_at;
};

//! NotFound for an unknown group; InvalidArgument for a gap, for entries out of order, for a term that goes backwards,
//! for a replacement at or below the snapshot or the recorded commit index, and for a commit index beyond the log.
Status CheckAppend(const std::vector<GroupAppend> &batch, const BoundsSource &source);

//! Same for TruncatePrefix: the position must be inside the log and of the log's term.
Status CheckTruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot, const BoundsSource &source);

//! The same hard state with its commit index moved into [snapshot_index, last_index]. Every change of a log's bounds
//! but an append of entries does this.
raft::HardState ClampCommit(raft::HardState hard_state, raft::LogIndex snapshot_index, raft::LogIndex last_index);

} // namespace storage
} // namespace quack
