#include "sim/checkers/lost_write_checker.hpp"

namespace quack {
namespace sim {

void LostWriteChecker::Set(uint32_t op, Promise promise) {
	if (op >= promises.size()) {
		promises.resize(op + 1, Promise::None);
	}
	promises[op] = promise;
}

void LostWriteChecker::OnAcknowledged(uint32_t op) {
	Set(op, Promise::Acknowledged);
}

void LostWriteChecker::OnRefused(uint32_t op) {
	Set(op, Promise::Refused);
}

void LostWriteChecker::CheckFinal(raft::NodeId node, const std::vector<uint32_t> &applied_ops) {
	std::vector<uint32_t> counts(promises.size(), 0);
	for (auto op : applied_ops) {
		if (op >= counts.size()) {
			counts.resize(op + 1, 0);
		}
		counts[op]++;
	}
	for (uint32_t op = 0; op < counts.size(); op++) {
		std::string what = "operation " + std::to_string(op) + " on node " + std::to_string(node);
		Promise promise = op < promises.size() ? promises[op] : Promise::None;
		if (counts[op] > 1) {
			sink.Report("lost_write", what + " was applied " + std::to_string(counts[op]) + " times");
		} else if (counts[op] == 0 && promise == Promise::Acknowledged) {
			sink.Report("lost_write", what + " was acknowledged but is lost");
		} else if (counts[op] == 1 && promise == Promise::Refused) {
			sink.Report("lost_write", what + " was applied although the client was told that nothing was done");
		}
	}
}

} // namespace sim
} // namespace quack
