#include "quack/catalog/position_text.hpp"

#include <cstdlib>

namespace quack {
namespace catalog {
namespace {

//! A whole decimal number at `offset`, moved behind it; false when there is none.
bool TakeNumber(const std::string &text, size_t &offset, uint64_t &number) {
	auto end = text.find_first_not_of("0123456789", offset);
	end = end == std::string::npos ? text.size() : end;
	if (end == offset || end - offset > 19) {
		return false;
	}
	number = strtoull(text.c_str() + offset, nullptr, 10);
	offset = end;
	return true;
}

bool TakeLetter(const std::string &text, size_t &offset, char letter) {
	if (offset >= text.size() || text[offset] != letter) {
		return false;
	}
	offset++;
	return true;
}

} // namespace

raft::LogIndex IndexIn(const AppliedVector &vector, raft::GroupId group) {
	auto found = vector.find(group);
	return found == vector.end() ? 0 : found->second;
}

std::string PositionsToText(const AppliedVector &positions) {
	std::string text;
	for (auto &position : positions) {
		text += (text.empty() ? "" : ",") + std::to_string(position.first) + ":" + std::to_string(position.second);
	}
	return text;
}

Result<AppliedVector> PositionsFromText(const std::string &text) {
	AppliedVector positions;
	size_t offset = 0;
	while (offset < text.size()) {
		uint64_t group = 0;
		uint64_t index = 0;
		auto is_first = positions.empty();
		if ((!is_first && !TakeLetter(text, offset, ',')) || !TakeNumber(text, offset, group) ||
		    !TakeLetter(text, offset, ':') || !TakeNumber(text, offset, index)) {
			return Status(ErrorCode::InvalidArgument,
			              "expected positions like '1:120,4:7' (group:index), got '" + text.substr(0, 100) + "'");
		}
		positions[group] = index;
	}
	return positions;
}

} // namespace catalog
} // namespace quack
