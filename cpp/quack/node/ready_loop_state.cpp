//! A node whose log is sound and whose state is gone: it gets the state from a peer before its groups run. Until then
//! it neither votes nor acknowledges, and it keeps its log and its identity.
#include "quack/common/log.hpp"
#include "quack/node/group_start.hpp"
#include "quack/node/ready_loop.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs ASK_PAUSE = 200 * NS_PER_MS;

} // namespace

Status ReadyLoop::AwaitState(std::vector<storage::RecoveredGroup> recovered) {
	std::lock_guard<std::mutex> guard(lock);
	const raft::Membership *membership = &recovered.front().snapshot.membership;
	for (auto &group : recovered) {
		membership = group.group == raft::ROOT_GROUP ? &group.snapshot.membership : membership;
	}
	context.directory.SetMembership(*membership, *membership);
	auto has_peer = false;
	for (auto &member : context.directory.Members()) {
		has_peer = has_peer || (member.node != context.directory.Self() && !member.record.is_removed);
	}
	auto applied = PositionsOf(context.state_machine);
	auto lacking = FindGroupWithoutState(recovered, applied);
	QUACK_CHECK(lacking != nullptr, "a node that has its state does not wait for it");
	awaiting_words = "the log of group " + std::to_string(lacking->group) + " in '" + config.log_dir +
	                 "' begins after index " + std::to_string(lacking->snapshot.index) +
	                 ", the state of this node stands at index " + std::to_string(applied[lacking->group].index);
	if (!has_peer) {
		return Status(ErrorCode::Corruption,
		              awaiting_words + ", and there is no other member to get the state from; nothing was changed. Put "
		                               "the catalog file that belongs to this log back, or restore a backup into an "
		                               "empty data_dir");
	}
	awaiting = std::move(recovered);
	Log(LogLevel::Warn, "node", "state_is_missing", {{"message", awaiting_words}});
	return Status::Ok();
}

std::string ReadyLoop::AwaitingReason() const {
	std::lock_guard<std::mutex> guard(lock);
	return awaiting.empty() ? "" : awaiting_words + "; getting the state from a peer";
}

//! One peer after the other: any member may hold an image, and without this node's vote there may be no leader.
void ReadyLoop::AskForState() {
	if (awaiting.empty() || is_state_asked || now < ask_state_after) {
		return;
	}
	std::vector<raft::NodeId> peers;
	for (auto &member : context.directory.Members()) {
		if (member.node != context.directory.Self() && !member.record.is_removed) {
			peers.push_back(member.node);
		}
	}
	auto lacking = FindGroupWithoutState(awaiting, PositionsOf(context.state_machine));
	if (peers.empty() || lacking == nullptr) {
		StateNotFetched();
		return;
	}
	is_state_asked = true;
	context.fetcher.Request(lacking->group, lacking->snapshot.index, peers[state_peer++ % peers.size()]);
}

void ReadyLoop::StateNotFetched() {
	is_state_asked = false;
	ask_state_after = now + ASK_PAUSE;
}

//! The state machine holds an image: starts the groups, or asks again when it does not reach the log.
void ReadyLoop::StateFetched() {
	// No group runs, so the writer is idle and the log is ours.
	auto status = RemoveRetired(context.log, awaiting, context.state_machine);
	if (status.IsOk() && FindGroupWithoutState(awaiting, PositionsOf(context.state_machine)) != nullptr) {
		StateNotFetched();
		return;
	}
	auto group_count = awaiting.size();
	status = status.IsOk() ? OpenRecovered(std::exchange(awaiting, {})) : status;
	if (!status.IsOk()) {
		context.latch.Latch("the groups of this node could not be opened at the state it got: " + status.ToString());
		return;
	}
	Log(LogLevel::Info, "node", "state_is_back", {{"group_count", std::to_string(group_count)}});
	AlignGroups();
}

} // namespace node
} // namespace quack
