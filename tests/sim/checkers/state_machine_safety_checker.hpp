//! State machine safety (paper, figure 3): no two nodes apply different entries at one index. Also: entries are handed
//! out in order, only once they are committed, and are never cut off a log afterwards.
#pragma once

#include <vector>

#include "quack/raft/types.hpp"
#include "sim/checkers/violation.hpp"

namespace quack {
namespace sim {

class StateMachineSafetyChecker {
public:
	explicit StateMachineSafetyChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	//! `node` was handed `entry` as committed; `expected` is the index that has to come next there; leaders have called
	//! everything up to global_commit_index committed.
	void OnCommitted(raft::NodeId node, raft::LogIndex expected, const raft::Entry &entry,
	                 raft::LogIndex global_commit_index);
	//! `node` appends from `first` on although it knows everything up to commit_index to be committed.
	void OnAppend(raft::NodeId node, raft::LogIndex commit_index, raft::LogIndex first);
	//! Two nodes that applied the same index must hold the same history.
	void OnSameIndex(raft::NodeId a, uint64_t history_a, raft::NodeId b, uint64_t history_b);

private:
	struct Applied {
		raft::Term term = 0;
		uint64_t content = 0;
		raft::NodeId node = raft::NO_NODE;
	};

	ViolationSink &sink;
	std::vector<Applied> by_index;
};

} // namespace sim
} // namespace quack
