#include "quack/node/proposal_router.hpp"

namespace quack {
namespace node {

namespace {

Status NotLeader(const std::string &leader_name) {
	return Status(ErrorCode::NotLeader, leader_name.empty() ? std::string("this node does not lead the group")
	                                                        : "the leader is node '" + leader_name + "'");
}

Status Unknown(const std::string &why) {
	return Status(ErrorCode::OutcomeUnknown, why + "; it may or may not commit, ask for its outcome");
}

//! Codes that say: surely not appended, and another try (perhaps with another leader) may help.
bool MayRetry(const Status &status) {
	return status.Code() == ErrorCode::NotLeader || status.Code() == ErrorCode::Unavailable ||
	       status.Code() == ErrorCode::Overloaded || status.Code() == ErrorCode::Degraded;
}

} // namespace

void ProposalRouter::Complete(Proposal &proposal, Status status, raft::LogIndex index, Completions &out) {
	budget.GiveBack(proposal.bytes);
	ProposeOutcome outcome;
	outcome.status = std::move(status);
	outcome.index = index;
	out.push_back([done = std::move(proposal.done), outcome = std::move(outcome)] { done(outcome); });
	proposal.done = nullptr;
}

void ProposalRouter::RequeueFront(std::vector<Proposal> &again) {
	for (auto proposal = again.rbegin(); proposal != again.rend(); ++proposal) {
		waiting.push_front(std::move(*proposal));
	}
}

raft::ProposeEvent ProposalRouter::TakeForAppend(size_t bytes_max) {
	raft::ProposeEvent event;
	size_t bytes = 0;
	while (!waiting.empty() && (event.items.empty() || bytes + waiting.front().bytes <= bytes_max)) {
		auto request = next_request++;
		bytes += waiting.front().bytes;
		event.items.push_back({request, waiting.front().payload});
		stepped.emplace_hint(stepped.end(), request, std::move(waiting.front()));
		waiting.pop_front();
	}
	return event;
}

uint64_t ProposalRouter::AddChange(Proposal proposal) {
	auto request = next_request++;
	stepped.emplace(request, std::move(proposal));
	return request;
}

bool ProposalRouter::OnResults(const std::vector<raft::ProposeResult> &results, Completions &out) {
	std::vector<Proposal> again;
	for (auto &result : results) {
		auto entry = stepped.find(result.request);
		QUACK_CHECK(entry != stepped.end(), "the core answers only what it was asked");
		auto proposal = std::move(entry->second);
		stepped.erase(entry);
		if (result.status.IsOk()) {
			proposal.payload.reset();
			appended.emplace_hint(appended.end(), result.index, Appended {result.term, std::move(proposal)});
		} else if (MayRetry(result.status) && proposal.payload) {
			again.push_back(std::move(proposal));
		} else {
			Complete(proposal, result.status, 0, out);
		}
	}
	RequeueFront(again);
	return !again.empty();
}

void ProposalRouter::OnCommitted(const std::vector<raft::Entry> &entries, Completions &out) {
	for (auto &entry : entries) {
		while (!appended.empty() && appended.begin()->first <= entry.index) {
			auto first = appended.begin();
			auto is_ours = first->first == entry.index && first->second.term == entry.term;
			auto status = is_ours ? Status::Ok()
			                      : Status(ErrorCode::Unavailable, "another leader's entry took its place at index " +
			                                                           std::to_string(first->first) +
			                                                           "; it did not commit, retry");
			Complete(first->second.proposal, std::move(status), is_ours ? entry.index : 0, out);
			appended.erase(first);
		}
	}
}

void ProposalRouter::OnSnapshot(raft::LogIndex index, Completions &out) {
	while (!appended.empty() && appended.begin()->first <= index) {
		Complete(appended.begin()->second.proposal, Unknown("a snapshot replaced the log at its index"), 0, out);
		appended.erase(appended.begin());
	}
}

uint64_t ProposalRouter::TakeForForward(MonotonicNs now, size_t bytes_max, const std::string &leader_name,
                                        wire::ProposeRequest &request, Completions &out) {
	std::vector<Proposal> batch;
	size_t bytes = 0;
	while (!waiting.empty() && (batch.empty() || bytes + waiting.front().bytes <= bytes_max)) {
		auto proposal = std::move(waiting.front());
		waiting.pop_front();
		if (proposal.forwarded) {
			Complete(proposal, NotLeader(leader_name), 0, out);
			continue;
		}
		bytes += proposal.bytes;
		request.items.push_back({proposal.deadline - now, proposal.payload});
		batch.push_back(std::move(proposal));
	}
	if (batch.empty()) {
		return 0;
	}
	auto number = next_batch++;
	forwards.emplace(number, std::move(batch));
	return number;
}

bool ProposalRouter::OnForwardAnswer(uint64_t number, const Status &status, const wire::ProposeAnswer &answer,
                                     Completions &out) {
	auto entry = forwards.find(number);
	if (entry == forwards.end()) {
		return false;
	}
	auto batch = std::move(entry->second);
	forwards.erase(entry);
	std::vector<Proposal> again;
	for (size_t i = 0; i < batch.size(); i++) {
		auto &proposal = batch[i];
		if (!proposal.done) {
			continue; // expired meanwhile
		}
		if (status.IsOk() && i < answer.items.size() && !MayRetry(answer.items[i].status)) {
			Complete(proposal, answer.items[i].status, answer.items[i].index, out);
		} else if (status.Code() == ErrorCode::Unavailable || (status.IsOk() && i < answer.items.size())) {
			again.push_back(std::move(proposal));
		} else {
			auto why = status.IsOk() ? std::string("the leader's answer is incomplete") : status.Message();
			Complete(proposal, Unknown("the leader's answer was lost: " + why), 0, out);
		}
	}
	RequeueFront(again);
	return !again.empty();
}

void ProposalRouter::RefuseForwarded(const std::string &leader_name, Completions &out) {
	std::deque<Proposal> kept;
	for (auto &proposal : waiting) {
		if (proposal.forwarded) {
			Complete(proposal, NotLeader(leader_name), 0, out);
		} else {
			kept.push_back(std::move(proposal));
		}
	}
	waiting.swap(kept);
}

void ProposalRouter::Expire(MonotonicNs now, const Status &waiting_failure, Completions &out) {
	std::deque<Proposal> kept;
	for (auto &proposal : waiting) {
		if (proposal.deadline <= now) {
			Complete(proposal, waiting_failure, 0, out);
		} else {
			kept.push_back(std::move(proposal));
		}
	}
	waiting.swap(kept);
	for (auto entry = appended.begin(); entry != appended.end();) {
		if (entry->second.proposal.deadline <= now) {
			Complete(entry->second.proposal,
			         Unknown("no quorum confirmed index " + std::to_string(entry->first) + " before the deadline"), 0,
			         out);
			entry = appended.erase(entry);
		} else {
			++entry;
		}
	}
	for (auto &batch : forwards) {
		for (auto &proposal : batch.second) {
			if (proposal.done && proposal.deadline <= now) {
				Complete(proposal, Unknown("the leader did not answer before the deadline"), 0, out);
			}
		}
	}
}

void ProposalRouter::FailAll(const Status &failure, Completions &out) {
	for (auto &proposal : waiting) {
		Complete(proposal, failure, 0, out);
	}
	waiting.clear();
	for (auto &entry : stepped) {
		Complete(entry.second, Unknown(failure.Message()), 0, out);
	}
	stepped.clear();
	for (auto &entry : appended) {
		Complete(entry.second.proposal, Unknown(failure.Message()), 0, out);
	}
	appended.clear();
	for (auto &batch : forwards) {
		for (auto &proposal : batch.second) {
			if (proposal.done) {
				Complete(proposal, Unknown(failure.Message()), 0, out);
			}
		}
	}
	forwards.clear();
}

} // namespace node
} // namespace quack
