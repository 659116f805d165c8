//! From what the disk holds of a group to a log and a state that fit together. Before the group's core is made, so the
//! log belongs to the caller.
#pragma once

#include <map>

#include "quack/node/state_machine.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace node {

std::map<raft::GroupId, GroupDefinition> DefinitionsOf(const StateMachine &state_machine);
std::map<raft::GroupId, AppliedPosition> PositionsOf(const StateMachine &state_machine);

//! Removes, here and durably from the log, the groups that the state says are retired: it has applied all that the log
//! of the root group holds and does not know them. (A group's log is made after the entry that creates it is durable.)
Status RemoveRetired(storage::LogStore &log, std::vector<storage::RecoveredGroup> &groups,
                     const StateMachine &state_machine);

//! A group whose log begins behind what the state machine holds: the state between the two is nowhere on this disk (the
//! catalog was lost, moved aside because it was damaged, or put back from an older copy). Null = none.
const storage::RecoveredGroup *FindGroupWithoutState(const std::vector<storage::RecoveredGroup> &groups,
                                                     const std::map<raft::GroupId, AppliedPosition> &applied);

//! Whether the log goes through the state's position. A position before its start was checked when it was truncated.
Result<bool> LogHoldsState(storage::LogStore &log, const storage::RecoveredGroup &group,
                           const AppliedPosition &applied);

//! `group` as a log that starts at the state's position, with a hard state that fits it.
void StartAtState(storage::RecoveredGroup &group, const AppliedPosition &applied);

//! Makes the log start anew at the state where it lacks entries that the state has, or has others in their place: a
//! crash between installing a snapshot and resetting the log, or one that lost unsynced entries which others had
//! committed. All it lacks is committed. Durable on return; `group` tells the new position.
Status CatchUpLog(storage::LogStore &log, storage::RecoveredGroup &group, const AppliedPosition &applied);

} // namespace node
} // namespace quack
