//! A place in one group's log.
#pragma once

#include "quack/raft/types.hpp"

namespace quack {
namespace node {

struct Position {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;

	bool operator==(const Position &other) const {
		return group == other.group && index == other.index;
	}
};

} // namespace node
} // namespace quack
