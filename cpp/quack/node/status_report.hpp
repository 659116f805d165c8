//! Turns what the parts of the engine know into rows and sentences.
#pragma once

#include "quack/node/raft_engine.hpp"
#include "quack/node/ready_loop.hpp"

namespace quack {
namespace node {

//! Which voters are out of reach, when each was last heard, and what it last said:
//! "n1 (10.0.0.2:9494) not connected, last heard 1200 ms ago: connection refused; ...".
std::string DescribeMissing(const MemberDirectory &directory, const std::vector<transport::PeerStatus> &peers,
                            const raft::Membership &membership, MonotonicNs now);

//! The fields of one row that come from the core and the transport.
GroupStatus DescribeGroup(const RaftEngineConfig &config, const MemberDirectory &directory, const GroupView &view,
                          const std::string &name, const std::vector<transport::PeerStatus> &peers, MonotonicNs now);

//! The row of a node that has no groups yet: role "forming", and what it waits for.
GroupStatus DescribeForming(const RaftEngineConfig &config, const MemberDirectory &directory,
                            const std::vector<transport::PeerStatus> &peers, MonotonicNs now);

//! The rows of RaftEngine::GetMembers; `root` may be null.
std::vector<MemberStatus> DescribeMembers(const MemberDirectory &directory, const GroupView *root,
                                          const std::vector<transport::PeerStatus> &peers, MonotonicNs now);

//! What a peer gets that asks this node.
wire::StatusAnswer SummarizeStatus(const std::vector<GroupStatus> &rows);

} // namespace node
} // namespace quack
