//! The numeric identity of a member.
#pragma once

#include <string>

#include "quack/raft/types.hpp"

namespace quack {
namespace node {

//! Stable 64-bit hash of (name, incarnation): FNV-1a 64 over the name, one zero byte and the incarnation as 8 bytes
//! little-endian, then the splitmix64 finalizer. Part of the disk and wire formats: never change it. Never NO_NODE.
//! A node that lost its disk comes back with the next incarnation, so that the votes of the lost one stay unrepeated.
raft::NodeId MakeNodeId(const std::string &name, uint64_t incarnation);

} // namespace node
} // namespace quack
