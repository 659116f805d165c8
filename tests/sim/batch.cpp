#include "sim/batch.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <type_traits>

#include "quack/common/check.hpp"

namespace quack {
namespace sim {

namespace {

constexpr uint32_t JOBS_MAX = 64;

//! In memory that all workers and the parent see.
struct Shared {
	std::atomic<uint64_t> next_seed;
	std::atomic<uint64_t> end_seed;
	//! What each worker is at; 0 = nothing.
	std::atomic<uint64_t> current_seed[JOBS_MAX];
};

//! One finished seed, written to the pipe in one piece (below PIPE_BUF, so writers do not mix).
struct Report {
	uint64_t seed;
	Outcome outcome;
	char checker[48];
	char message[2600];
	uint64_t trace_hash;
	double recovery_timeouts;
	Coverage coverage;
};
static_assert(sizeof(Report) <= 4096 && std::is_trivially_copyable<Report>::value, "a report is one pipe write");

void Copy(char *target, size_t size, const std::string &text) {
	size_t length = std::min(size - 1, text.size());
	std::memcpy(target, text.data(), length);
	target[length] = 0;
}

void Work(const BatchOptions &options, Shared &shared, uint32_t worker, int pipe_in) {
	while (true) {
		uint64_t seed = shared.next_seed.fetch_add(1);
		if (seed >= shared.end_seed.load()) {
			break;
		}
		shared.current_seed[worker].store(seed);
		RunResult result = RunSeed(seed, options.run, options.check_replay);
		Report report {};
		report.seed = seed;
		report.outcome = result.outcome;
		Copy(report.checker, sizeof(report.checker), result.checker);
		Copy(report.message, sizeof(report.message), result.message);
		report.trace_hash = result.trace_hash;
		report.recovery_timeouts =
		    static_cast<double>(result.recovery_time) / static_cast<double>(DrawSettings(seed).config.election_timeout);
		report.coverage = result.coverage;
		shared.current_seed[worker].store(0);
		if (write(pipe_in, &report, sizeof(report)) != static_cast<ssize_t>(sizeof(report))) {
			break;
		}
	}
	close(pipe_in);
}

//! The parent's side: starts workers, gathers reports, replaces a worker that died.
class Gatherer {
public:
	explicit Gatherer(const BatchOptions &options_p)
	    : options(options_p), jobs(std::min(std::max(options_p.jobs, 1u), JOBS_MAX)) {
		void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		QUACK_CHECK(memory != MAP_FAILED, "no shared memory for the workers");
		shared = new (memory) Shared();
		shared->next_seed = options.first_seed;
		shared->end_seed = options.first_seed + options.seed_count;
		workers.resize(jobs);
	}
	~Gatherer() {
		munmap(shared, sizeof(Shared));
	}

	BatchResult Run() {
		auto start = std::chrono::steady_clock::now();
		for (uint32_t worker = 0; worker < jobs; worker++) {
			StartWorker(worker);
		}
		auto last_progress = start;
		while (Wait()) {
			auto now = std::chrono::steady_clock::now();
			if (options.progress && now - last_progress > std::chrono::milliseconds(500)) {
				last_progress = now;
				options.progress(result.seeds_done, result.failed.size());
			}
		}
		std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
		result.seconds = elapsed.count();
		std::sort(result.failed.begin(), result.failed.end(),
		          [](const FailedSeed &a, const FailedSeed &b) { return a.seed < b.seed; });
		return std::move(result);
	}

private:
	struct Worker {
		pid_t process = 0;
		int pipe_out = -1;
	};

	void StartWorker(uint32_t index) {
		int ends[2];
		QUACK_CHECK(pipe(ends) == 0, "no pipe for a worker");
		std::fflush(nullptr);
		pid_t process = fork();
		QUACK_CHECK(process >= 0, "no process for a worker");
		if (process == 0) {
			close(ends[0]);
			Work(options, *shared, index, ends[1]);
			std::fflush(nullptr);
			_exit(0);
		}
		close(ends[1]);
		workers[index].process = process;
		workers[index].pipe_out = ends[0];
	}

	//! False when all workers are done.
	bool Wait() {
		std::vector<pollfd> waits;
		for (auto &worker : workers) {
			if (worker.pipe_out >= 0) {
				waits.push_back({worker.pipe_out, POLLIN, 0});
			}
		}
		if (waits.empty()) {
			return false;
		}
		poll(waits.data(), waits.size(), 500);
		for (uint32_t index = 0; index < jobs; index++) {
			for (auto &wait : waits) {
				if (wait.fd == workers[index].pipe_out && wait.revents != 0) {
					ReadFrom(index);
					break;
				}
			}
		}
		return true;
	}

	void ReadFrom(uint32_t index) {
		Report report;
		size_t got = 0;
		while (got < sizeof(report)) {
			ssize_t count =
			    read(workers[index].pipe_out, reinterpret_cast<char *>(&report) + got, sizeof(report) - got);
			if (count <= 0) {
				break;
			}
			got += static_cast<size_t>(count);
		}
		if (got == sizeof(report)) {
			Take(report);
			return;
		}
		close(workers[index].pipe_out);
		workers[index].pipe_out = -1;
		int status = 0;
		waitpid(workers[index].process, &status, 0);
		uint64_t seed = shared->current_seed[index].exchange(0);
		if (seed != 0) {
			result.seeds_done++;
			AddFailure({seed, Outcome::Crash, "process",
			            WIFSIGNALED(status) ? std::string("killed by signal ") + strsignal(WTERMSIG(status))
			                                : "exited with status " + std::to_string(WEXITSTATUS(status))});
			StartWorker(index);
		}
	}

	void Take(const Report &report) {
		result.seeds_done++;
		result.coverage.Add(report.coverage);
		result.combined_hash += Mix(report.seed, report.trace_hash);
		if (report.recovery_timeouts > result.recovery_timeouts_max) {
			result.recovery_timeouts_max = report.recovery_timeouts;
			result.slowest_seed = report.seed;
		}
		if (report.outcome != Outcome::Ok) {
			AddFailure({report.seed, report.outcome, report.checker, report.message});
		}
	}

	void AddFailure(FailedSeed failure) {
		result.failed.push_back(std::move(failure));
		if (options.failures_max != 0 && result.failed.size() >= options.failures_max) {
			shared->end_seed = 0;
		}
	}

	const BatchOptions &options;
	const uint32_t jobs;
	Shared *shared = nullptr;
	std::vector<Worker> workers;
	BatchResult result;
};

} // namespace

RunResult RunSeed(uint64_t seed, const RunOptions &run, bool check_replay) {
	Settings settings = DrawSettings(seed);
	RunResult result = Run(settings, run);
	if (check_replay) {
		RunOptions silent = run;
		silent.trace_out = nullptr;
		uint64_t again = Run(settings, silent).trace_hash;
		if (again != result.trace_hash) {
			result.outcome = Outcome::Correctness;
			result.checker = "replay";
			result.message = "two runs of one seed differ: trace hashes " + std::to_string(result.trace_hash) +
			                 " and " + std::to_string(again);
		}
	}
	return result;
}

BatchResult RunBatch(const BatchOptions &options) {
	return Gatherer(options).Run();
}

} // namespace sim
} // namespace quack
