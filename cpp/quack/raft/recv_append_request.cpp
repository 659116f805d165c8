#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! Paper figure 2, AppendEntries RPC, receiver.
void Core::RecvAppendRequest(const Message &message) {
	if (!HeardLeader(message.from)) {
		return;
	}
	if (installing_snapshot) {
		return;
	}
	LogIndex previous = message.log_index;
	LogIndex last_new = previous + message.entries.size();
	auto first_entry = message.entries.begin();
	if (previous < commit_index && !sabotage.truncate_committed_suffix) {
		// What is committed here equals what the leader has (leader completeness): skip that part.
		while (first_entry != message.entries.end() && first_entry->index <= commit_index) {
			if (first_entry->index >= log.FirstIndex() && !log.Matches(first_entry->index, first_entry->term)) {
				FailConflict(first_entry->index);
				return;
			}
			++first_entry;
		}
		last_new = std::max(last_new, commit_index);
	} else if (!log.Matches(previous, message.log_term)) {
		RejectAppend(message);
		return;
	}
	if (!AppendFromLeader(std::vector<Entry>(first_entry, message.entries.end()))) {
		return;
	}
	AdvanceCommit(std::min(message.commit_index, last_new));
	AcknowledgeAppend(message, last_new);
}

//! Appends what the log does not hold yet; only a conflict cuts the log (paper §5.3), a mere duplicate never does.
bool Core::AppendFromLeader(std::vector<Entry> entries) {
	size_t known = 0;
	if (!sabotage.truncate_committed_suffix) {
		while (known < entries.size() && log.Matches(entries[known].index, entries[known].term)) {
			known++;
		}
	}
	entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(known));
	if (entries.empty()) {
		return true;
	}
	LogIndex first = entries.front().index;
	QUACK_CHECK(first > commit_index || sabotage.truncate_committed_suffix, "committed entries are never cut");
	if (first <= log.LastIndex()) {
		ForgetMembershipsFrom(first);
	}
	log.Append(entries);
	commit_index = std::min(commit_index, log.LastIndex());
	for (auto &entry : entries) {
		if (entry.type == EntryType::Membership && !NoteMembershipEntry(entry)) {
			return false;
		}
	}
	return true;
}

void Core::FailConflict(LogIndex index) {
	Fail(Status(ErrorCode::Internal, "group " + std::to_string(config.group) + ": an append conflicts at index " +
	                                     std::to_string(index) + ", but everything up to " +
	                                     std::to_string(commit_index) + " is committed here"));
}

//! The hint lets the leader skip a whole term of conflicting entries at once (paper §5.3, last paragraphs).
void Core::RejectAppend(const Message &message) {
	auto response = MakeMessage(MessageType::AppendResponse, message.from);
	response.reject = true;
	response.context = message.context;
	response.log_index = message.log_index;
	response.hint_index = log.LastIndexUpToTerm(message.log_index, message.log_term);
	auto hint_term = log.TermAt(response.hint_index);
	response.hint_term = hint_term.IsOk() ? hint_term.Value() : 0;
	Send(std::move(response));
}

void Core::AcknowledgeAppend(const Message &request, LogIndex index) {
	auto response = MakeMessage(MessageType::AppendResponse, request.from);
	response.context = request.context;
	response.log_index = index;
	if (sabotage.acknowledge_before_sync) {
		Send(std::move(response));
	} else {
		SendAfterAppend(std::move(response));
	}
}

} // namespace raft
} // namespace quack
