//! Leader completeness (paper, figure 3): an entry committed in some term is in the log of every leader of later terms.
//! Also leader append-only: a leader never replaces an entry of its own log; and the commit rule (paper, §5.4.2): a
//! leader's commit index stands at an entry of its own term.
#pragma once

#include <vector>

#include "sim/checkers/violation.hpp"
#include "sim/log_image.hpp"

namespace quack {
namespace sim {

class LeaderCompletenessChecker {
public:
	explicit LeaderCompletenessChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	//! First news anywhere that `entry` is committed, from a node in commit_term. Indexes come without gaps.
	void OnFirstCommit(raft::LogIndex index, raft::Term term, raft::Term commit_term);
	//! `node` leads `term` with this log, just elected or still in office at a first commit.
	void OnLeader(raft::NodeId node, raft::Term term, const LogImage &log);
	//! A leader in office appends from `first` on while its log reached to `last`.
	void OnLeaderAppend(raft::NodeId node, raft::LogIndex last, raft::LogIndex first);
	//! The leader of `term` moved its commit index to an entry of entry_term.
	void OnLeaderCommit(raft::NodeId node, raft::Term term, raft::LogIndex commit_index, raft::Term entry_term);

	raft::LogIndex CommitIndex() const {
		return commits.size();
	}
	//! Term of a committed entry, 1 <= index <= CommitIndex().
	raft::Term TermAt(raft::LogIndex index) const {
		return commits[index - 1].term;
	}

private:
	struct Commit {
		raft::Term term;
		raft::Term commit_term;
	};

	ViolationSink &sink;
	std::vector<Commit> commits;
};

} // namespace sim
} // namespace quack
