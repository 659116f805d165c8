#include "quack/node/group_start.hpp"

#include "quack/common/log.hpp"

namespace quack {
namespace node {

std::map<raft::GroupId, GroupDefinition> DefinitionsOf(const StateMachine &state_machine) {
	std::map<raft::GroupId, GroupDefinition> result;
	for (auto &group : state_machine.Groups()) {
		result[group.id] = group;
	}
	return result;
}

std::map<raft::GroupId, AppliedPosition> PositionsOf(const StateMachine &state_machine) {
	std::map<raft::GroupId, AppliedPosition> result;
	for (auto &position : state_machine.Applied()) {
		result[position.group] = position;
	}
	return result;
}

Status RemoveRetired(storage::LogStore &log, std::vector<storage::RecoveredGroup> &groups,
                     const StateMachine &state_machine) {
	auto definitions = DefinitionsOf(state_machine);
	auto root_applied = PositionsOf(state_machine)[raft::ROOT_GROUP].index;
	for (auto &group : groups) {
		if (group.group == raft::ROOT_GROUP && group.last_index > root_applied) {
			return Status::Ok();
		}
	}
	std::vector<storage::RecoveredGroup> kept;
	Status status;
	for (auto &group : groups) {
		if (group.group == raft::ROOT_GROUP || definitions.count(group.group) != 0) {
			kept.push_back(std::move(group));
		} else if (status.IsOk()) {
			status = log.RemoveGroup(group.group);
		}
	}
	auto is_changed = kept.size() != groups.size();
	groups.swap(kept);
	return status.IsOk() && is_changed ? log.Sync() : status;
}

Result<bool> LogHoldsState(storage::LogStore &log, const storage::RecoveredGroup &group,
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
	auto holds = LogHoldsState(log, group, applied);
	if (!holds.IsOk() || holds.Value()) {
		return holds.IsOk() ? Status::Ok() : holds.GetStatus();
	}
	Log(LogLevel::Warn, "node", "log_restarted_at_state",
	    {{"group", std::to_string(group.group)},
	     {"log_last_index", std::to_string(group.last_index)},
	     {"applied_index", std::to_string(applied.index)}});
	StartAtState(group, applied);
	auto status = log.Reset(group.group, group.snapshot);
	if (status.IsOk()) {
		storage::GroupAppend append;
		append.group = group.group;
		append.hard_state = group.hard_state;
		status = log.Append({append});
	}
	return status.IsOk() ? log.Sync() : status;
}

void StartAtState(storage::RecoveredGroup &group, const AppliedPosition &applied) {
	if (!applied.membership.voters.empty()) {
		group.snapshot.membership = applied.membership;
	}
	group.snapshot.index = applied.index;
	group.snapshot.term = applied.term;
	if (group.hard_state.term < applied.term) {
		// It never voted in a term that its log does not know.
		group.hard_state.term = applied.term;
		group.hard_state.voted_for = raft::NO_NODE;
	}
	group.hard_state.commit_index = applied.index;
	group.first_index = applied.index + 1;
	group.last_index = applied.index;
}

} // namespace node
} // namespace quack
