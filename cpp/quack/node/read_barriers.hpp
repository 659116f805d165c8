//! Linearizable reads of one group that wait for their read index.
#pragma once

#include <map>
#include <vector>

#include "quack/node/proposal.hpp"
#include "quack/raft/ready.hpp"

namespace quack {
namespace node {

//! One read of several groups: answers when the last of them has, or the first has failed. Used where callbacks run.
class ReadRound {
public:
	//! `skips_retired`: a group that is not there any more is left out of the answer.
	ReadRound(std::vector<raft::GroupId> groups, bool skips_retired, ConsensusEngine::PositionsCallback done);
	void Set(size_t part, const Result<raft::LogIndex> &index);

private:
	std::vector<Position> positions;
	size_t missing;
	const bool skips_retired;
	ConsensusEngine::PositionsCallback done; //! empty once called
};

//! All reads that arrive while none can be asked share one request to the core. A refusal that another try may mend
//! (no leader yet, answer lost) is tried again until the deadline. Loop thread only.
class ReadBarriers {
public:
	struct Waiter {
		MonotonicNs deadline = 0;
		ConsensusEngine::ReadCallback done;
	};

	void Add(Waiter waiter) {
		waiting.push_back(std::move(waiter));
	}
	bool HasWaiting() const {
		return !waiting.empty();
	}
	//! The request that stands for all waiting reads from here on.
	uint64_t Ask();
	//! True when some wait again.
	bool OnResults(const std::vector<raft::ReadResult> &results, Completions &out);
	void Expire(MonotonicNs now, const Status &failure, Completions &out);
	void FailAll(const Status &failure, Completions &out);
	size_t Count() const {
		return waiting.size() + asked_count;
	}

private:
	std::vector<Waiter> waiting;
	std::map<uint64_t, std::vector<Waiter>> asked;
	size_t asked_count = 0;
	uint64_t next_request = 1;
};

} // namespace node
} // namespace quack
