#include "quack/catalog/outcome_window.hpp"

namespace quack {
namespace catalog {

void OutcomeWindow::Add(const CommitOutcome &outcome) {
	if (outcomes.emplace(outcome.request_id, outcome).second) {
		order.push_back(outcome.request_id);
	}
}

void OutcomeWindow::Trim(raft::LogIndex applied) {
	while (!order.empty()) {
		auto found = outcomes.find(order.front());
		if (found->second.index + OUTCOME_WINDOW >= applied) {
			return;
		}
		outcomes.erase(found);
		order.pop_front();
	}
}

const CommitOutcome *OutcomeWindow::Find(const RequestId &id) const {
	auto found = outcomes.find(id);
	return found == outcomes.end() ? nullptr : &found->second;
}

void OutcomeWindow::Clear() {
	order.clear();
	outcomes.clear();
}

} // namespace catalog
} // namespace quack
