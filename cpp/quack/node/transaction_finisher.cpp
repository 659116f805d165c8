#include "quack/node/transaction_finisher.hpp"

namespace quack {
namespace node {

std::vector<FinisherProposal> TransactionFinisher::Step(MonotonicNs now, const std::vector<PreparedAtLeader> &parts) {
	std::vector<FinisherProposal> out;
	for (auto &entry : watched) {
		entry.second.is_current = false;
	}
	for (auto &part : parts) {
		auto inserted = watched.emplace(std::make_pair(part.group, part.id), Watched());
		auto &watch = inserted.first->second;
		if (inserted.second) {
			watch.seen_at = now;
		}
		watch.is_current = true;
		if (part.decided && watch.decided_at == 0) {
			watch.decided_at = now;
			watch.proposed_at = 0;
		}
		auto due = watch.decided_at != 0 ? watch.decided_at + grace : watch.seen_at + patience;
		if (now < due || (watch.proposed_at != 0 && now < watch.proposed_at + repeat)) {
			continue;
		}
		watch.proposed_at = now;
		if (!part.decided) {
			out.push_back({part.id, {TransactionProposal::Kind::Void, part.coordinator, std::string()}});
			continue;
		}
		TransactionEntry entry;
		entry.kind = TransactionEntryKind::Release;
		entry.id = part.id;
		entry.decided = {part.coordinator, *part.decided};
		out.push_back({part.id, {TransactionProposal::Kind::Entry, part.group, EncodeTransactionEntry(entry)}});
	}
	for (auto entry = watched.begin(); entry != watched.end();) {
		entry = entry->second.is_current ? std::next(entry) : watched.erase(entry);
	}
	return out;
}

} // namespace node
} // namespace quack
