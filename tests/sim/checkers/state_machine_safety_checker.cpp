#include "sim/checkers/state_machine_safety_checker.hpp"

#include "sim/trace.hpp"

namespace quack {
namespace sim {

void StateMachineSafetyChecker::OnCommitted(raft::NodeId node, raft::LogIndex expected, const raft::Entry &entry,
                                            raft::LogIndex global_commit_index) {
	if (entry.index != expected) {
		sink.Report("state_machine_safety", "node " + std::to_string(node) + " was handed index " +
		                                        std::to_string(entry.index) + " although " + std::to_string(expected) +
		                                        " comes next");
		return;
	}
	if (entry.index > global_commit_index) {
		sink.Report("state_machine_safety",
		            "node " + std::to_string(node) + " was handed index " + std::to_string(entry.index) +
		                " although leaders committed only up to " + std::to_string(global_commit_index));
		return;
	}
	if (entry.index >= by_index.size()) {
		by_index.resize(entry.index + 1);
	}
	Applied &known = by_index[entry.index];
	uint64_t content = HashEntry(entry);
	if (known.node == raft::NO_NODE) {
		known = {entry.term, content, node};
	} else if (known.term != entry.term || known.content != content) {
		sink.Report("state_machine_safety", "index " + std::to_string(entry.index) + " is applied as term " +
		                                        std::to_string(known.term) + " on node " + std::to_string(known.node) +
		                                        " and as " +
		                                        (known.term == entry.term ? "other content of that term"
		                                                                  : "term " + std::to_string(entry.term)) +
		                                        " on node " + std::to_string(node));
	}
}

void StateMachineSafetyChecker::OnAppend(raft::NodeId node, raft::LogIndex commit_index, raft::LogIndex first) {
	if (first <= commit_index) {
		sink.Report("state_machine_safety", "node " + std::to_string(node) + " replaces its log from index " +
		                                        std::to_string(first) + " on, below its commit index " +
		                                        std::to_string(commit_index));
	}
}

void StateMachineSafetyChecker::OnSameIndex(raft::NodeId a, uint64_t history_a, raft::NodeId b, uint64_t history_b) {
	if (history_a != history_b) {
		sink.Report("state_machine_safety", "nodes " + std::to_string(a) + " and " + std::to_string(b) +
		                                        " applied the same index with different histories");
	}
}

} // namespace sim
} // namespace quack
