#include "quack/node/leader_spread.hpp"

#include <algorithm>

#include "quack/node/member_change.hpp"
#include "quack/raft/quorum.hpp"

namespace quack {
namespace node {

raft::NodeId PreferredLeader(raft::GroupId group, std::vector<raft::NodeId> nodes) {
	std::sort(nodes.begin(), nodes.end());
	return nodes.empty() ? raft::NO_NODE : nodes[static_cast<size_t>(group % nodes.size())];
}

LeaderPlan PlanLeader(const raft::CoreStatus &core, uint32_t own_priority) {
	LeaderPlan plan;
	if (core.membership.IsJoint() || core.membership_index > core.commit_index || core.transfer_in_progress) {
		return plan;
	}
	auto highest = own_priority;
	size_t fit_count = 1;
	std::vector<const raft::ProgressStatus *> fit;
	for (auto &progress : core.progress) {
		auto is_fit = progress.recent_active && progress.match + CAUGHT_UP_ENTRIES >= core.last_index &&
		              progress.state == raft::ProgressStatus::State::Replicate &&
		              raft::Contains(core.membership.voters, progress.node);
		if (is_fit) {
			fit_count++;
			fit.push_back(&progress);
			highest = std::max(highest, progress.election_priority);
		}
	}
	plan.is_complete = fit_count == core.membership.voters.size();
	std::vector<raft::NodeId> candidates;
	if (own_priority == highest) {
		candidates.push_back(core.self);
	}
	for (auto progress : fit) {
		if (progress->election_priority == highest) {
			candidates.push_back(progress->node);
		}
	}
	auto preferred = PreferredLeader(core.group, candidates);
	plan.target = preferred == core.self ? raft::NO_NODE : preferred;
	return plan;
}

Gathering::Gathering(std::string nothing_p, Done done_p) : nothing(std::move(nothing_p)), done(std::move(done_p)) {
}

void Gathering::Expect() {
	std::lock_guard<std::mutex> guard(lock);
	missing++;
}

void Gathering::Add(const std::string &words) {
	{
		std::lock_guard<std::mutex> guard(lock);
		text += (text.empty() || words.empty() ? "" : "; ") + words;
	}
	Settle();
}

void Gathering::Close() {
	Settle();
}

void Gathering::Settle() {
	std::string answer;
	{
		std::lock_guard<std::mutex> guard(lock);
		missing--;
		if (missing > 0) {
			return;
		}
		answer = text.empty() ? nothing : text;
	}
	done(answer);
}

} // namespace node
} // namespace quack
