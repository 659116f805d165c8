#include "quack/storage/append_rules.hpp"

#include <algorithm>
#include <map>

#include "quack/common/limits.hpp"

namespace quack {
namespace storage {

namespace {

Status Refuse(raft::GroupId group, const std::string &what) {
	return Status(ErrorCode::InvalidArgument, "group " + std::to_string(group) + ": " + what);
}

Status UnknownGroup(raft::GroupId group) {
	return Status(ErrorCode::NotFound, "the log has no group " + std::to_string(group) + "; create it first");
}

Status CheckHardState(raft::GroupId group, const raft::HardState &before, const raft::HardState &after) {
	if (after.term < before.term) {
		return Refuse(group, "hard state term " + std::to_string(after.term) + " is behind the recorded term " +
		                         std::to_string(before.term));
	}
	if (after.term == before.term && before.voted_for != raft::NO_NODE && after.voted_for != before.voted_for) {
		return Refuse(group, "a second vote in term " + std::to_string(after.term));
	}
	return Status::Ok();
}

Status CheckEntries(const GroupAppend &item, const GroupBounds &bounds, raft::Term previous_term) {
	auto expected = item.entries.front().index;
	for (auto &entry : item.entries) {
		QUACK_CHECK(entry.payload, "an entry's payload is never null");
		auto size = CheckEntryBytes(entry.payload->size());
		if (!size.IsOk()) {
			return Refuse(item.group, size.Message());
		}
		if (entry.index != expected) {
			return Refuse(item.group, "entry " + std::to_string(entry.index) + " where " + std::to_string(expected) +
			                              " must follow");
		}
		if (entry.term < previous_term) {
			return Refuse(item.group, "entry " + std::to_string(entry.index) + " of term " +
			                              std::to_string(entry.term) + " follows one of term " +
			                              std::to_string(previous_term));
		}
		previous_term = entry.term;
		expected++;
	}
	auto first = item.entries.front().index;
	if (first <= bounds.hard_state.commit_index) {
		return Refuse(item.group, "entry " + std::to_string(first) + " would replace a committed one (commit index " +
		                              std::to_string(bounds.hard_state.commit_index) + ")");
	}
	return Status::Ok();
}

} // namespace

Status CheckAppend(const std::vector<GroupAppend> &batch, const BoundsSource &source) {
	// A group may occur twice in a batch; later items build on earlier ones.
	struct Pending {
		GroupBounds bounds;
		std::vector<const raft::Entry *> entries; //! consecutive, up to bounds.last_index
	};
	std::map<raft::GroupId, Pending> groups;
	for (auto &item : batch) {
		auto found = groups.find(item.group);
		if (found == groups.end()) {
			auto bounds = source.bounds(item.group);
			if (!bounds) {
				return UnknownGroup(item.group);
			}
			found = groups.emplace(item.group, Pending {*bounds, {}}).first;
		}
		auto &bounds = found->second.bounds;
		auto &pending = found->second.entries;
		auto commit_before = bounds;
		if (item.hard_state) {
			auto status = CheckHardState(item.group, bounds.hard_state, *item.hard_state);
			if (!status.IsOk()) {
				return status;
			}
			bounds.hard_state = *item.hard_state;
		}
		if (item.entries.empty()) {
			continue;
		}
		auto first = item.entries.front().index;
		if (first <= bounds.snapshot_index || first > bounds.last_index + 1) {
			return Refuse(item.group, "entry " + std::to_string(first) + " does not fit: the log holds (" +
			                              std::to_string(bounds.snapshot_index) + ", " +
			                              std::to_string(bounds.last_index) + "]");
		}
		while (!pending.empty() && pending.back()->index >= first) {
			pending.pop_back();
		}
		auto previous_term = pending.empty() ? source.term_at(item.group, first - 1) : pending.back()->term;
		auto status = CheckEntries(item, commit_before, previous_term);
		if (!status.IsOk()) {
			return status;
		}
		for (auto &entry : item.entries) {
			pending.push_back(&entry);
		}
		bounds.last_index = item.entries.back().index;
	}
	for (auto &item : groups) {
		auto &bounds = item.second.bounds;
		if (bounds.hard_state.commit_index > bounds.last_index) {
			return Refuse(item.first, "commit index " + std::to_string(bounds.hard_state.commit_index) +
			                              " is beyond the last entry " + std::to_string(bounds.last_index));
		}
	}
	return Status::Ok();
}

Status CheckTruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot, const BoundsSource &source) {
	auto bounds = source.bounds(group);
	if (!bounds) {
		return UnknownGroup(group);
	}
	if (snapshot.index < bounds->snapshot_index || snapshot.index > bounds->last_index) {
		return Refuse(group, "cannot forget up to " + std::to_string(snapshot.index) + ": the log holds (" +
		                         std::to_string(bounds->snapshot_index) + ", " + std::to_string(bounds->last_index) +
		                         "]");
	}
	auto term = source.term_at(group, snapshot.index);
	if (term != snapshot.term) {
		return Refuse(group, "index " + std::to_string(snapshot.index) + " has term " + std::to_string(term) +
		                         " in the log and term " + std::to_string(snapshot.term) + " in the checkpoint");
	}
	return Status::Ok();
}

raft::HardState ClampCommit(raft::HardState hard_state, raft::LogIndex snapshot_index, raft::LogIndex last_index) {
	hard_state.commit_index = std::min(std::max(hard_state.commit_index, snapshot_index), last_index);
	return hard_state;
}

} // namespace storage
} // namespace quack
