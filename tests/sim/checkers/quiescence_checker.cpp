#include "sim/checkers/quiescence_checker.hpp"

#include <algorithm>

namespace quack {
namespace sim {

void QuiescenceChecker::OnStart(raft::NodeId node) {
	gone_since.erase(node);
}

void QuiescenceChecker::OnCrash(raft::NodeId node, MonotonicNs now) {
	gone_since[node] = now;
}

void QuiescenceChecker::OnLeaderQuiet(raft::NodeId leader, raft::LogIndex index, raft::Term term, raft::NodeId member,
                                      const LogImage *synced) {
	if (!synced || !synced->Holds(index, term)) {
		sink.Report("quiescence", "leader " + std::to_string(leader) + " went quiet at index " + std::to_string(index) +
		                              ", which node " + std::to_string(member) + " does not hold");
	}
}

void QuiescenceChecker::OnStaysQuiet(raft::NodeId node, raft::NodeId leader, MonotonicNs awake_since, MonotonicNs now) {
	auto gone = gone_since.find(leader);
	if (gone != gone_since.end() && now - std::max(gone->second, awake_since) > patience) {
		sink.Report("quiescence", "node " + std::to_string(node) + " stays quiet under leader " +
		                              std::to_string(leader) + ", which has been gone for " +
		                              std::to_string((now - gone->second) / NS_PER_MS) + " ms");
	}
}

} // namespace sim
} // namespace quack
