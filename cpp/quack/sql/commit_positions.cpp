#include "quack/sql/commit_positions.hpp"

#include <algorithm>

namespace quack {
namespace sql {

void SeenPositions::Merge(const std::string &text) {
	auto parsed = catalog::PositionsFromText(text);
	if (!parsed.IsOk()) {
		return;
	}
	std::lock_guard<std::mutex> guard(lock);
	for (auto &position : parsed.Value()) {
		auto &seen = positions[position.first];
		seen = std::max(seen, position.second);
	}
}

std::string SeenPositions::Text() const {
	std::lock_guard<std::mutex> guard(lock);
	return catalog::PositionsToText(positions);
}

} // namespace sql
} // namespace quack
