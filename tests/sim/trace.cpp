#include "sim/trace.hpp"

#include <cstdarg>
#include <cstring>

namespace quack {
namespace sim {

namespace {

const char *MessageTypeName(raft::MessageType type) {
	switch (type) {
	case raft::MessageType::AppendRequest:
		return "AppendRequest";
	case raft::MessageType::AppendResponse:
		return "AppendResponse";
	case raft::MessageType::VoteRequest:
		return "VoteRequest";
	case raft::MessageType::VoteResponse:
		return "VoteResponse";
	case raft::MessageType::HeartbeatRequest:
		return "HeartbeatRequest";
	case raft::MessageType::HeartbeatResponse:
		return "HeartbeatResponse";
	case raft::MessageType::SnapshotRequest:
		return "SnapshotRequest";
	case raft::MessageType::SnapshotResponse:
		return "SnapshotResponse";
	case raft::MessageType::ReadIndexRequest:
		return "ReadIndexRequest";
	case raft::MessageType::ReadIndexResponse:
		return "ReadIndexResponse";
	case raft::MessageType::TimeoutNow:
		return "TimeoutNow";
	}
	return "unknown";
}

std::string Describe(const std::vector<raft::NodeId> &nodes) {
	std::string text = "[";
	for (auto node : nodes) {
		text += (text.size() > 1 ? " " : "") + std::to_string(node);
	}
	return text + "]";
}

} // namespace

uint64_t HashEntry(const raft::Entry &entry) {
	const std::string &bytes = *entry.payload;
	uint64_t hash = Mix(static_cast<uint64_t>(entry.type) + 1, bytes.size());
	size_t offset = 0;
	while (offset < bytes.size()) {
		uint64_t word = 0;
		size_t size = std::min<size_t>(8, bytes.size() - offset);
		std::memcpy(&word, bytes.data() + offset, size);
		hash = Mix(hash, word);
		offset += size;
	}
	return hash;
}

void Trace::AddMessage(const raft::Message &message) {
	Add(static_cast<uint64_t>(message.type) | static_cast<uint64_t>(message.reject) << 8 |
	    static_cast<uint64_t>(message.pre_vote) << 9 | static_cast<uint64_t>(message.force) << 10);
	Add(message.from << 32 | message.to);
	Add(message.term);
	Add(message.log_index);
	Add(message.log_term);
	Add(message.commit_index);
	Add(message.hint_index);
	Add(message.hint_term);
	Add(message.context);
	Add(message.snapshot.index << 32 | message.snapshot.term);
	for (const auto &entry : message.entries) {
		Add(entry.term << 32 | entry.index);
		Add(HashEntry(entry));
	}
}

void Trace::AddReady(const raft::Ready &ready) {
	if (ready.hard_state) {
		Add(ready.hard_state->term << 32 | ready.hard_state->voted_for);
		Add(ready.hard_state->commit_index);
	}
	for (const auto &entry : ready.entries) {
		Add(entry.term << 32 | entry.index);
		Add(HashEntry(entry));
	}
	for (const auto &message : ready.messages) {
		AddMessage(message);
	}
	for (const auto &message : ready.messages_after_append) {
		AddMessage(message);
	}
	for (const auto &entry : ready.committed) {
		Add(entry.term << 32 | entry.index);
	}
	if (ready.install_snapshot) {
		Add(ready.install_snapshot->index << 32 | ready.install_snapshot->term);
		Add(ready.snapshot_from);
	}
	for (const auto &read : ready.reads) {
		Add(read.request << 8 | static_cast<uint64_t>(read.status.Code()));
		Add(read.read_index);
	}
	for (const auto &proposal : ready.proposals) {
		Add(proposal.request << 8 | static_cast<uint64_t>(proposal.status.Code()));
		Add(proposal.term << 32 | proposal.index);
	}
	if (ready.soft_state) {
		Add(static_cast<uint64_t>(ready.soft_state->role) << 32 | ready.soft_state->leader);
	}
	if (ready.membership) {
		for (auto list : {&ready.membership->voters, &ready.membership->outgoing, &ready.membership->learners}) {
			Add(list->size());
			for (auto node : *list) {
				Add(node);
			}
		}
	}
	Add(static_cast<uint64_t>(ready.fatal.Code()));
}

void Trace::Print(const char *format, ...) {
	if (!file) {
		return;
	}
	va_list arguments;
	va_start(arguments, format);
	std::vfprintf(file, format, arguments);
	va_end(arguments);
	std::fputc('\n', file);
}

std::string Describe(const raft::Membership &membership) {
	return "voters" + Describe(membership.voters) + " outgoing" + Describe(membership.outgoing) + " learners" +
	       Describe(membership.learners) + " next" + Describe(membership.learners_next);
}

std::string Describe(const raft::Message &m) {
	std::string text = MessageTypeName(m.type);
	text += " " + std::to_string(m.from) + "->" + std::to_string(m.to) + " t" + std::to_string(m.term);
	text += " log " + std::to_string(m.log_index) + "/t" + std::to_string(m.log_term) + " commit " +
	        std::to_string(m.commit_index);
	if (m.reject) {
		text += " REJECT hint " + std::to_string(m.hint_index) + "/t" + std::to_string(m.hint_term);
	}
	text += m.pre_vote ? " pre" : "";
	text += m.force ? " force" : "";
	if (m.context != 0) {
		text += " ctx " + std::to_string(m.context);
	}
	if (!m.entries.empty()) {
		text += " entries " + std::to_string(m.entries.front().index) + ".." + std::to_string(m.entries.back().index) +
		        " last t" + std::to_string(m.entries.back().term);
	}
	if (m.snapshot.index != 0) {
		text += " snapshot " + std::to_string(m.snapshot.index) + "/t" + std::to_string(m.snapshot.term);
	}
	return text;
}

const char *RoleName(raft::Role role) {
	switch (role) {
	case raft::Role::Follower:
		return "follower";
	case raft::Role::PreCandidate:
		return "pre_candidate";
	case raft::Role::Candidate:
		return "candidate";
	case raft::Role::Leader:
		return "leader";
	case raft::Role::Learner:
		return "learner";
	}
	return "unknown";
}

} // namespace sim
} // namespace quack
