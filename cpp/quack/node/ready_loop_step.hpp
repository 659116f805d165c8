//! The step of ReadyLoop, shared by its source files.
#pragma once

#include "quack/node/ready_loop.hpp"

namespace quack {
namespace node {

template <class Body>
void ReadyLoop::Step(GroupState &group, Body body) {
	if (group.is_frozen || context.latch.IsSet()) {
		return;
	}
	raft::Event event;
	event.now = now;
	event.body = std::move(body);
	HandleReady(group, group.core.Step(event));
}

} // namespace node
} // namespace quack
