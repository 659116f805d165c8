//! Many seeds over a few worker processes: a seed that kills its process is a failed seed, not the end of the batch.
#pragma once

#include <functional>
#include <vector>

#include "sim/simulator.hpp"

namespace quack {
namespace sim {

struct BatchOptions {
	uint64_t first_seed = 1;
	uint64_t seed_count = 1;
	uint32_t jobs = 1;
	//! Stop early after so many failed seeds; 0 = never.
	uint64_t failures_max = 0;
	//! Run each seed twice and compare the trace hashes.
	bool check_replay = false;
	RunOptions run;
	//! Called with (seeds done, failures) about every half second; may be empty.
	std::function<void(uint64_t, uint64_t)> progress;
};

struct FailedSeed {
	uint64_t seed = 0;
	Outcome outcome = Outcome::Ok;
	std::string checker;
	std::string message;
};

struct BatchResult {
	uint64_t seeds_done = 0;
	double seconds = 0;
	//! In seed order.
	std::vector<FailedSeed> failed;
	Coverage coverage;
	//! Order-independent combination of all trace hashes: equal batches give equal values.
	uint64_t combined_hash = 0;
	//! Longest recovery, in election timeouts, and its seed.
	double recovery_timeouts_max = 0;
	uint64_t slowest_seed = 0;
};

BatchResult RunBatch(const BatchOptions &options);

//! One seed, or two runs of it when check_replay; a difference of hashes is a Correctness failure of checker "replay".
RunResult RunSeed(uint64_t seed, const RunOptions &run, bool check_replay);

} // namespace sim
} // namespace quack
