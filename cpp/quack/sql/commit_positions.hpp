//! What a session has seen of the groups' logs, as it travels in headers.
#pragma once

#include <mutex>
#include <string>

#include "quack/catalog/position_text.hpp"

namespace quack {
namespace sql {

//! The newest positions that any reply carried. Any thread.
class SeenPositions {
public:
	//! Text that cannot be read is ignored: positions only make reads fresher.
	void Merge(const std::string &text);
	//! Empty when nothing was seen.
	std::string Text() const;

private:
	mutable std::mutex lock;
	catalog::AppliedVector positions;
};

} // namespace sql
} // namespace quack
