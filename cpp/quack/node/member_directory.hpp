//! Who is who: node names, numeric ids, addresses. Immutable after construction, so usable from any thread.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "quack/node/engine_config.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace node {

class MemberDirectory {
public:
	//! InvalidArgument is found by Check(), not here.
	explicit MemberDirectory(const RaftEngineConfig &config);

	//! InvalidArgument when names repeat, this node is missing, or there is no voter.
	Status Check() const;

	raft::NodeId Self() const {
		return self;
	}
	const std::string &SelfName() const {
		return self_name;
	}
	const MemberConfig &SelfConfig() const;
	//! nullptr when unknown.
	const MemberConfig *Find(const std::string &name) const;
	//! The name, or "node <hex id>" for an id that is not configured.
	std::string NameOf(raft::NodeId node) const;
	//! NO_NODE when unknown.
	raft::NodeId IdOf(const std::string &name) const;
	bool Knows(raft::NodeId node) const {
		return names.count(node) != 0;
	}
	//! Voters and learners of a new group.
	raft::Membership InitialMembership() const;
	std::vector<transport::PeerAddress> PeerAddresses() const;

private:
	std::string self_name;
	raft::NodeId self;
	std::vector<MemberConfig> members;
	std::unordered_map<raft::NodeId, std::string> names;
};

} // namespace node
} // namespace quack
