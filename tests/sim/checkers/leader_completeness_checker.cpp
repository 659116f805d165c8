#include "sim/checkers/leader_completeness_checker.hpp"

#include "quack/common/check.hpp"

namespace quack {
namespace sim {

void LeaderCompletenessChecker::OnFirstCommit(raft::LogIndex index, raft::Term term, raft::Term commit_term) {
	QUACK_CHECK(index == commits.size() + 1, "first commits are reported without gaps");
	commits.push_back({term, commit_term});
}

void LeaderCompletenessChecker::OnLeader(raft::NodeId node, raft::Term term, const LogImage &log) {
	// By log matching the last binding entry stands for all before it.
	size_t count = commits.size();
	while (count > 0 && commits[count - 1].commit_term >= term) {
		count--;
	}
	if (count > 0 && !log.Holds(count, commits[count - 1].term)) {
		auto found = log.TermAt(count);
		sink.Report("leader_completeness",
		            "node " + std::to_string(node) + " leads term " + std::to_string(term) + " without index " +
		                std::to_string(count) + " of term " + std::to_string(commits[count - 1].term) +
		                ", committed in term " + std::to_string(commits[count - 1].commit_term) + "; its log has " +
		                (found ? "term " + std::to_string(*found) : std::string("nothing")) + " there");
	}
}

void LeaderCompletenessChecker::OnLeaderAppend(raft::NodeId node, raft::LogIndex last, raft::LogIndex first) {
	if (first <= last) {
		sink.Report("leader_completeness", "leader " + std::to_string(node) + " replaced its own log from index " +
		                                       std::to_string(first) + ", which reached to " + std::to_string(last));
	}
}

void LeaderCompletenessChecker::OnLeaderCommit(raft::NodeId node, raft::Term term, raft::LogIndex commit_index,
                                               raft::Term entry_term) {
	if (entry_term != term) {
		sink.Report("leader_completeness", "leader " + std::to_string(node) + " of term " + std::to_string(term) +
		                                       " counts index " + std::to_string(commit_index) + " of term " +
		                                       std::to_string(entry_term) + " as committed");
	}
}

} // namespace sim
} // namespace quack
