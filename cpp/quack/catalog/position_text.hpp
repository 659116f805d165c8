//! How far each group's log was applied, and how that is written: "1:120,4:7" (group:index, by group).
#pragma once

#include <map>
#include <string>

#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace catalog {

//! The applied vector at one moment. A group that is not in it stands at 0.
using AppliedVector = std::map<raft::GroupId, raft::LogIndex>;

raft::LogIndex IndexIn(const AppliedVector &vector, raft::GroupId group);

std::string PositionsToText(const AppliedVector &positions);
//! InvalidArgument unless it is what PositionsToText prints. Empty text is an empty vector.
Result<AppliedVector> PositionsFromText(const std::string &text);

} // namespace catalog
} // namespace quack
