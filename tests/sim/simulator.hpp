//! One run: a safety phase under faults, then everything heals and the cluster has to get well in bounded time.
#pragma once

#include <string>

#include "sim/world.hpp"

namespace quack {
namespace sim {

enum class Outcome : uint8_t {
	Ok,
	Crash,        //! the core panicked or latched, or the run never ended
	Liveness,     //! no convergence in bounded time after healing
	Correctness,  //! a checker reported
	Inconclusive, //! the linearizability search gave up: not a pass
};

//! Distinct process exit codes: 0, 10, 11, 12, 13.
int ExitCode(Outcome outcome);
const char *OutcomeName(Outcome outcome);

struct RunOptions {
	Sabotage sabotage;
	CheckLevel level = CheckLevel::All;
	//! Every event in words; null = silent.
	FILE *trace_out = nullptr;
	//! A stall or an undecided history is not a failure: canary runs look for wrong answers only.
	bool wrong_answers_only = false;
};

struct RunResult {
	Outcome outcome = Outcome::Ok;
	//! Who noticed, e.g. "election_safety" or "panic"; empty when Ok.
	std::string checker;
	std::string message;
	uint64_t trace_hash = 0;
	Coverage coverage;
	MonotonicNs virtual_time = 0;
	//! From healing to convergence.
	MonotonicNs recovery_time = 0;
};

//! Turns a panic of the core into a result and silences the log lines of the code under test; call once per process
//! before Run.
void PrepareProcess();

RunResult Run(const Settings &settings, const RunOptions &options);

} // namespace sim
} // namespace quack
