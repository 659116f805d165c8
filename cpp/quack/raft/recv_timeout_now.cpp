#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! The leader of this very term hands over (dissertation §3.10). A delayed one of an earlier term never gets here.
void Core::RecvTimeoutNow(const Message &message) {
	if (role != Role::Follower || (leader != NO_NODE && leader != message.from)) {
		return;
	}
	Campaign(true);
}

} // namespace raft
} // namespace quack
