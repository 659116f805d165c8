#include "quack/raft/progress.hpp"

#include <algorithm>

namespace quack {
namespace raft {

void Inflights::Add(LogIndex last_index, size_t bytes) {
	QUACK_CHECK(messages.empty() || messages.back().last_index < last_index, "in-flight appends must be in order");
	messages.push_back({last_index, bytes});
	total_bytes += bytes;
}

void Inflights::FreeTo(LogIndex index) {
	while (!messages.empty() && messages.front().last_index <= index) {
		total_bytes -= messages.front().bytes;
		messages.pop_front();
	}
}

void Inflights::Clear() {
	messages.clear();
	total_bytes = 0;
}

void Progress::BecomeProbe(LogIndex next_index) {
	QUACK_CHECK(next_index > match, "a probe must start above the matched index");
	state = State::Probe;
	next = next_index;
	probe_sent = false;
	snapshot_index = 0;
	commit_sent = std::min(commit_sent, match);
	inflights.Clear();
	flow++;
}

void Progress::BecomeReplicate() {
	state = State::Replicate;
	next = match + 1;
	probe_sent = false;
	snapshot_index = 0;
	inflights.Clear();
}

void Progress::BecomeSnapshot(LogIndex index, MonotonicNs now) {
	state = State::Snapshot;
	probe_sent = false;
	snapshot_index = index;
	snapshot_sent_at = now;
	inflights.Clear();
	flow++;
}

bool Progress::UpdateMatch(LogIndex index) {
	next = std::max(next, index + 1);
	if (index <= match) {
		return false;
	}
	match = index;
	return true;
}

} // namespace raft
} // namespace quack
