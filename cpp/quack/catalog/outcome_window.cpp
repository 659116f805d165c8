#include "quack/catalog/outcome_window.hpp"

#include <algorithm>

namespace quack {
namespace catalog {

void OutcomeWindow::Add(const CommitOutcome &outcome) {
	auto &group = groups[outcome.group];
	if (group.outcomes.emplace(outcome.request_id, outcome).second) {
		group.order.push_back(outcome.request_id);
	}
}

void OutcomeWindow::Trim(raft::GroupId id, raft::LogIndex applied) {
	auto found = groups.find(id);
	if (found == groups.end()) {
		return;
	}
	auto &group = found->second;
	while (!group.order.empty()) {
		auto oldest = group.outcomes.find(group.order.front());
		if (oldest->second.index + OUTCOME_WINDOW >= applied) {
			return;
		}
		group.unknown_below = std::max<uint64_t>(group.unknown_below, oldest->second.base + 1);
		group.outcomes.erase(oldest);
		group.order.pop_front();
	}
}

const CommitOutcome *OutcomeWindow::Find(const RequestId &id, raft::GroupId group_id, raft::LogIndex index) const {
	auto group = groups.find(group_id);
	if (group == groups.end()) {
		return nullptr;
	}
	auto found = group->second.outcomes.find(id);
	auto is_forgotten = found == group->second.outcomes.end() || found->second.index + OUTCOME_WINDOW < index;
	return is_forgotten ? nullptr : &found->second;
}

std::optional<CommitOutcome> OutcomeWindow::FindAnywhere(const RequestId &id) const {
	std::optional<CommitOutcome> rejected;
	for (auto &group : groups) {
		auto found = group.second.outcomes.find(id);
		if (found == group.second.outcomes.end()) {
			continue;
		}
		if (found->second.status.IsOk()) {
			return found->second;
		}
		// A rejection on its merits says more than a void entry.
		if (!rejected || rejected->status.Code() == ErrorCode::Cancelled) {
			rejected = found->second;
		}
	}
	return rejected;
}

uint64_t OutcomeWindow::UnknownBelow(raft::GroupId group_id, raft::LogIndex index) const {
	auto found = groups.find(group_id);
	if (found == groups.end()) {
		return 0;
	}
	auto &group = found->second;
	auto unknown_below = group.unknown_below;
	for (auto &id : group.order) {
		auto &outcome = group.outcomes.at(id);
		if (outcome.index + OUTCOME_WINDOW >= index) {
			break;
		}
		unknown_below = std::max<uint64_t>(unknown_below, outcome.base + 1);
	}
	return unknown_below;
}

std::map<raft::GroupId, uint64_t> OutcomeWindow::Forgotten() const {
	std::map<raft::GroupId, uint64_t> result;
	for (auto &group : groups) {
		if (group.second.unknown_below != 0) {
			result[group.first] = group.second.unknown_below;
		}
	}
	return result;
}

void OutcomeWindow::RestoreForgotten(raft::GroupId group, uint64_t unknown_below) {
	auto &known = groups[group].unknown_below;
	known = std::max(known, unknown_below);
}

void OutcomeWindow::Clear() {
	groups.clear();
}

} // namespace catalog
} // namespace quack
