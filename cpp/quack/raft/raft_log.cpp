#include "quack/raft/raft_log.hpp"

#include <algorithm>

namespace quack {
namespace raft {

RaftLog::RaftLog(LogReader &reader_p) : reader(reader_p), last_index(reader.LastIndex()), last_term(0) {
	auto term = reader.TermAt(last_index);
	if (term.IsOk()) {
		last_term = term.Value();
	}
	durable_index = last_index;
}

Status RaftLog::BeginStep() {
	if (fresh.empty()) {
		return Status::Ok();
	}
	fresh.clear();
	if (reader.LastIndex() == last_index) {
		return Status::Ok();
	}
	return Status(ErrorCode::Internal, "the log ends at index " + std::to_string(reader.LastIndex()) +
	                                       " but entries up to " + std::to_string(last_index) +
	                                       " were handed out: append each Ready's entries before the next step");
}

const std::vector<Entry> &RaftLog::EndStep(MonotonicNs now) {
	if (!fresh.empty()) {
		batches.push_back({fresh.front().index, fresh.back().index, fresh.back().term, now});
	}
	return fresh;
}

Result<Term> RaftLog::TermAt(LogIndex index) const {
	if (index == 0 && reader.FirstIndex() == 1) {
		return Term(0);
	}
	if (!fresh.empty() && index >= fresh.front().index) {
		if (index > last_index) {
			return Status(ErrorCode::NotFound, "index " + std::to_string(index) + " is above the log");
		}
		return fresh[index - fresh.front().index].term;
	}
	return reader.TermAt(index);
}

bool RaftLog::Matches(LogIndex index, Term term) const {
	if (index > last_index) {
		return false;
	}
	auto have = TermAt(index);
	return have.IsOk() && have.Value() == term;
}

Result<std::vector<Entry>> RaftLog::Entries(LogIndex begin, LogIndex end, size_t bytes_max) const {
	QUACK_CHECK(begin < end && end <= last_index + 1, "the range must lie inside the log");
	LogIndex fresh_begin = fresh.empty() ? last_index + 1 : fresh.front().index;
	std::vector<Entry> result;
	size_t bytes = 0;
	if (begin < fresh_begin) {
		auto stored = reader.Entries(begin, std::min(end, fresh_begin), bytes_max);
		if (!stored.IsOk()) {
			return stored.GetStatus();
		}
		result = std::move(stored.Value());
		if (result.empty() || result.front().index != begin || result.back().index >= std::min(end, fresh_begin)) {
			return Status(ErrorCode::Corruption,
			              "the log answered a read of entries from index " + std::to_string(begin) + " with others");
		}
		for (auto &entry : result) {
			bytes += entry.payload->size();
		}
	}
	LogIndex next = result.empty() ? begin : result.back().index + 1;
	while (next >= fresh_begin && next < end && (result.empty() || bytes < bytes_max)) {
		result.push_back(fresh[next - fresh_begin]);
		bytes += result.back().payload->size();
		next++;
	}
	return result;
}

LogIndex RaftLog::LastIndexUpToTerm(LogIndex index, Term term) const {
	// Terms never decrease along the log, so a binary search finds the border.
	LogIndex low = FirstIndex() - 1;
	LogIndex high = std::max(low, std::min(index, last_index));
	while (low < high) {
		LogIndex middle = low + (high - low + 1) / 2;
		auto middle_term = TermAt(middle);
		if (middle_term.IsOk() && middle_term.Value() <= term) {
			low = middle;
		} else {
			high = middle - 1;
		}
	}
	return low;
}

void RaftLog::Append(std::vector<Entry> entries) {
	QUACK_CHECK(!entries.empty(), "an append needs entries");
	LogIndex first = entries.front().index;
	QUACK_CHECK(first >= 1 && first <= last_index + 1, "an append must not leave a gap");
	durable_index = std::min(durable_index, first - 1);
	if (!fresh.empty() && first > fresh.front().index) {
		fresh.resize(first - fresh.front().index);
		fresh.insert(fresh.end(), entries.begin(), entries.end());
	} else {
		fresh = std::move(entries);
	}
	last_index = fresh.back().index;
	last_term = fresh.back().term;
}

void RaftLog::AppendCompleted(LogIndex index, Term term) {
	auto done = std::find_if(batches.begin(), batches.end(),
	                         [&](const Batch &batch) { return batch.last == index && batch.last_term == term; });
	if (done == batches.end()) {
		return;
	}
	batches.erase(batches.begin(), done + 1);
	LogIndex durable = index;
	for (auto &later : batches) {
		durable = std::min(durable, later.first - 1);
	}
	if (!fresh.empty()) {
		durable = std::min(durable, fresh.front().index - 1);
	}
	durable_index = std::max(durable_index, durable);
}

void RaftLog::Reset(LogIndex index, Term term) {
	fresh.clear();
	batches.clear();
	last_index = index;
	last_term = term;
	durable_index = index;
}

} // namespace raft
} // namespace quack
