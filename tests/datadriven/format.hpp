//! Prints core types the way the scenarios of tests/datadriven show them. term/index pairs read "index/term".
#pragma once

#include <string>

#include "quack/raft/raft.hpp"

namespace quack {
namespace raft {
namespace testing {

inline std::string Number(uint64_t value) {
	return std::to_string(value);
}

inline std::string FormatNodes(const std::vector<NodeId> &nodes) {
	std::string text = "(";
	for (auto node : nodes) {
		text += (text.size() > 1 ? "," : "") + Number(node);
	}
	return text + ")";
}

inline std::string FormatMembership(const Membership &membership) {
	std::string text = "voters=" + FormatNodes(membership.voters);
	if (membership.IsJoint()) {
		text += " outgoing=" + FormatNodes(membership.outgoing);
	}
	if (!membership.learners.empty()) {
		text += " learners=" + FormatNodes(membership.learners);
	}
	if (!membership.learners_next.empty()) {
		text += " learners-next=" + FormatNodes(membership.learners_next);
	}
	return text;
}

inline std::string FormatEntry(const Entry &entry) {
	std::string text = Number(entry.index) + "/" + Number(entry.term);
	switch (entry.type) {
	case EntryType::Normal:
		return text + (entry.payload->size() <= 16 ? " '" + *entry.payload + "'"
		                                           : " " + Number(entry.payload->size()) + " bytes");
	case EntryType::NoOp:
		return text + " no-op";
	case EntryType::Membership:
		return text + " " + FormatMembership(DecodeMembership(*entry.payload).Value());
	}
	return text;
}

inline std::string FormatEntries(const std::vector<Entry> &entries) {
	std::string text = "[";
	for (auto &entry : entries) {
		text += (text.size() > 1 ? ", " : "") + FormatEntry(entry);
	}
	return text + "]";
}

inline const char *RoleName(Role role) {
	static const char *const NAMES[] = {"follower", "pre-candidate", "candidate", "leader", "learner"};
	return NAMES[static_cast<size_t>(role)];
}

inline const char *MessageName(MessageType type) {
	static const char *const NAMES[] = {"?",
	                                    "AppendRequest",
	                                    "AppendResponse",
	                                    "VoteRequest",
	                                    "VoteResponse",
	                                    "HeartbeatRequest",
	                                    "HeartbeatResponse",
	                                    "SnapshotRequest",
	                                    "SnapshotResponse",
	                                    "ReadIndexRequest",
	                                    "ReadIndexResponse",
	                                    "TimeoutNow"};
	return NAMES[static_cast<size_t>(type)];
}

inline std::string FormatMessageBody(const Message &m) {
	switch (m.type) {
	case MessageType::AppendRequest:
		return " prev=" + Number(m.log_index) + "/" + Number(m.log_term) + " commit=" + Number(m.commit_index) + " " +
		       FormatEntries(m.entries);
	case MessageType::AppendResponse:
		return m.reject
		           ? " refused=" + Number(m.log_index) + " hint=" + Number(m.hint_index) + "/" + Number(m.hint_term)
				   : " match=" + Number(m.log_index);
	case MessageType::VoteRequest:
		return std::string(m.pre_vote ? " pre" : "") + (m.force ? " force" : "") + " last=" + Number(m.log_index) +
		       "/" + Number(m.log_term);
	case MessageType::VoteResponse:
		return std::string(m.pre_vote ? " pre" : "") + (m.reject ? " refused" : " granted");
	case MessageType::HeartbeatRequest:
		return " commit=" + Number(m.commit_index) + (m.context ? " round=" + Number(m.context) : "") +
		       (m.quiet ? " quiet" : "");
	case MessageType::HeartbeatResponse:
		return " round=" + Number(m.context) + (m.quiet ? " quiet" : "");
	case MessageType::SnapshotRequest:
		return " snapshot=" + Number(m.snapshot.index) + "/" + Number(m.snapshot.term) + " " +
		       FormatMembership(m.snapshot.membership);
	case MessageType::SnapshotResponse:
		return m.reject ? " failed" : " match=" + Number(m.log_index);
	case MessageType::ReadIndexResponse:
		return m.reject ? " refused" : " read-index=" + Number(m.log_index);
	case MessageType::ReadIndexRequest:
	case MessageType::TimeoutNow:
		return "";
	}
	return "";
}

inline std::string FormatMessage(const Message &message) {
	return Number(message.from) + "->" + Number(message.to) + " " + MessageName(message.type) + " t" +
	       Number(message.term) + FormatMessageBody(message);
}

inline std::string FormatRead(const ReadResult &read) {
	return "read " + Number(read.request) + " " +
	       (read.status.IsOk() ? "at " + Number(read.read_index)
	                           : "refused: " + std::string(ErrorCodeName(read.status.Code())));
}

inline std::string FormatProposal(const ProposeResult &proposal) {
	return "proposal " + Number(proposal.request) + " " +
	       (proposal.status.IsOk() ? "at " + Number(proposal.index) + "/" + Number(proposal.term)
	                               : "refused: " + std::string(ErrorCodeName(proposal.status.Code())));
}

inline std::string FormatTransfer(const TransferResult &transfer) {
	static const char *const NAMES[] = {"handed over", "not leader", "busy",         "not a voter", "excluded",
	                                    "not heard",   "lagging",    "no successor", "not taken"};
	return "transfer " + Number(transfer.request) + " " + NAMES[static_cast<size_t>(transfer.outcome)] +
	       (transfer.target != NO_NODE ? " target=" + Number(transfer.target) : "") +
	       (transfer.leader != NO_NODE ? " leader=" + Number(transfer.leader) : "") +
	       (transfer.behind > 0 ? " behind=" + Number(transfer.behind) : "");
}

//! Several lines, each ending in a newline; empty for an empty Ready.
inline std::string FormatReady(NodeId node, const Ready &ready) {
	std::string head = Number(node) + ": ";
	std::string text;
	auto line = [&](const std::string &rest) {
		text += head + rest + "\n";
	};
	if (!ready.fatal.IsOk()) {
		line("FATAL " + ready.fatal.ToString());
	}
	if (ready.soft_state) {
		line(std::string("becomes ") + RoleName(ready.soft_state->role) +
		     (ready.soft_state->role != Role::Leader && ready.soft_state->leader != NO_NODE
		          ? " of " + Number(ready.soft_state->leader)
				  : ""));
	}
	if (ready.hard_state) {
		line("persist t" + Number(ready.hard_state->term) + " vote=" + Number(ready.hard_state->voted_for) +
		     " commit=" + Number(ready.hard_state->commit_index));
	}
	if (ready.membership) {
		line("membership " + FormatMembership(*ready.membership));
	}
	if (!ready.entries.empty()) {
		line("append " + FormatEntries(ready.entries));
	}
	if (ready.install_snapshot) {
		line("install snapshot " + Number(ready.install_snapshot->index) + "/" + Number(ready.install_snapshot->term) +
		     " from " + Number(ready.snapshot_from));
	}
	for (auto &proposal : ready.proposals) {
		line(FormatProposal(proposal));
	}
	for (auto &read : ready.reads) {
		line(FormatRead(read));
	}
	for (auto &transfer : ready.transfers) {
		line(FormatTransfer(transfer));
	}
	if (!ready.committed.empty()) {
		line("committed " + FormatEntries(ready.committed));
	}
	for (auto &message : ready.messages) {
		line("send " + FormatMessage(message));
	}
	for (auto &message : ready.messages_after_append) {
		line("send after sync " + FormatMessage(message));
	}
	return text;
}

} // namespace testing
} // namespace raft
} // namespace quack
