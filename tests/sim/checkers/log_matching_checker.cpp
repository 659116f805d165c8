#include "sim/checkers/log_matching_checker.hpp"

#include <algorithm>

#include "sim/trace.hpp"

namespace quack {
namespace sim {

void LogMatchingChecker::OnAppend(raft::NodeId node, raft::Term previous_term,
                                  const std::vector<raft::Entry> &entries) {
	for (const auto &entry : entries) {
		if (entry.index >= by_index.size()) {
			by_index.resize(entry.index + 1);
		}
		auto &terms = by_index[entry.index];
		auto known =
		    std::find_if(terms.begin(), terms.end(), [&](const Known &item) { return item.term == entry.term; });
		uint64_t content = HashEntry(entry);
		std::string where = "node " + std::to_string(node) + " appended index " + std::to_string(entry.index) +
		                    " of term " + std::to_string(entry.term);
		if (entry.term < previous_term) {
			sink.Report("log_matching", where + " after an entry of the later term " + std::to_string(previous_term));
		} else if (known == terms.end()) {
			terms.push_back({entry.term, previous_term, content});
		} else if (known->content != content) {
			sink.Report("log_matching", where + " with other content than elsewhere");
		} else if (known->previous_term != previous_term) {
			sink.Report("log_matching", where + " after an entry of term " + std::to_string(previous_term) +
			                                ", elsewhere it follows one of term " +
			                                std::to_string(known->previous_term));
		}
		previous_term = entry.term;
	}
}

} // namespace sim
} // namespace quack
