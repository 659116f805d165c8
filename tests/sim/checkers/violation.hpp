//! Where checkers report. The first violation of a run is kept; the run stops there.
#pragma once

#include <string>
#include <utility>

namespace quack {
namespace sim {

struct Violation {
	//! Name of the checker, e.g. "election_safety"; empty = none.
	std::string checker;
	std::string message;
};

class ViolationSink {
public:
	void Report(const char *checker, std::string message) {
		if (first.checker.empty()) {
			first.checker = checker;
			first.message = std::move(message);
		}
	}
	bool Any() const {
		return !first.checker.empty();
	}
	const Violation &First() const {
		return first;
	}

private:
	Violation first;
};

} // namespace sim
} // namespace quack
