//! Blocking forms of what the consensus engine answers by callback.
#pragma once

#include "quack/node/consensus_engine.hpp"

namespace quack {
namespace sql {

//! Waits until this node has applied everything the root group had committed when the call began.
Status WaitForRootGroup(node::ConsensusEngine &engine, MonotonicNs timeout);

Status TransferLeadership(node::ConsensusEngine &engine, raft::GroupId group, const std::string &target,
                          MonotonicNs timeout);

} // namespace sql
} // namespace quack
