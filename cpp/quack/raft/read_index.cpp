#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

static ReadResult MakeReadFailure(uint64_t request, ErrorCode code, std::string message) {
	ReadResult result;
	result.request = request;
	result.status = Status(code, std::move(message));
	return result;
}

void Core::ReadBarrier(uint64_t request) {
	Wake({});
	if (role == Role::Leader) {
		LeaderReadBarrier(NO_NODE, request);
		return;
	}
	if (leader == NO_NODE) {
		ready.reads.push_back(
		    MakeReadFailure(request, ErrorCode::Unavailable,
			                "group " + std::to_string(config.group) + " has no leader that this node hears; retry"));
		return;
	}
	if (forwarded_reads.size() >= config.pending_reads_max) {
		ready.reads.push_back(MakeReadFailure(request, ErrorCode::Overloaded,
		                                      std::to_string(forwarded_reads.size()) +
		                                          " reads wait for the leader already; retry later"));
		return;
	}
	auto context = next_read_context++;
	forwarded_reads[context] = {request, now, now};
	auto message = MakeMessage(MessageType::ReadIndexRequest, leader);
	message.context = context;
	Send(std::move(message));
}

//! A new leader knows the commit index only after an entry of its own term committed (dissertation §6.4, step 1).
bool Core::CommittedInOwnTerm() const {
	return commit_index >= term_start_index;
}

//! Until when no other leader can have been elected: a majority promised, at the latest when the round left, to refuse
//! votes for an election timeout. Shortened by the drift bound, because they measure it on their own clocks.
MonotonicNs Core::LeaseUntil() const {
	if (sabotage.lease_without_check_quorum) {
		return INT64_MAX;
	}
	// Offset so that "never" sorts below every time.
	auto rank = [](MonotonicNs time) {
		return static_cast<uint64_t>(time) ^ (uint64_t(1) << 63);
	};
	auto quorum_rank = JointValue(InForce(), [&](NodeId node) -> uint64_t {
		if (node == config.self) {
			return rank(now);
		}
		auto found = progress.find(node);
		return found == progress.end() ? 0 : rank(found->second.round_sent_at);
	});
	auto quorum_sent_at = static_cast<MonotonicNs>(quorum_rank ^ (uint64_t(1) << 63));
	if (quorum_sent_at == INT64_MIN) {
		return INT64_MIN;
	}
	auto drift = (config.election_timeout / 1000000 + 1) * static_cast<MonotonicNs>(config.clock_drift_ppm);
	return quorum_sent_at + config.election_timeout - drift;
}

bool Core::HasLease() const {
	return role == Role::Leader && CommittedInOwnTerm() && !lease_given_up && now < LeaseUntil();
}

void Core::LeaderReadBarrier(NodeId from, uint64_t request) {
	NoteActivity();
	LeaderRead read {from, request, 0, 0};
	if (config.lease_reads && HasLease()) {
		read.read_index = commit_index;
		AnswerRead(read, Status::Ok());
		return;
	}
	if (reads.size() >= config.pending_reads_max) {
		AnswerRead(read, Status(ErrorCode::Overloaded,
		                        std::to_string(reads.size()) + " reads wait for confirmation already; retry later"));
		return;
	}
	bool round_is_out = !reads.empty() && reads.front().round != 0;
	reads.push_back(read);
	if (CommittedInOwnTerm() && !round_is_out) {
		BroadcastHeartbeats();
	}
}

//! Gives waiting reads the round that is about to leave (dissertation §6.4, steps 2 and 3).
void Core::AssignReads() {
	if (!CommittedInOwnTerm()) {
		return;
	}
	for (auto read = reads.rbegin(); read != reads.rend() && read->round == 0; ++read) {
		read->round = round_number;
		read->read_index = commit_index;
	}
}

void Core::CompleteReads() {
	if (reads.empty() || reads.front().round == 0) {
		return;
	}
	auto confirmed = JointValue(InForce(), [&](NodeId node) -> uint64_t {
		if (node == config.self) {
			return UINT64_MAX;
		}
		auto found = progress.find(node);
		return found == progress.end() ? 0 : found->second.round_acked;
	});
	bool completed_any = false;
	while (!reads.empty() && reads.front().round != 0 && reads.front().round <= confirmed) {
		auto read = reads.front();
		reads.pop_front();
		AnswerRead(read, Status::Ok());
		completed_any = true;
	}
	// Those that came while the round was out share the next one.
	if (completed_any && !reads.empty() && reads.front().round == 0) {
		BroadcastHeartbeats();
	}
}

void Core::AnswerRead(const LeaderRead &read, Status status) {
	if (read.from == NO_NODE) {
		ReadResult result;
		result.request = read.request;
		result.read_index = status.IsOk() ? read.read_index : 0;
		result.status = std::move(status);
		ready.reads.push_back(std::move(result));
		return;
	}
	auto response = MakeMessage(MessageType::ReadIndexResponse, read.from);
	response.context = read.request;
	response.reject = !status.IsOk();
	response.log_index = status.IsOk() ? read.read_index : 0;
	Send(std::move(response));
}

void Core::FailLeaderReads(const char *reason) {
	for (auto &read : reads) {
		AnswerRead(read, Status(ErrorCode::Unavailable, reason));
	}
	reads.clear();
}

void Core::FailForwardedReads(const char *reason) {
	for (auto &read : forwarded_reads) {
		ready.reads.push_back(MakeReadFailure(read.second.request, ErrorCode::Unavailable, reason));
	}
	forwarded_reads.clear();
}

//! Requests and answers get lost: ask again, give up after an election timeout.
void Core::RetryForwardedReads() {
	for (auto item = forwarded_reads.begin(); item != forwarded_reads.end();) {
		auto &read = item->second;
		if (now - read.first_sent >= config.election_timeout) {
			ready.reads.push_back(MakeReadFailure(read.request, ErrorCode::Unavailable,
			                                      "the leader did not answer within an election timeout; ask again"));
			item = forwarded_reads.erase(item);
			continue;
		}
		if (now - read.last_sent >= 2 * config.heartbeat_interval) {
			read.last_sent = now;
			auto message = MakeMessage(MessageType::ReadIndexRequest, leader);
			message.context = item->first;
			Send(std::move(message));
		}
		++item;
	}
}

} // namespace raft
} // namespace quack
