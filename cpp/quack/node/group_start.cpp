#include "quack/node/group_start.hpp"

#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

//! Whether the log goes through the state's position. A position before its start was checked when it was truncated.
Result<bool> HoldsPosition(storage::LogStore &log, const storage::RecoveredGroup &group,
                           const AppliedPosition &applied) {
	if (applied.index > group.last_index) {
		return false;
	}
	if (applied.index < group.snapshot.index || applied.index == 0) {
		return true;
	}
	auto term = log.Reader(group.group).TermAt(applied.index);
	if (!term.IsOk()) {
		return term.GetStatus();
	}
	return term.Value() == applied.term;
}

} // namespace

const storage::RecoveredGroup *FindGroupWithoutState(const std::vector<storage::RecoveredGroup> &groups,
                                                     const std::map<raft::GroupId, AppliedPosition> &applied) {
	for (auto &group : groups) {
		auto position = applied.find(group.group);
		auto index = position == applied.end() ? 0 : position->second.index;
		if (group.snapshot.index > index) {
			return &group;
		}
	}
	return nullptr;
}

Status CatchUpLog(storage::LogStore &log, storage::RecoveredGroup &group, const AppliedPosition &applied) {
	auto holds = HoldsPosition(log, group, applied);
	if (!holds.IsOk() || holds.Value()) {
		return holds.IsOk() ? Status::Ok() : holds.GetStatus();
	}
	raft::SnapshotMeta position {applied.index, applied.term, applied.membership};
	if (position.membership.voters.empty()) {
		position.membership = group.snapshot.membership;
	}
	if (group.hard_state.term < applied.term) {
		// It never voted in a term that its log does not know.
		group.hard_state.term = applied.term;
		group.hard_state.voted_for = raft::NO_NODE;
	}
	group.hard_state.commit_index = applied.index;
	Log(LogLevel::Warn, "node", "log_restarted_at_state",
	    {{"group", std::to_string(group.group)},
	     {"log_last_index", std::to_string(group.last_index)},
	     {"applied_index", std::to_string(applied.index)}});
	auto status = log.Reset(group.group, position);
	if (status.IsOk()) {
		storage::GroupAppend append;
		append.group = group.group;
		append.hard_state = group.hard_state;
		status = log.Append({append});
	}
	if (status.IsOk()) {
		status = log.Sync();
	}
	group.snapshot = std::move(position);
	group.first_index = applied.index + 1;
	group.last_index = applied.index;
	return status;
}

} // namespace node
} // namespace quack
