#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! A follower asks for a read index (dissertation §6.4, last paragraph).
void Core::RecvReadIndexRequest(const Message &message) {
	if (role != Role::Leader || !IsMember(message.from)) {
		auto response = MakeMessage(MessageType::ReadIndexResponse, message.from);
		response.context = message.context;
		response.reject = true;
		Send(std::move(response));
		return;
	}
	LeaderReadBarrier(message.from, message.context);
}

//! Any confirmed answer to our own context is good, whoever gave it: it was confirmed after we asked.
void Core::RecvReadIndexResponse(const Message &message) {
	auto found = forwarded_reads.find(message.context);
	if (found == forwarded_reads.end()) {
		return;
	}
	ReadResult result;
	result.request = found->second.request;
	if (message.reject) {
		result.status = Status(ErrorCode::Unavailable, "node " + std::to_string(message.from) +
		                                                   " could not confirm the read as leader; ask again");
	} else {
		result.read_index = message.log_index;
	}
	forwarded_reads.erase(found);
	ready.reads.push_back(std::move(result));
}

} // namespace raft
} // namespace quack
