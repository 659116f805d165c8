//! What a session has seen of the groups' logs, as it travels in headers: "1:120,4:7" (group:index, by group).
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace sql {

using CommitPositions = std::map<raft::GroupId, raft::LogIndex>;

std::string PositionsToText(const CommitPositions &positions);
//! InvalidArgument unless it is what PositionsToText prints. Empty text is an empty map.
Result<CommitPositions> PositionsFromText(const std::string &text);

//! The newest positions that any reply carried. Any thread.
class SeenPositions {
public:
	//! Text that cannot be read is ignored: positions only make reads fresher.
	void Merge(const std::string &text);
	//! Empty when nothing was seen.
	std::string Text() const;

private:
	mutable std::mutex lock;
	CommitPositions positions;
};

} // namespace sql
} // namespace quack
