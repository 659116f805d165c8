#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::RecvHeartbeatRequest(const Message &message) {
	if (!HeardLeader(message.from)) {
		return;
	}
	if (message.commit_index > log.LastIndex() && !installing_snapshot) {
		// The leader names only what we acknowledged as durable in its term: the disk has forgotten it.
		Fail(Status(ErrorCode::Corruption,
		            "group " + std::to_string(config.group) + ": the leader knows entries up to " +
		                std::to_string(message.commit_index) + " as durable here, but the log ends at " +
		                std::to_string(log.LastIndex()) + "; reseed this node"));
		return;
	}
	if (!installing_snapshot) {
		AdvanceCommit(message.commit_index);
	}
	quiet = MayFollowQuietly(message);
	if (message.context == 0) {
		return;
	}
	auto response = MakeMessage(MessageType::HeartbeatResponse, message.from);
	response.context = message.context;
	response.hint_index = config.election_priority;
	response.quiet = quiet;
	Send(std::move(response));
}

} // namespace raft
} // namespace quack
