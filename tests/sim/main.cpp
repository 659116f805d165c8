//! quack_sim: deterministic simulation of the Raft core, its log and its snapshots. See README.md for the fault model.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/arguments.hpp"
#include "sim/batch.hpp"
#include "sim/canary.hpp"

namespace {

using namespace quack;
using namespace quack::sim;

const char *const HELP =
    "quack_sim: deterministic simulation of the Raft core, its log and its snapshots on virtual time\n"
    "\n"
    "  --seed N              run one seed, print its settings and result\n"
    "  --check-replay        run every seed twice and compare the trace hashes\n"
    "  --trace               with --seed: print every event (to standard error)\n"
    "  --seeds N             run N seeds (default 1000)\n"
    "  --first-seed N        the first of them (default 1)\n"
    "  --jobs N              worker processes (default: one per core)\n"
    "  --failures-max N      stop after N failed seeds (default 20, 0 = never)\n"
    "  --canary NAME         break one rule; with --seed run that seed, else look for a seed that notices\n"
    "  --canaries            do so for every rule; with --seeds also run the healthy core first\n"
    "  --canary-seeds N      give up on a canary after N seeds (default 2000)\n"
    "  --only-properties     check only the seven properties, not the core's invariants and other early warnings\n"
    "  --list-canaries       print the names\n"
    "  --help\n"
    "\n"
    "Exit: 0 ok, 2 wrong usage, 10 crash, 11 liveness, 12 correctness, 13 inconclusive, 14 a canary was not caught.\n"
    "The last line of a batch is one JSON object.\n";

struct Arguments {
	bool single = false;
	uint64_t seed = 0;
	bool batch = false;
	uint64_t seeds = 1000;
	uint64_t first_seed = 1;
	uint32_t jobs = 1;
	uint64_t failures_max = 20;
	bool check_replay = false;
	bool trace = false;
	bool all_canaries = false;
	std::string canary;
	uint64_t canary_seeds = 2000;
	bool only_properties = false;
};

[[noreturn]] void Usage(const std::string &problem) {
	sim::Usage("quack_sim", problem);
}

uint64_t Number(const char *flag, const char *text) {
	return sim::Number("quack_sim", flag, text);
}

//! Flags without a value; false when `flag` is none of them.
bool ParseSwitch(const std::string &flag, Arguments &arguments) {
	if (flag == "--help") {
		std::fputs(HELP, stdout);
		std::exit(0);
	}
	if (flag == "--list-canaries") {
		for (const auto &canary : Canaries()) {
			std::printf("%s\n", canary.name);
		}
		std::exit(0);
	}
	bool *target = flag == "--check-replay"      ? &arguments.check_replay
	               : flag == "--trace"           ? &arguments.trace
	               : flag == "--canaries"        ? &arguments.all_canaries
	               : flag == "--only-properties" ? &arguments.only_properties
	                                             : nullptr;
	if (target) {
		*target = true;
	}
	return target != nullptr;
}

Arguments Parse(int argc, char **argv) {
	Arguments arguments;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	arguments.jobs = cores > 0 ? static_cast<uint32_t>(cores) : 1;
	for (int i = 1; i < argc; i++) {
		std::string flag = argv[i];
		if (ParseSwitch(flag, arguments)) {
			continue;
		}
		const char *value = i + 1 < argc ? argv[++i] : nullptr;
		if (flag == "--seed") {
			arguments.single = true;
			arguments.seed = Number("--seed", value);
		} else if (flag == "--seeds") {
			arguments.batch = true;
			arguments.seeds = Number("--seeds", value);
		} else if (flag == "--first-seed") {
			arguments.first_seed = Number("--first-seed", value);
		} else if (flag == "--jobs") {
			arguments.jobs = static_cast<uint32_t>(Number("--jobs", value));
		} else if (flag == "--failures-max") {
			arguments.failures_max = Number("--failures-max", value);
		} else if (flag == "--canary-seeds") {
			arguments.canary_seeds = Number("--canary-seeds", value);
		} else if (flag == "--canary") {
			arguments.canary = value ? value : "";
			if (!FindCanary(arguments.canary)) {
				Usage("unknown canary '" + arguments.canary + "'; --list-canaries names them");
			}
		} else {
			Usage("unknown flag '" + flag + "'");
		}
	}
	if (arguments.seeds == 0 && arguments.batch) {
		Usage("--seeds must be at least 1");
	}
	return arguments;
}

RunOptions MakeRunOptions(const Arguments &arguments) {
	RunOptions run;
	run.level = arguments.only_properties ? CheckLevel::Properties : CheckLevel::All;
	run.trace_out = arguments.trace ? stderr : nullptr;
	if (!arguments.canary.empty()) {
		run.sabotage.*FindCanary(arguments.canary)->broken_rule = true;
		run.wrong_answers_only = true;
	}
	return run;
}

std::string ReplayCommand(uint64_t seed, const std::string &canary, bool only_properties) {
	return "quack_sim --seed " + std::to_string(seed) + (canary.empty() ? "" : " --canary " + canary) +
	       (only_properties ? " --only-properties" : "") + " --trace";
}

int RunSingle(const Arguments &arguments) {
	std::fputs(DrawSettings(arguments.seed).ToString().c_str(), stdout);
	std::fflush(stdout);
	RunResult result = RunSeed(arguments.seed, MakeRunOptions(arguments), arguments.check_replay);
	result.coverage.ForEach([](const char *name, uint64_t value) {
		std::printf("  %s=%llu\n", name, static_cast<unsigned long long>(value));
	});
	std::printf("virtual_ms=%.3f recovery_ms=%.3f trace_hash=%016llx%s\n",
	            static_cast<double>(result.virtual_time) / NS_PER_MS,
	            static_cast<double>(result.recovery_time) / NS_PER_MS,
	            static_cast<unsigned long long>(result.trace_hash), arguments.check_replay ? " (replayed)" : "");
	std::printf("seed %llu: %s", static_cast<unsigned long long>(arguments.seed), OutcomeName(result.outcome));
	if (result.outcome != Outcome::Ok) {
		std::printf(": %s: %s\nreplay: %s", result.checker.c_str(), result.message.c_str(),
		            ReplayCommand(arguments.seed, arguments.canary, arguments.only_properties).c_str());
	}
	std::printf("\n");
	return ExitCode(result.outcome);
}

struct Summary {
	bool ok = true;
	int exit_code = 0;
	BatchResult batch;
	uint64_t canaries = 0;
	uint64_t canaries_caught = 0;

