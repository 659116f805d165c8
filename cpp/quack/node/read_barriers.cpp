#include "quack/node/read_barriers.hpp"

#include <algorithm>

namespace quack {
namespace node {

namespace {

void Fail(ReadBarriers::Waiter &waiter, const Status &failure, Completions &out) {
	out.push_back([done = std::move(waiter.done), failure] { done(Result<raft::LogIndex>(failure)); });
}

void FailExpired(std::vector<ReadBarriers::Waiter> &waiters, MonotonicNs now, const Status &failure, Completions &out) {
	auto expired = std::stable_partition(waiters.begin(), waiters.end(),
	                                     [now](const ReadBarriers::Waiter &waiter) { return waiter.deadline > now; });
	for (auto waiter = expired; waiter != waiters.end(); ++waiter) {
		Fail(*waiter, failure, out);
	}
	waiters.erase(expired, waiters.end());
}

} // namespace

ReadRound::ReadRound(std::vector<raft::GroupId> groups, bool skips_retired_p, ConsensusEngine::PositionsCallback done_p)
    : missing(groups.size()), skips_retired(skips_retired_p), done(std::move(done_p)) {
	for (auto group : groups) {
		positions.push_back({group, 0});
	}
}

void ReadRound::Set(size_t part, const Result<raft::LogIndex> &index) {
	if (!done) {
		return;
	}
	auto is_retired = !index.IsOk() && index.GetStatus().Code() == ErrorCode::NotFound && skips_retired;
	if (!index.IsOk() && !is_retired) {
		std::exchange(done, nullptr)(index.GetStatus());
		return;
	}
	if (is_retired) {
		positions[part].group = 0;
	} else {
		positions[part].index = index.Value();
	}
	missing--;
	if (missing > 0) {
		return;
	}
	positions.erase(std::remove_if(positions.begin(), positions.end(),
	                               [](const Position &position) { return position.group == 0; }),
	                positions.end());
	std::exchange(done, nullptr)(std::move(positions));
}

uint64_t ReadBarriers::Ask() {
	auto request = next_request++;
	asked_count += waiting.size();
	asked[request] = std::move(waiting);
	waiting.clear();
	return request;
}

bool ReadBarriers::OnResults(const std::vector<raft::ReadResult> &results, Completions &out) {
	for (auto &result : results) {
		auto entry = asked.find(result.request);
		if (entry == asked.end()) {
			continue;
		}
		auto waiters = std::move(entry->second);
		asked.erase(entry);
		asked_count -= waiters.size();
		for (auto &waiter : waiters) {
			if (!result.status.IsOk()) {
				waiting.push_back(std::move(waiter));
				continue;
			}
			out.push_back(
			    [done = std::move(waiter.done), index = result.read_index] { done(Result<raft::LogIndex>(index)); });
		}
	}
	return !waiting.empty();
}

void ReadBarriers::Expire(MonotonicNs now, const Status &failure, Completions &out) {
	FailExpired(waiting, now, failure, out);
	for (auto &entry : asked) {
		auto before = entry.second.size();
		FailExpired(entry.second, now, failure, out);
		asked_count -= before - entry.second.size();
	}
}

void ReadBarriers::FailAll(const Status &failure, Completions &out) {
	Expire(INT64_MAX, failure, out);
	asked.clear();
	asked_count = 0;
}

} // namespace node
} // namespace quack
