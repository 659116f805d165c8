#include "quack/node/ready_loop_step.hpp"

#include "quack/common/log.hpp"

namespace quack {
namespace node {

void ReadyLoop::HandleReady(GroupState &group, raft::Ready ready) {
	if (!ready.fatal.IsOk()) {
		context.latch.Latch("raft group " + std::to_string(group.id) + ": " + ready.fatal.ToString());
		return;
	}
	if (ready.soft_state) {
		HandleSoftState(group, *ready.soft_state);
	}
	if (!ready.proposals.empty() && group.proposals.OnResults(ready.proposals, completions)) {
		group.route_after = now + 5 * NS_PER_MS;
	}
	// A leader's appends leave before its own write is durable (dissertation §10.2.1).
	for (auto &message : ready.messages) {
		outbox.Add(std::move(message));
	}
	PersistReady(group, ready);
	if (!ready.committed.empty() && !HandleCommitted(group, std::move(ready.committed))) {
		return;
	}
	if (ready.membership) {
		NoteMembership(group);
	}
	for (auto &result : ready.transfers) {
		AnswerTransfer(group, result);
	}
	if (ready.install_snapshot) {
		Log(LogLevel::Info, "node", "snapshot_needed",
		    {{"group", std::to_string(group.id)},
		     {"index", std::to_string(ready.install_snapshot->index)},
		     {"from", context.directory.NameOf(ready.snapshot_from)}});
		group.awaits_image = true;
		context.fetcher.Request(group.id, ready.install_snapshot->index, ready.snapshot_from);
	}
	if (!ready.reads.empty() && group.reads.OnResults(ready.reads, completions)) {
		group.ask_after = now + 10 * NS_PER_MS;
	}
}

//! False when the node is latched by it.
bool ReadyLoop::HandleCommitted(GroupState &group, std::vector<raft::Entry> committed) {
	auto changes = group.history.Count();
	auto status = group.history.Record(committed);
	if (!status.IsOk()) {
		context.latch.Latch("raft group " + std::to_string(group.id) + ": " + status.ToString());
		return false;
	}
	if (group.history.Count() != changes) {
		NoteMembership(group);
	}
	group.proposals.OnCommitted(committed, completions);
	context.apply.Push(group.id, std::move(committed));
	return true;
}

void ReadyLoop::HandleSoftState(GroupState &group, const raft::SoftState &soft) {
	if (group.soft.leader != soft.leader || group.soft.role != soft.role) {
		Log(LogLevel::Info, "node", "role_changed",
		    {{"group", std::to_string(group.id)},
		     {"role", std::to_string(static_cast<int>(soft.role))},
		     {"leader", soft.leader == raft::NO_NODE ? "" : context.directory.NameOf(soft.leader)}});
	}
	if (soft.role == raft::Role::Leader && !IsLeader(group)) {
		group.leading_since = now;
		group.let_go_until = 0;
	}
	group.soft = soft;
	if (soft.leader == raft::NO_NODE) {
		group.leaderless_since = group.leaderless_since == 0 ? now : group.leaderless_since;
		return;
	}
	group.leaderless_since = 0;
	group.route_after = 0;
	group.ask_after = 0;
}

void ReadyLoop::PersistReady(GroupState &group, raft::Ready &ready) {
	if (!ready.hard_state && ready.entries.empty() && ready.messages_after_append.empty()) {
		return;
	}
	LogCommand command;
	command.group = group.id;
	if (ready.hard_state) {
		group.hard_state = *ready.hard_state;
		command.hard_state = ready.hard_state;
	}
	group.view.Append(ready.entries);
	command.entries = std::move(ready.entries);
	command.messages = std::move(ready.messages_after_append);
	context.writer.Push(std::move(command));
}

} // namespace node
} // namespace quack
