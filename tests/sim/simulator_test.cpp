//! Whole runs: replay to the identical hash, and every kind of bad outcome is told apart.
#include "sim/simulator.hpp"

#include <doctest/doctest.h>

#include <set>

#include "sim/canary.hpp"

using namespace quack;
using namespace quack::sim;

TEST_CASE("a seed replays to the identical trace hash, other seeds give other hashes") {
	PrepareProcess();
	std::set<uint64_t> hashes;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		RunResult first = Run(DrawSettings(seed), RunOptions());
		RunResult second = Run(DrawSettings(seed), RunOptions());
		CHECK(first.trace_hash == second.trace_hash);
		CHECK(first.coverage.steps == second.coverage.steps);
		hashes.insert(first.trace_hash);
	}
	CHECK(hashes.size() == 20);
}

TEST_CASE("settings depend on nothing but the seed, and differ between seeds") {
	CHECK(DrawSettings(7).ToString() == DrawSettings(7).ToString());
	CHECK(DrawSettings(7).ToString() != DrawSettings(8).ToString());
}

TEST_CASE("a cluster that elects no leader in time is a liveness failure with its own exit code") {
	PrepareProcess();
	Settings settings = DrawSettings(1);
	settings.voter_count = 1;
	settings.learner_count = 0;
	settings.spare_count = 0;
	settings.membership_interval = 0;
	settings.zero_priority_slot = 0; // it waits for ten timeouts
	settings.safety_duration = settings.config.election_timeout;
	settings.liveness_bound = settings.config.election_timeout;
	RunResult result = Run(settings, RunOptions());
	CHECK(result.outcome == Outcome::Liveness);
	CHECK(ExitCode(result.outcome) == 11);
}

TEST_CASE("a broken core is noticed, and the healthy one passes the same seeds") {
	PrepareProcess();
	BatchOptions healthy;
	healthy.seed_count = 10;
	healthy.jobs = 2;
	BatchResult batch = RunBatch(healthy);
	CHECK(batch.failed.empty());
	CHECK(batch.seeds_done == 10);
	const Canary *canary = FindCanary("truncate_committed_suffix");
	REQUIRE(canary != nullptr);
	CanaryResult caught = RunCanary(*canary, 1, 200, 2, CheckLevel::Properties);
	CHECK(caught.caught);
	// "fatal": a node met the wrong entry itself and stopped.
	CHECK((caught.checker == "state_machine_safety" || caught.checker == "fatal"));
}

TEST_CASE("a batch has the same combined hash whatever the number of workers") {
	PrepareProcess();
	BatchOptions options;
	options.first_seed = 100;
	options.seed_count = 12;
	options.jobs = 1;
	BatchResult one = RunBatch(options);
	options.jobs = 3;
	BatchResult three = RunBatch(options);
	CHECK(one.combined_hash == three.combined_hash);
	CHECK(one.coverage.steps == three.coverage.steps);
}

TEST_CASE("exit codes are distinct") {
	std::set<int> codes;
	for (auto outcome : {Outcome::Ok, Outcome::Crash, Outcome::Liveness, Outcome::Correctness, Outcome::Inconclusive}) {
		codes.insert(ExitCode(outcome));
	}
	CHECK(codes.size() == 5);
	CHECK(ExitCode(Outcome::Ok) == 0);
}
