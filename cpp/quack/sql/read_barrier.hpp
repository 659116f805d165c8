//! Blocking forms of what the consensus engine answers by callback.
#pragma once

#include "quack/node/raft_engine.hpp"

namespace quack {
namespace sql {

//! Waits until this node has applied everything the root group had committed when the call began.
Status WaitForRootGroup(node::ConsensusEngine &engine, MonotonicNs timeout);

//! The name of the leader afterwards, or why it was not handed over.
Result<std::string> TransferLeadership(node::ConsensusEngine &engine, raft::GroupId group, const std::string &target,
                                       MonotonicNs timeout);

//! RaftEngine::Rebalance.
Result<std::string> Rebalance(node::RaftEngine &engine, MonotonicNs timeout);

//! What has changed, or why nothing has.
Result<std::string> ChangeMember(node::RaftEngine &engine, const node::MemberChange &change, MonotonicNs timeout);

//! RaftEngine::OpenImage and ReadImage.
Result<node::BackupImage> OpenImage(node::RaftEngine &engine, raft::LogIndex index_min);
Result<std::string> ReadImage(node::RaftEngine &engine, uint64_t image, uint64_t offset, uint64_t size);

} // namespace sql
} // namespace quack
