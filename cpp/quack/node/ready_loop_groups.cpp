//! Which groups run here: the root group, and those that the state machine says exist (cpp/GROUPS.md, "Groups come and
//! go").
#include "quack/common/log.hpp"
#include "quack/node/group_start.hpp"
#include "quack/node/leader_spread.hpp"
#include "quack/node/ready_loop_step.hpp"

namespace quack {
namespace node {

void ReadyLoop::On(GroupsChanged &) {
	AlignGroups();
}

//! Before the threads run, or while no group does: the log is ours.
Status ReadyLoop::OpenRecovered(std::vector<storage::RecoveredGroup> recovered) {
	auto definitions = DefinitionsOf(context.state_machine);
	auto applied = PositionsOf(context.state_machine);
	for (auto &group : recovered) {
		if (group.group == raft::ROOT_GROUP) {
			root_replay_end = group.last_index;
		} else if (definitions.count(group.group) == 0) {
			// The entry that creates it will be applied again, or the one that retires it.
			shelved[group.group] = std::move(group);
			continue;
		}
		applied[group.group].group = group.group;
		auto status = CatchUpLog(context.log, group, applied[group.group]);
		status = status.IsOk() ? OpenGroup(group, applied[group.group]) : status;
		if (!status.IsOk()) {
			return status;
		}
	}
	return Status::Ok();
}

Status ReadyLoop::AddGroups(std::vector<storage::RecoveredGroup> recovered) {
	std::lock_guard<std::mutex> guard(lock);
	return OpenRecovered(std::move(recovered));
}

//! Opens what is missing, closes what is retired. Needs a running root group: without it nobody knows who takes part.
void ReadyLoop::AlignGroups() {
	auto root = Find(raft::ROOT_GROUP);
	if (root == nullptr) {
		return;
	}
	auto definitions = DefinitionsOf(context.state_machine);
	auto applied = PositionsOf(context.state_machine);
	std::vector<raft::GroupId> retired;
	for (auto &entry : groups) {
		if (entry.first != raft::ROOT_GROUP && definitions.count(entry.first) == 0) {
			retired.push_back(entry.first);
		}
	}
	for (auto id : retired) {
		Retire(*Find(id));
	}
	for (auto &entry : definitions) {
		if (Find(entry.first) == nullptr && !context.latch.IsSet()) {
			applied[entry.first].group = entry.first;
			MakeGroup(entry.second, applied[entry.first]);
		}
	}
	// The log of the root group was durable up to the creation before the group's log was made: when all of it is
	// applied and the group does not exist, it was retired.
	if (!shelved.empty() && applied[raft::ROOT_GROUP].index >= root_replay_end) {
		for (auto &entry : shelved) {
			RemoveLog(entry.first);
		}
		shelved.clear();
	}
}

void ReadyLoop::MakeGroup(const GroupDefinition &definition, const AppliedPosition &applied) {
	storage::RecoveredGroup recovered;
	auto kind = LogCommand::Kind::Create;
	auto known = shelved.find(definition.id);
	if (known != shelved.end()) {
		recovered = std::move(known->second);
		shelved.erase(known);
		auto holds = LogHoldsState(context.log, recovered, applied);
		if (!holds.IsOk()) {
			context.latch.Latch("the log of group " + std::to_string(definition.id) + ": " +
			                    holds.GetStatus().ToString());
			return;
		}
		if (holds.Value()) {
			auto status = OpenGroup(recovered, applied);
			if (!status.IsOk()) {
				context.latch.Latch("group " + std::to_string(definition.id) +
				                    " could not be opened: " + status.ToString());
			}
			return;
		}
		kind = LogCommand::Kind::Reset;
	}
	recovered.group = definition.id;
	if (recovered.snapshot.membership.voters.empty()) {
		// A restored backup names members of another cluster nowhere; then all start with what the root group starts
		// with.
		recovered.snapshot.membership = definition.membership.voters.empty()
		                                    ? Find(raft::ROOT_GROUP)->view.Start().membership
		                                    : definition.membership;
	}
	StartAtState(recovered, applied);
	OpenFrozen(recovered, applied, kind);
	Log(LogLevel::Info, "node", "group_is_made",
	    {{"group", std::to_string(definition.id)},
	     {"name", definition.name},
	     {"index", std::to_string(recovered.snapshot.index)}});
}

//! A core at the position that its log will start from; not stepped until the writer has made it so.
void ReadyLoop::OpenFrozen(const storage::RecoveredGroup &recovered, const AppliedPosition &applied,
                           LogCommand::Kind kind) {
	auto status = OpenGroup(recovered, applied);
	if (!status.IsOk()) {
		context.latch.Latch("group " + std::to_string(recovered.group) + " could not be opened: " + status.ToString());
		return;
	}
	auto group = Find(recovered.group);
	group->is_frozen = true;
	group->is_new_core = true;
	LogCommand command;
	command.kind = kind;
	command.group = recovered.group;
	command.position = recovered.snapshot;
	command.hard_state = recovered.hard_state;
	context.writer.Push(std::move(command));
}

void ReadyLoop::On(LogWasMade &event) {
	auto group = Find(event.group);
	if (group == nullptr || !group->is_new_core) {
		return;
	}
	Thaw(*group);
	// Nobody has led it yet, and nobody need wait for a timeout to find that out.
	auto root = Find(raft::ROOT_GROUP);
	auto preferred = PreferredLeader(group->id, group->core.GetStatus().membership.voters);
	auto is_preferred = preferred == context.directory.Self();
	if (group->view.LastIndex() == 0 && (is_preferred || (root != nullptr && IsLeader(*root)))) {
		group->campaign_after = is_preferred ? now : now + 2 * config.heartbeat_interval;
		group->campaign_until = now + 2 * config.election_timeout;
	}
}

//! The core of a group whose log was made or made anew is stepped from here on.
void ReadyLoop::Thaw(GroupState &group) {
	group.is_new_core = false;
	group.is_frozen = false;
	group.last_tick = now;
	Step(group, raft::TickEvent {});
}

//! Again and again for a while: the others may not have opened the group yet.
void ReadyLoop::CampaignInNewGroup(GroupState &group) {
	if (group.campaign_after == 0 || now < group.campaign_after) {
		return;
	}
	if (group.soft.leader != raft::NO_NODE || now >= group.campaign_until) {
		group.campaign_after = 0;
		return;
	}
	group.campaign_after = now + config.heartbeat_interval;
	if (group.soft.role != raft::Role::Candidate) {
		Step(group, raft::CampaignEvent {});
	}
}

void ReadyLoop::Retire(GroupState &group) {
	Log(LogLevel::Info, "node", "group_is_retired", {{"group", std::to_string(group.id)}});
	FailRequests(group, NoGroup(group.id));
	RemoveLog(group.id);
	groups.erase(group.id);
	NoteOtherMembers();
}

//! An image that another group asked for has moved this one beyond the end of its log: what the log lacks is committed.
//! It starts anew there, as after a restart.
void ReadyLoop::MoveToState(GroupState &group, const AppliedPosition &applied) {
	storage::RecoveredGroup recovered;
	recovered.group = group.id;
	recovered.hard_state = group.hard_state;
	recovered.snapshot.membership = group.view.Start().membership;
	StartAtState(recovered, applied);
	Log(LogLevel::Info, "node", "log_restarted_at_image",
	    {{"group", std::to_string(group.id)},
	     {"log_last_index", std::to_string(group.view.LastIndex())},
	     {"applied_index", std::to_string(applied.index)}});
	FailRequests(group, Status(ErrorCode::Unavailable, "a snapshot is being installed; retry"));
	OpenFrozen(recovered, applied, LogCommand::Kind::Reset);
}

//! While an image is on its way no group is applied: an image that is older in one group than the state cannot be
//! installed, and one that is always a little too old never would be.
void ReadyLoop::PauseApplying() {
	auto is_awaited = false;
	for (auto &entry : groups) {
		is_awaited = is_awaited || entry.second->awaits_image;
	}
	is_awaited = is_awaited && groups.size() > 1;
	if (is_awaited) {
		// A refusal is followed by another request; the image of that one may be the first that is new enough.
		paused_until = now + 4 * config.election_timeout;
	}
	context.apply.SetPaused(is_awaited || now < paused_until);
}

//! A node that was away for long waits for entries of a group that all others have retired and forgotten. Only an image
//! leads past them.
void ReadyLoop::AskForWhatIsGone() {
	auto root = Find(raft::ROOT_GROUP);
	if (root == nullptr || groups.size() < 2 || now < ask_gone_after || root->awaits_image || root->is_frozen) {
		return;
	}
	ask_gone_after = now + config.election_timeout;
	auto queue = context.apply.QueueOf(raft::ROOT_GROUP);
	auto needed = Find(queue.needed_group);
	auto is_gone = needed != nullptr && needed->leaderless_since != 0 &&
	               now - needed->leaderless_since > 4 * config.election_timeout;
	if (!queue.waiting_for.empty() && is_gone && root->soft.leader != raft::NO_NODE && !IsLeader(*root)) {
		Log(LogLevel::Info, "node", "image_leads_on", {{"message", queue.waiting_for}});
		ask_gone_after = now + 20 * config.election_timeout;
		paused_until = ask_gone_after;
		context.fetcher.Request(raft::ROOT_GROUP, context.apply.AppliedIndex(raft::ROOT_GROUP) + 1, root->soft.leader);
	}
}

void ReadyLoop::RemoveLog(raft::GroupId group) {
	LogCommand command;
	command.kind = LogCommand::Kind::Remove;
	command.group = group;
	context.writer.Push(std::move(command));
}

} // namespace node
} // namespace quack
