#include "quack/node/node_beats.hpp"

namespace quack {
namespace node {

void NodeBeats::Watch(const std::set<raft::NodeId> &members, MonotonicNs now) {
	for (auto item = nodes.begin(); item != nodes.end();) {
		item = members.count(item->first) == 0 ? nodes.erase(item) : std::next(item);
	}
	for (auto member : members) {
		nodes.emplace(member, Node {now, now});
	}
}

void NodeBeats::Heard(raft::NodeId node, MonotonicNs now) {
	auto found = nodes.find(node);
	if (found != nodes.end()) {
		found->second.heard_at = now;
	}
}

void NodeBeats::Sent(raft::NodeId node, MonotonicNs now) {
	auto found = nodes.find(node);
	if (found != nodes.end()) {
		found->second.due_at = NextDue(now);
	}
}

std::vector<raft::NodeId> NodeBeats::TakeDue(MonotonicNs now) {
	std::vector<raft::NodeId> due;
	for (auto &item : nodes) {
		if (now >= item.second.due_at) {
			item.second.due_at = NextDue(now);
			due.push_back(item.first);
		}
	}
	return due;
}

std::map<raft::NodeId, MonotonicNs> NodeBeats::Silent(MonotonicNs now) const {
	std::map<raft::NodeId, MonotonicNs> silent;
	for (auto &item : nodes) {
		if (now - item.second.heard_at >= silence) {
			silent.emplace(item.first, item.second.heard_at);
		}
	}
	return silent;
}

MonotonicNs NodeBeats::NextDeadline(MonotonicNs now) const {
	MonotonicNs deadline = INT64_MAX;
	for (auto &item : nodes) {
		auto silent_at = item.second.heard_at + silence;
		deadline = std::min(deadline, item.second.due_at);
		if (silent_at > now) {
			deadline = std::min(deadline, silent_at);
		}
	}
	return deadline;
}

} // namespace node
} // namespace quack
