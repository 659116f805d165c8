#include "quack/node/log_view.hpp"

#include <algorithm>

namespace quack {
namespace node {

LogView::LogView(raft::LogReader &durable_p, const raft::SnapshotMeta &start_p, raft::LogIndex last_p)
    : durable(durable_p), start(start_p), last(last_p) {
}

Result<raft::Term> LogView::TermAt(raft::LogIndex index) const {
	if (index == start.index) {
		return start.term;
	}
	if (index < start.index || index > last) {
		return Status(ErrorCode::NotFound, "log index " + std::to_string(index) + " is outside [" +
		                                       std::to_string(start.index) + ", " + std::to_string(last) + "]");
	}
	auto tail_begin = TailBegin();
	return index >= tail_begin ? Result<raft::Term>(tail[index - tail_begin].term) : durable.TermAt(index);
}

Result<std::vector<raft::Entry>> LogView::Entries(raft::LogIndex begin, raft::LogIndex end, size_t bytes_max) const {
	if (begin < FirstIndex() || end > last + 1 || begin > end) {
		return Status(ErrorCode::NotFound, "log range [" + std::to_string(begin) + ", " + std::to_string(end) +
		                                       ") is outside [" + std::to_string(FirstIndex()) + ", " +
		                                       std::to_string(last + 1) + ")");
	}
	std::vector<raft::Entry> result;
	size_t bytes = 0;
	auto tail_begin = TailBegin();
	if (begin < std::min(end, tail_begin)) {
		auto stored = durable.Entries(begin, std::min(end, tail_begin), bytes_max);
		if (!stored.IsOk()) {
			return stored;
		}
		result = std::move(stored.Value());
		for (auto &entry : result) {
			bytes += entry.payload->size();
		}
	}
	auto next = begin + result.size();
	// A durable part that was cut by bytes_max ends below the tail; nothing may be added after the gap.
	while (next >= tail_begin && next < end && (result.empty() || bytes < bytes_max)) {
		result.push_back(tail[next - tail_begin]);
		bytes += result.back().payload->size();
		next++;
	}
	return result;
}

void LogView::Append(const std::vector<raft::Entry> &entries) {
	if (entries.empty()) {
		return;
	}
	auto first = entries.front().index;
	QUACK_CHECK(first > start.index && first <= last + 1, "appended entries must touch the log");
	while (!tail.empty() && tail.back().index >= first) {
		tail_bytes -= tail.back().payload->size();
		tail.pop_back();
	}
	for (auto &entry : entries) {
		tail.push_back(entry);
		tail_bytes += entry.payload->size();
	}
	last = entries.back().index;
}

void LogView::Flushed(raft::LogIndex index, raft::Term term) {
	auto tail_begin = TailBegin();
	if (index < tail_begin || index > last || tail[index - tail_begin].term != term) {
		return; // replaced meanwhile: the batch that replaced it will say when it is durable
	}
	while (!tail.empty() && tail.front().index <= index) {
		tail_bytes -= tail.front().payload->size();
		tail.pop_front();
	}
}

void LogView::Compact(const raft::SnapshotMeta &position) {
	QUACK_CHECK(position.index >= start.index && position.index < TailBegin(), "only durable entries are compacted");
	start = position;
}

void LogView::Reset(const raft::SnapshotMeta &position) {
	tail.clear();
	tail_bytes = 0;
	start = position;
	last = position.index;
}

} // namespace node
} // namespace quack
