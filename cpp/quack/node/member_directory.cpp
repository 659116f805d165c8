#include "quack/node/member_directory.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "quack/node/member_id.hpp"

namespace quack {
namespace node {

MemberDirectory::MemberDirectory(const RaftEngineConfig &config)
    : self_name(config.node_id), self(raft::NO_NODE), members(config.members) {
	for (auto &member : members) {
		names[MakeNodeId(member.node_id, member.incarnation)] = member.node_id;
	}
	self = IdOf(self_name);
}

Status MemberDirectory::Check() const {
	std::set<std::string> seen;
	size_t voter_count = 0;
	for (auto &member : members) {
		if (member.node_id.empty() || !seen.insert(member.node_id).second) {
			return Status(ErrorCode::InvalidArgument, "member '" + member.node_id +
			                                              "' is named twice or has an empty name: give every entry of "
			                                              "cp_metadata_peers its own node id");
		}
		voter_count += member.voter ? 1 : 0;
	}
	if (names.size() != members.size()) {
		return Status(ErrorCode::InvalidArgument, "two member names have the same numeric id: rename one of them");
	}
	if (self == raft::NO_NODE) {
		return Status(ErrorCode::InvalidArgument,
		              "node '" + self_name + "' is not among the members: add it to cp_metadata_peers");
	}
	if (voter_count == 0) {
		return Status(ErrorCode::InvalidArgument, "no member is a voter: mark at least one as voter");
	}
	return Status::Ok();
}

const MemberConfig &MemberDirectory::SelfConfig() const {
	auto result = Find(self_name);
	QUACK_CHECK(result != nullptr, "Check() passed, so this node is a member");
	return *result;
}

const MemberConfig *MemberDirectory::Find(const std::string &name) const {
	for (auto &member : members) {
		if (member.node_id == name) {
			return &member;
		}
	}
	return nullptr;
}

std::string MemberDirectory::NameOf(raft::NodeId node) const {
	auto entry = names.find(node);
	if (entry != names.end()) {
		return entry->second;
	}
	char text[32];
	std::snprintf(text, sizeof(text), "node %016llx", static_cast<unsigned long long>(node));
	return text;
}

raft::NodeId MemberDirectory::IdOf(const std::string &name) const {
	auto member = Find(name);
	return member == nullptr ? raft::NO_NODE : MakeNodeId(member->node_id, member->incarnation);
}

raft::Membership MemberDirectory::InitialMembership() const {
	raft::Membership membership;
	for (auto &member : members) {
		auto &list = member.voter ? membership.voters : membership.learners;
		list.push_back(MakeNodeId(member.node_id, member.incarnation));
	}
	std::sort(membership.voters.begin(), membership.voters.end());
	std::sort(membership.learners.begin(), membership.learners.end());
	return membership;
}

std::vector<transport::PeerAddress> MemberDirectory::PeerAddresses() const {
	std::vector<transport::PeerAddress> result;
	for (auto &member : members) {
		if (member.node_id != self_name) {
			result.push_back({member.node_id, member.host, member.port});
		}
	}
	return result;
}

} // namespace node
} // namespace quack
