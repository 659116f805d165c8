//! ReadIndex rule (dissertation §6.4): a read barrier answers with an index at least as high as everything that was
//! committed anywhere when it was asked for. Stricter and earlier than the client-side linearizability check.
#pragma once

#include <vector>

#include "quack/raft/types.hpp"
#include "sim/checkers/violation.hpp"

namespace quack {
namespace sim {

class ReadIndexChecker {
public:
	explicit ReadIndexChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	//! `request` is asked while everything up to commit_index is known committed somewhere.
	void OnAsked(uint32_t request, raft::LogIndex commit_index);
	void OnAnswered(raft::NodeId node, uint32_t request, raft::LogIndex read_index);

private:
	ViolationSink &sink;
	std::vector<raft::LogIndex> floors;
};

} // namespace sim
} // namespace quack
