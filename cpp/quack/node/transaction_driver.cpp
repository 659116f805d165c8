#include "quack/node/transaction_driver.hpp"

#include <iterator>

#include "quack/common/check.hpp"

namespace quack {
namespace node {

TransactionDriver::TransactionDriver(const TransactionId &id_p, raft::LogIndex planned_version_p,
                                     std::vector<TransactionPart> parts, bool in_turn_p)
    : id(id_p), planned_version(planned_version_p), in_turn(in_turn_p) {
	for (auto &part : parts) {
		auto group = part.group;
		auto is_new = waiting.emplace(group, std::move(part)).second;
		QUACK_CHECK(is_new, "a transaction has one part in a group");
	}
	QUACK_CHECK(waiting.size() > 1, "a transaction inside one group needs no driver");
	auto root = waiting.find(raft::ROOT_GROUP);
	auto chosen = root != waiting.end() ? root : waiting.begin();
	coordinator = chosen->first;
	own = std::move(chosen->second);
	waiting.erase(chosen);
	PrepareMore();
}

void TransactionDriver::Prepare(TransactionPart &part) {
	TransactionEntry entry;
	entry.kind = TransactionEntryKind::Prepare;
	entry.id = id;
	entry.planned_version = planned_version;
	entry.coordinator = coordinator;
	entry.locks = std::move(part.locks);
	entry.body = part.body;
	prepared[part.group] = 0;
	proposals.push_back({TransactionProposal::Kind::Entry, part.group, EncodeTransactionEntry(entry)});
}

void TransactionDriver::PrepareMore() {
	while (!waiting.empty() && (!in_turn || Unanswered().empty())) {
		auto next = std::prev(waiting.end());
		Prepare(next->second);
		waiting.erase(next);
	}
}

std::vector<raft::GroupId> TransactionDriver::Unanswered() const {
	std::vector<raft::GroupId> groups;
	for (auto &part : prepared) {
		if (part.second == 0) {
			groups.push_back(part.first);
		}
	}
	return groups;
}

std::vector<TransactionProposal> TransactionDriver::TakeProposals() {
	std::vector<TransactionProposal> taken;
	taken.swap(proposals);
	return taken;
}

void TransactionDriver::OnPrepared(raft::GroupId group, raft::LogIndex index, bool is_granted) {
	auto part = prepared.find(group);
	if (part == prepared.end() || part->second != 0) {
		return; // a repeated proposal
	}
	part->second = index;
	is_refused = is_refused || !is_granted;
	if (phase != Phase::Preparing) {
		return;
	}
	if (is_refused) {
		Void();
		return;
	}
	PrepareMore();
	if (waiting.empty() && Unanswered().empty()) {
		Decide();
	}
}

void TransactionDriver::Decide() {
	phase = Phase::Deciding;
	TransactionEntry entry;
	entry.kind = TransactionEntryKind::Decision;
	entry.id = id;
	entry.planned_version = planned_version;
	entry.locks = std::move(own.locks);
	entry.body = own.body;
	for (auto &part : prepared) {
		entry.prepares.push_back({part.first, part.second});
	}
	proposals.push_back({TransactionProposal::Kind::Entry, coordinator, EncodeTransactionEntry(entry)});
}

void TransactionDriver::Void() {
	phase = Phase::Deciding;
	waiting.clear();
	proposals.push_back({TransactionProposal::Kind::Void, coordinator, std::string()});
}

bool TransactionDriver::GiveUp() {
	if (phase != Phase::Preparing) {
		return false;
	}
	Void();
	return true;
}

void TransactionDriver::OnDecided(raft::LogIndex index) {
	if (phase == Phase::Releasing) {
		return;
	}
	phase = Phase::Releasing;
	waiting.clear();
	// Also where no answer came: a prepare may be on its way, and one that comes later is left to the group's leader.
	for (auto &part : prepared) {
		TransactionEntry entry;
		entry.kind = TransactionEntryKind::Release;
		entry.id = id;
		entry.decided = {coordinator, index};
		proposals.push_back({TransactionProposal::Kind::Entry, part.first, EncodeTransactionEntry(entry)});
	}
}

} // namespace node
} // namespace quack
