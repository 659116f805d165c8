//! Proof that the alarm rings: each switch of Sabotage breaks one rule of the core, its driver or its log, and the
//! checkers have to notice.
#pragma once

#include <string>
#include <vector>

#include "sim/batch.hpp"

namespace quack {
namespace sim {

struct Canary {
	const char *name;
	bool Sabotage::*broken_rule;
};

//! Every switch of Sabotage.
const std::vector<Canary> &Canaries();
//! Null when unknown.
const Canary *FindCanary(const std::string &name);

struct CanaryResult {
	std::string name;
	bool caught = false;
	//! The failing seed of the lowest number among those run, and what noticed.
	uint64_t seed = 0;
	uint64_t seeds_run = 0;
	std::string checker;
	std::string message;
};

//! Tries seeds from first_seed on until a wrong answer is noticed, seeds_max at most. A liveness failure is not
//! counted.
CanaryResult RunCanary(const Canary &canary, uint64_t first_seed, uint64_t seeds_max, uint32_t jobs, CheckLevel level);

} // namespace sim
} // namespace quack
