//! A proposal on its way through this node, and the budget that bounds all of them.
#pragma once

#include <atomic>

#include "quack/node/consensus_engine.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace node {

//! Counts proposals that were accepted and not yet answered. Any thread.
class ProposalBudget {
public:
	ProposalBudget(size_t count_max_p, size_t bytes_max_p) : count_max(count_max_p), bytes_max(bytes_max_p) {
	}
	//! False when a bound would be passed (one proposal always fits); then nothing is counted.
	bool Take(size_t bytes) {
		auto old_count = count.fetch_add(1);
		auto old_bytes = byte_count.fetch_add(bytes);
		if (old_count > 0 && (old_count >= count_max || old_bytes + bytes > bytes_max)) {
			GiveBack(bytes);
			return false;
		}
		return true;
	}
	void GiveBack(size_t bytes) {
		count.fetch_sub(1);
		byte_count.fetch_sub(bytes);
	}
	size_t Count() const {
		return count.load();
	}
	size_t Bytes() const {
		return byte_count.load();
	}

private:
	const size_t count_max;
	const size_t bytes_max;
	std::atomic<size_t> count {0};
	std::atomic<size_t> byte_count {0};
};

struct Proposal {
	//! Null for a membership change.
	SharedBytes payload;
	size_t bytes = 0; //! what it took from the budget
	MonotonicNs deadline = 0;
	ConsensusEngine::ProposeCallback done;
	//! Came from a peer: answered NotLeader instead of being forwarded again.
	bool forwarded = false;
};

//! Answers to callers, collected under the loop's lock and run after it is released.
using Completions = std::vector<std::function<void()>>;

} // namespace node
} // namespace quack
