//! Where the proposals of one group stand on this node.
#pragma once

#include <deque>
#include <map>

#include "quack/node/proposal.hpp"
#include "quack/raft/ready.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! A proposal is either waiting for a leader, or appended here and waiting for its commit, or in a batch on its way to
//! the leader. Loop thread only. Answers are added to `out` and run later.
//!
//! Outcomes: appended at (term, index), it is committed when that index commits with that term, and surely not when it
//! commits with another. Leadership lost in between decides nothing yet: the new leader's commits do, until the
//! deadline.
class ProposalRouter {
public:
	explicit ProposalRouter(ProposalBudget &budget_p) : budget(budget_p) {
	}

	void Add(Proposal proposal) {
		waiting.push_back(std::move(proposal));
	}
	bool HasWaiting() const {
		return !waiting.empty();
	}
	size_t ForwardsInFlight() const {
		return forwards.size();
	}

	//! Moves waiting proposals of at most `bytes_max` (at least one) into an event for the local core.
	raft::ProposeEvent TakeForAppend(size_t bytes_max);
	//! Remembers a membership change that is about to be stepped; its result comes through OnResults.
	uint64_t AddChange(Proposal proposal);
	//! The core's answers. True when some were refused for now and wait again.
	bool OnResults(const std::vector<raft::ProposeResult> &results, Completions &out);
	void OnCommitted(const std::vector<raft::Entry> &entries, Completions &out);
	//! A snapshot jumped over these indexes: what they held is not known here.
	void OnSnapshot(raft::LogIndex index, Completions &out);

	//! Moves waiting local proposals into a request to the leader; forwarded ones are answered NotLeader with the name.
	//! 0 when nothing is left to send.
	uint64_t TakeForForward(MonotonicNs now, size_t bytes_max, const std::string &leader_name,
	                        wire::ProposeRequest &request, Completions &out);
	//! The call's answer. True when some surely did not get appended and wait again.
	bool OnForwardAnswer(uint64_t batch, const Status &status, const wire::ProposeAnswer &answer, Completions &out);
	//! Forwarded proposals may not wait for another leader: answers them NotLeader.
	void RefuseForwarded(const std::string &leader_name, Completions &out);

	//! `waiting_failure` is the answer to those still waiting; the others are OutcomeUnknown.
	void Expire(MonotonicNs now, const Status &waiting_failure, Completions &out);
	//! Answers all: the appended and the sent ones OutcomeUnknown, the waiting ones `failure`.
	void FailAll(const Status &failure, Completions &out);
	bool Empty() const {
		return waiting.empty() && stepped.empty() && appended.empty() && forwards.empty();
	}

private:
	struct Appended {
		raft::Term term = 0;
		Proposal proposal;
	};

	void Complete(Proposal &proposal, Status status, raft::LogIndex index, Completions &out);
	void RequeueFront(std::vector<Proposal> &again);

	ProposalBudget &budget;
	std::deque<Proposal> waiting;
	std::map<uint64_t, Proposal> stepped; //! handed to the core in the running step
	//! By index; several terms may wait at one index after a lost leadership.
	std::multimap<raft::LogIndex, Appended> appended;
	std::map<uint64_t, std::vector<Proposal>> forwards;
	uint64_t next_request = 1;
	uint64_t next_batch = 1;
};

} // namespace node
} // namespace quack
