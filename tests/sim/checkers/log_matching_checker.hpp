//! Log matching (paper, figure 3): two logs with an entry of the same index and term are identical up to it. Checked as
//! a step of induction on every append: an (index, term) has one content and one predecessor, everywhere and for ever.
#pragma once

#include <vector>

#include "quack/raft/types.hpp"
#include "sim/checkers/violation.hpp"

namespace quack {
namespace sim {

class LogMatchingChecker {
public:
	explicit LogMatchingChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	//! `entries` were appended to a log right after an entry of term previous_term (0 before the first).
	void OnAppend(raft::NodeId node, raft::Term previous_term, const std::vector<raft::Entry> &entries);

private:
	struct Known {
		raft::Term term;
		raft::Term previous_term;
		uint64_t content;
	};

	ViolationSink &sink;
	//! by_index[i] = the distinct terms seen at index i.
	std::vector<std::vector<Known>> by_index;
};

} // namespace sim
} // namespace quack
