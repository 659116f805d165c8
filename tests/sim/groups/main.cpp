//! quack_group_sim: deterministic simulation of the rules between groups (cpp/GROUPS.md). README.md has the fault
//! model.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "sim/arguments.hpp"
#include "sim/groups/world.hpp"

namespace {

using namespace quack::sim::groups;

const char *const HELP =
    "quack_group_sim: deterministic simulation of several logs that make one state\n"
    "\n"
    "  --seed N          run one seed and print its result\n"
    "  --trace           with --seed: print every event (to standard error)\n"
    "  --seeds N         run N seeds (default 1000), each twice with --check-replay\n"
    "  --first-seed N    the first of them (default 1)\n"
    "  --jobs N          threads (default: one per core)\n"
    "  --canary NAME     break one rule\n"
    "  --canaries        look for a seed that notices, for every rule\n"
    "  --canary-seeds N  give up on a canary after N seeds (default 2000)\n"
    "  --list-canaries   print the names\n"
    "  --help\n"
    "\n"
    "Exit: 0 ok, 2 wrong usage, 12 a rule was broken, 13 a batch never did something, 14 a canary was not caught.\n"
    "The last line of a batch is one JSON object.\n";

struct Canary {
	const char *name;
	bool Sabotage::*broken_rule;
};

const Canary CANARIES[] = {
    {"skip_fence", &Sabotage::skip_fence},
    {"part_applied_early", &Sabotage::part_applied_early},
    {"locks_dropped", &Sabotage::locks_dropped},
    {"needs_ignored", &Sabotage::needs_ignored},
    {"void_forgotten", &Sabotage::void_forgotten},
    {"release_early", &Sabotage::release_early},
    {"versions_unchecked", &Sabotage::versions_unchecked},
};

//! A batch of this size that never did something cannot speak about it.
constexpr uint64_t COVERED_SEEDS_MIN = 200;

struct Arguments {
	bool is_single = false;
	bool is_batch = false;
	bool all_canaries = false;
	bool check_replay = false;
	bool trace = false;
	uint64_t seed = 0;
	uint64_t seeds = 1000;
	uint64_t first_seed = 1;
	uint64_t jobs = 1;
	uint64_t canary_seeds = 2000;
	const Canary *canary = nullptr;
};

[[noreturn]] void Usage(const std::string &problem) {
	quack::sim::Usage("quack_group_sim", problem);
}

uint64_t Number(const std::string &flag, const char *text) {
	return quack::sim::Number("quack_group_sim", flag, text);
}

const Canary &FindCanary(const std::string &name) {
	for (auto &canary : CANARIES) {
		if (name == canary.name) {
			return canary;
		}
	}
	Usage("unknown canary '" + name + "'; --list-canaries names them");
}

bool ParseSwitch(const std::string &flag, Arguments &arguments) {
	if (flag == "--help") {
		std::fputs(HELP, stdout);
		std::exit(0);
	}
	if (flag == "--list-canaries") {
		for (auto &canary : CANARIES) {
			std::printf("%s\n", canary.name);
		}
		std::exit(0);
	}
	auto *target = flag == "--check-replay" ? &arguments.check_replay
	               : flag == "--trace"      ? &arguments.trace
	               : flag == "--canaries"   ? &arguments.all_canaries
	                                        : nullptr;
	if (target != nullptr) {
		*target = true;
	}
	return target != nullptr;
}

Arguments Parse(int argc, char **argv) {
	Arguments arguments;
	arguments.jobs = std::max(1U, std::thread::hardware_concurrency());
	for (int i = 1; i < argc; i++) {
		std::string flag = argv[i];
		if (ParseSwitch(flag, arguments)) {
			continue;
		}
		const char *value = i + 1 < argc ? argv[++i] : nullptr;
		if (flag == "--seed") {
			arguments.is_single = true;
			arguments.seed = Number(flag, value);
		} else if (flag == "--seeds") {
			arguments.is_batch = true;
			arguments.seeds = Number(flag, value);
		} else if (flag == "--first-seed") {
			arguments.first_seed = Number(flag, value);
		} else if (flag == "--jobs") {
			arguments.jobs = std::max<uint64_t>(1, Number(flag, value));
		} else if (flag == "--canary-seeds") {
			arguments.canary_seeds = Number(flag, value);
		} else if (flag == "--canary") {
			arguments.canary = &FindCanary(value != nullptr ? value : "");
		} else {
			Usage("unknown flag '" + flag + "'");
		}
	}
	if (arguments.seeds == 0) {
		Usage("--seeds must be at least 1");
	}
	return arguments;
}

Sabotage Broken(const Canary *canary) {
	Sabotage sabotage;
	if (canary != nullptr) {
		sabotage.*(canary->broken_rule) = true;
	}
	return sabotage;
}

struct Batch {
	uint64_t seeds_done = 0;
	Coverage coverage;
	std::vector<std::pair<uint64_t, std::string>> failed; //! seed and what was found
	double seconds = 0;
};

Batch RunBatch(const Arguments &arguments, const Canary *canary, uint64_t seeds, bool until_failure) {
	Batch batch;
	std::mutex lock; //! guards batch
	std::atomic<uint64_t> next {0};
	auto begun = std::chrono::steady_clock::now();
	auto work = [&] {
		for (auto i = next++; i < seeds; i = next++) {
			auto seed = arguments.first_seed + i;
			auto result = RunSeed(seed, Broken(canary), false);
			if (arguments.check_replay && result.violation.empty() &&
			    RunSeed(seed, Broken(canary), false).trace_hash != result.trace_hash) {
				result.violation = "replay: a second run of the seed went otherwise";
			}
			std::lock_guard<std::mutex> guard(lock);
			batch.seeds_done++;
			batch.coverage.Add(result.coverage);
			if (!result.violation.empty()) {
				batch.failed.emplace_back(seed, result.violation);
				next = until_failure ? seeds : next.load();
			}
		}
	};
	std::vector<std::thread> threads;
	for (uint64_t job = 0; job < arguments.jobs; job++) {
		threads.emplace_back(work);
	}
	for (auto &thread : threads) {
		thread.join();
	}
	batch.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
	return batch;
}

int RunSingle(const Arguments &arguments) {
	auto result = RunSeed(arguments.seed, Broken(arguments.canary), arguments.trace);
	Coverage::Visit(result.coverage, [](const char *name, uint64_t value) {
		std::printf("  %s=%llu\n", name, static_cast<unsigned long long>(value));
	});
	std::printf("seed %llu: %s trace_hash=%016llx\n", static_cast<unsigned long long>(arguments.seed),
	            result.violation.empty() ? "ok" : result.violation.c_str(),
	            static_cast<unsigned long long>(result.trace_hash));
	return result.violation.empty() ? 0 : 12;
}

int RunMany(const Arguments &arguments) {
	Batch batch;
	int code = 0;
	auto has_canaries = arguments.all_canaries || arguments.canary != nullptr;
	std::string failed;
	if (arguments.is_batch || !has_canaries) {
		batch = RunBatch(arguments, nullptr, arguments.seeds, false);
		for (auto &failure : batch.failed) {
			std::printf("seed %llu: %s\n  replay: quack_group_sim --seed %llu --trace\n",
			            static_cast<unsigned long long>(failure.first), failure.second.c_str(),
			            static_cast<unsigned long long>(failure.first));
			failed += (failed.empty() ? "" : ",") + std::to_string(failure.first);
			code = 12;
		}
		std::printf("coverage:");
		Coverage::Visit(batch.coverage, [&](const char *name, uint64_t value) {
			auto is_missing = value == 0 && batch.seeds_done >= COVERED_SEEDS_MIN;
			std::printf(" %s=%llu%s", name, static_cast<unsigned long long>(value), is_missing ? "(!)" : "");
			code = is_missing && code == 0 ? 13 : code;
		});
		std::printf("\n");
	}
	uint64_t canaries = 0;
	uint64_t caught = 0;
	for (auto &canary : CANARIES) {
		if (!has_canaries || (arguments.canary != nullptr && arguments.canary != &canary)) {
			continue;
		}
		canaries++;
		auto found = RunBatch(arguments, &canary, arguments.canary_seeds, true);
		if (found.failed.empty()) {
			std::printf("canary %s: NOT CAUGHT in %llu seeds\n", canary.name,
			            static_cast<unsigned long long>(found.seeds_done));
			code = code == 0 ? 14 : code;
			continue;
		}
		caught++;
		auto &failure = found.failed.front();
		std::printf("canary %s: caught after %llu seeds: %s\n  replay: quack_group_sim --seed %llu --canary %s "
		            "--trace\n",
		            canary.name, static_cast<unsigned long long>(found.seeds_done),
		            failure.second.substr(0, failure.second.find('\n')).c_str(),
		            static_cast<unsigned long long>(failure.first), canary.name);
	}
	std::printf("{\"ok\":%s,\"seeds\":%llu,\"seeds_per_s\":%.1f,\"canaries_caught\":%llu,\"canaries\":%llu,"
	            "\"failed_seeds\":[%s]}\n",
	            code == 0 ? "true" : "false", static_cast<unsigned long long>(batch.seeds_done),
	            batch.seconds > 0 ? static_cast<double>(batch.seeds_done) / batch.seconds : 0.0,
	            static_cast<unsigned long long>(caught), static_cast<unsigned long long>(canaries), failed.c_str());
	return code;
}

} // namespace

int main(int argc, char **argv) {
	auto arguments = Parse(argc, argv);
	return arguments.is_single ? RunSingle(arguments) : RunMany(arguments);
}
