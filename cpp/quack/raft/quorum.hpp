//! Majority arithmetic over one or two voter sets (dissertation §4.3). Pure functions.
#pragma once

#include <functional>
#include <map>

#include "quack/raft/types.hpp"

namespace quack {
namespace raft {

//! What one voter has reached (an index, a round, a time).
using VoterValue = std::function<uint64_t(NodeId)>;

//! Largest value reached by a majority of `voters`; UINT64_MAX for an empty set, which constrains nothing.
uint64_t MajorityValue(const std::vector<NodeId> &voters, const VoterValue &value_of);

//! Largest value reached by a majority of the voters and, during a change, by a majority of the outgoing voters too.
uint64_t JointValue(const Membership &membership, const VoterValue &value_of);

enum class VoteOutcome : uint8_t { Pending = 0, Won = 1, Lost = 2 };

//! `votes`: answers so far, true = granted. Won needs both majorities, Lost is when one of them cannot be reached any
//! more.
VoteOutcome CountVotes(const Membership &membership, const std::map<NodeId, bool> &votes);

bool Contains(const std::vector<NodeId> &nodes, NodeId node);
//! Voter of the incoming or of the outgoing set.
bool IsVoter(const Membership &membership, NodeId node);
//! Every node that gets the log: voters, outgoing voters and learners; sorted, unique.
std::vector<NodeId> AllMembers(const Membership &membership);

} // namespace raft
} // namespace quack
