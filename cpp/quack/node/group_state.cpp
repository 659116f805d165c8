#include "quack/node/group_state.hpp"

namespace quack {
namespace node {

void MembershipHistory::Reset(raft::LogIndex index, raft::Membership membership) {
	changes.clear();
	changes.emplace_back(index, std::move(membership));
}

Status MembershipHistory::Record(const std::vector<raft::Entry> &committed) {
	for (auto &entry : committed) {
		if (entry.type != raft::EntryType::Membership) {
			continue;
		}
		auto membership = raft::DecodeMembership(*entry.payload);
		if (!membership.IsOk()) {
			return membership.GetStatus();
		}
		changes.emplace_back(entry.index, std::move(membership.Value()));
	}
	return Status::Ok();
}

std::optional<raft::Membership> MembershipHistory::At(raft::LogIndex index) const {
	for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
		if (change->first <= index) {
			return change->second;
		}
	}
	return std::nullopt;
}

void MembershipHistory::Prune(raft::LogIndex index) {
	while (changes.size() > 1 && changes[1].first <= index) {
		changes.pop_front();
	}
}

} // namespace node
} // namespace quack