	void Fail(int code) {
		ok = false;
		exit_code = exit_code == 0 ? code : exit_code;
	}
};

void RunHealthy(const Arguments &arguments, Summary &summary) {
	BatchOptions options;
	options.first_seed = arguments.first_seed;
	options.seed_count = arguments.seeds;
	options.jobs = arguments.jobs;
	options.failures_max = arguments.failures_max;
	options.check_replay = arguments.check_replay;
	Arguments healthy = arguments;
	healthy.canary.clear();
	options.run = MakeRunOptions(healthy);
	options.progress = [&](uint64_t done, uint64_t failures) {
		std::fprintf(stderr, "\r%llu of %llu seeds, %llu failed ", static_cast<unsigned long long>(done),
		             static_cast<unsigned long long>(arguments.seeds), static_cast<unsigned long long>(failures));
	};
	summary.batch = RunBatch(options);
	std::fprintf(stderr, "\n");
	const auto &batch = summary.batch;
	for (const auto &failure : batch.failed) {
		std::printf("seed %llu: %s: %s: %s\n  replay: %s\n", static_cast<unsigned long long>(failure.seed),
		            OutcomeName(failure.outcome), failure.checker.c_str(), failure.message.c_str(),
		            ReplayCommand(failure.seed, "", arguments.only_properties).c_str());
		summary.Fail(ExitCode(failure.outcome));
	}
	std::printf("coverage:");
	batch.coverage.ForEach([&](const char *name, uint64_t value) {
		std::printf(" %s=%llu", name, static_cast<unsigned long long>(value));
		// A large batch that never does something cannot speak about it.
		if (value == 0 && batch.seeds_done >= 400) {
			std::printf("(!)");
			summary.Fail(13);
		}
	});
	std::printf("\nslowest recovery after healing: %.1f election timeouts (seed %llu); combined trace hash %016llx\n",
	            batch.recovery_timeouts_max, static_cast<unsigned long long>(batch.slowest_seed),
	            static_cast<unsigned long long>(batch.combined_hash));
}

void RunCanaries(const Arguments &arguments, Summary &summary) {
	CheckLevel level = arguments.only_properties ? CheckLevel::Properties : CheckLevel::All;
	for (const auto &canary : Canaries()) {
		if (!arguments.canary.empty() && arguments.canary != canary.name) {
			continue;
		}
		summary.canaries++;
		auto result = RunCanary(canary, arguments.first_seed, arguments.canary_seeds, arguments.jobs, level);
		if (!result.caught) {
			std::printf("canary %s: NOT CAUGHT in %llu seeds\n", canary.name,
			            static_cast<unsigned long long>(result.seeds_run));
			summary.Fail(14);
			continue;
		}
		summary.canaries_caught++;
		std::printf("canary %s: caught after %llu seeds by %s: %s\n  replay: %s\n", canary.name,
		            static_cast<unsigned long long>(result.seeds_run), result.checker.c_str(), result.message.c_str(),
		            ReplayCommand(result.seed, canary.name, arguments.only_properties).c_str());
		std::fflush(stdout);
	}
}

int RunMany(const Arguments &arguments) {
	Summary summary;
	bool canaries = arguments.all_canaries || !arguments.canary.empty();
	if (arguments.batch || !canaries) {
		RunHealthy(arguments, summary);
	}
	if (canaries) {
		RunCanaries(arguments, summary);
	}
	const auto &batch = summary.batch;
	std::string failed;
	for (const auto &failure : batch.failed) {
		failed += (failed.empty() ? "" : ",") + std::to_string(failure.seed);
	}
	std::printf("{\"ok\":%s,\"seeds\":%llu,\"seeds_per_s\":%.1f,\"canaries_caught\":%llu,\"canaries\":%llu,"
	            "\"failed_seeds\":[%s]}\n",
	            summary.ok ? "true" : "false", static_cast<unsigned long long>(batch.seeds_done),
	            batch.seconds > 0 ? static_cast<double>(batch.seeds_done) / batch.seconds : 0.0,
	            static_cast<unsigned long long>(summary.canaries_caught),
	            static_cast<unsigned long long>(summary.canaries), failed.c_str());
	return summary.exit_code;
}

} // namespace

int main(int argc, char **argv) {
	Arguments arguments = Parse(argc, argv);
	PrepareProcess();
	return arguments.single ? RunSingle(arguments) : RunMany(arguments);
}
