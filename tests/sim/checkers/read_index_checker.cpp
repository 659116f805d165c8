#include "sim/checkers/read_index_checker.hpp"

namespace quack {
namespace sim {

void ReadIndexChecker::OnAsked(uint32_t request, raft::LogIndex commit_index) {
	if (request >= floors.size()) {
		floors.resize(request + 1, 0);
	}
	floors[request] = commit_index;
}

void ReadIndexChecker::OnAnswered(raft::NodeId node, uint32_t request, raft::LogIndex read_index) {
	if (request < floors.size() && read_index < floors[request]) {
		sink.Report("read_index", "node " + std::to_string(node) + " answered read " + std::to_string(request) +
		                              " with index " + std::to_string(read_index) + " although " +
		                              std::to_string(floors[request]) + " was committed before it was asked");
	}
}

} // namespace sim
} // namespace quack
