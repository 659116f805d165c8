#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::Receive(const Message &message) {
	if (!IsAcceptable(message)) {
		return;
	}
	if (message.term > term) {
		// Somebody campaigns, or has won already: the quiet is over, whatever becomes of the message.
		Wake({});
		if (!AdmitHigherTerm(message)) {
			return;
		}
	}
	if (message.term < term) {
		AnswerStaleTerm(message);
		return;
	}
	if (Disturbs(message)) {
		Wake({});
	}
	switch (message.type) {
	case MessageType::AppendRequest:
		return RecvAppendRequest(message);
	case MessageType::AppendResponse:
		return RecvAppendResponse(message);
	case MessageType::VoteRequest:
		return RecvVoteRequest(message);
	case MessageType::VoteResponse:
		return RecvVoteResponse(message);
	case MessageType::HeartbeatRequest:
		return RecvHeartbeatRequest(message);
	case MessageType::HeartbeatResponse:
		return RecvHeartbeatResponse(message);
	case MessageType::SnapshotRequest:
		return RecvSnapshotRequest(message);
	case MessageType::SnapshotResponse:
		return RecvSnapshotResponse(message);
	case MessageType::ReadIndexRequest:
		return RecvReadIndexRequest(message);
	case MessageType::ReadIndexResponse:
		return RecvReadIndexResponse(message);
	case MessageType::TimeoutNow:
		return RecvTimeoutNow(message);
	}
}

static bool IsFromLeader(MessageType type) {
	return type == MessageType::AppendRequest || type == MessageType::HeartbeatRequest ||
	       type == MessageType::SnapshotRequest || type == MessageType::TimeoutNow;
}

//! Misaddressed or malformed messages are dropped: a peer's bug must not become ours. Two leaders in one term cannot be
//! survived.
bool Core::IsAcceptable(const Message &message) const {
	if (message.group != config.group || message.to != config.self || message.from == config.self ||
	    message.from == NO_NODE || message.log_term > message.term) {
		return false;
	}
	LogIndex index = message.log_index;
	Term last_term = message.log_term;
	for (auto &entry : message.entries) {
		index++;
		if (entry.index != index || entry.term < last_term || entry.term > message.term || !entry.payload) {
			return false;
		}
		last_term = entry.term;
	}
	return message.entries.empty() || message.type == MessageType::AppendRequest;
}

//! Decides whether a message of a higher term moves us to that term; true = go on with it.
bool Core::AdmitHigherTerm(const Message &message) {
	if (message.type == MessageType::VoteRequest) {
		if (message.pre_vote) {
			return true;
		}
		if (!message.force && PromiseHolds()) {
			// A removed or cut-off node must not depose a leader that is heard (dissertation §4.2.3).
			return false;
		}
		BecomeFollower(message.term, NO_NODE);
		return true;
	}
	if (message.type == MessageType::VoteResponse && message.pre_vote && !message.reject) {
		// Granted for the term we asked about, not a term anyone is in.
		return true;
	}
	if (IsFromLeader(message.type)) {
		BecomeFollower(message.term, message.from);
		return true;
	}
	if (!IsMember(message.from)) {
		return false;
	}
	BecomeFollower(message.term, NO_NODE);
	return message.type == MessageType::ReadIndexRequest;
}

//! The sender is behind: tell it the term (paper §5.1).
void Core::AnswerStaleTerm(const Message &message) {
	if (message.type == MessageType::VoteRequest) {
		auto response = MakeMessage(MessageType::VoteResponse, message.from);
		response.reject = true;
		response.pre_vote = message.pre_vote;
		Send(std::move(response));
	} else if (IsFromLeader(message.type)) {
		auto response = MakeMessage(MessageType::AppendResponse, message.from);
		response.reject = true;
		response.log_index = message.log_index;
		response.hint_index = log.LastIndex();
		Send(std::move(response));
	}
}

} // namespace raft
} // namespace quack
