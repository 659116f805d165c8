//! Linearizability of one register with read, write and compare-and-set (Herlihy & Wing 1990), decided by the search of
//! Wing & Gong (1993) with Lowe's memory of visited configurations (2017). Every operation reports the value that it
//! found, also a write: that pins the order of concurrent writes and keeps the search short.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "sim/register_machine.hpp"

namespace quack {
namespace sim {

struct HistoryOp {
	static constexpr uint64_t PENDING = std::numeric_limits<uint64_t>::max();

	uint32_t op = 0;
	OpKind kind = OpKind::Read;
	//! Write, Cas: the value to store; unique in the history and not 0.
	uint32_t value = 0;
	//! Cas only.
	uint32_t expected = 0;
	//! Logical times; all distinct. An operation without known outcome has complete = PENDING and may take effect at
	//! any time after invoke, or never.
	uint64_t invoke = 0;
	uint64_t complete = PENDING;
	//! Completed only: the value found.
	uint32_t observed = 0;
};

enum class Verdict : uint8_t { Linearizable, NotLinearizable, Unknown };

struct LinearizabilityResult {
	Verdict verdict = Verdict::Linearizable;
	uint64_t iterations = 0;
	//! NotLinearizable: the operation that no order could place, in words.
	std::string explanation;
};

//! The register starts at 0. Gives up as Unknown after iterations_max steps: that is never a pass.
LinearizabilityResult CheckLinearizability(std::vector<HistoryOp> history, uint64_t iterations_max);

} // namespace sim
} // namespace quack
