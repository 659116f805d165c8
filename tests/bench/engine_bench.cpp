//! How many proposals per second engines commit, and how long each takes: N engines in one process, over the real
//! HTTP/2 transport (plain text on loopback) and the real segmented log. Prints one JSON object.
//! Usage: engine_bench [nodes=3] [proposers=16] [bytes=256] [seconds=5] [through=leader|follower] [dir=/tmp]
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "bench/bench_cluster.hpp"
#include "quack/common/log.hpp"

using namespace quack;
using namespace quack::bench;

namespace {

//! Keeps positions and sizes, not the data.
class CountingStateMachine final : public PositionsOnly {
public:
	Status Apply(const std::vector<node::CommittedEntry> &entries) override {
		std::lock_guard<std::mutex> guard(lock);
		for (auto &committed : entries) {
			Advance(committed);
			bytes += committed.entry.payload->size();
		}
		apply_count++;
		return Status::Ok();
	}
	uint64_t ApplyCount() const {
		std::lock_guard<std::mutex> guard(lock);
		return apply_count;
	}

private:
	uint64_t bytes = 0;
	uint64_t apply_count = 0;
};

struct Options {
	size_t nodes = 3;
	size_t proposers = 16;
	size_t bytes = 256;
	double seconds = 5;
	std::string through = "leader";
	std::string dir = std::filesystem::temp_directory_path().string();
};

Options ParseOptions(int count, char **arguments) {
	Options options;
	for (int i = 1; i < count; i++) {
		std::string argument = arguments[i];
		auto split = argument.find('=');
		auto key = argument.substr(0, split);
		auto value = split == std::string::npos ? std::string() : argument.substr(split + 1);
		if (key == "nodes") {
			options.nodes = std::stoul(value);
		} else if (key == "proposers") {
			options.proposers = std::stoul(value);
		} else if (key == "bytes") {
			options.bytes = std::stoul(value);
		} else if (key == "seconds") {
			options.seconds = std::stod(value);
		} else if (key == "through") {
			options.through = value;
		} else if (key == "dir") {
			options.dir = value;
		} else {
			std::fprintf(stderr, "unknown option '%s'\n", argument.c_str());
			std::exit(2);
		}
	}
	return options;
}

size_t WaitForLeader(std::vector<std::unique_ptr<BenchNode<CountingStateMachine>>> &nodes) {
	while (true) {
		for (size_t i = 0; i < nodes.size(); i++) {
			if (nodes[i]->engine->GetStatus()[0].linearizable_read_safe && nodes[i]->engine->GetStatus()[0].is_leader) {
				return i;
			}
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
}

//! Proposes one after the other until the deadline; returns the latencies of those that committed.
std::vector<MonotonicNs> RunProposer(node::RaftEngine &engine, const Clock &clock, size_t bytes, MonotonicNs deadline,
                                     std::atomic<uint64_t> &failed) {
	std::vector<MonotonicNs> latencies;
	std::mutex lock;
	std::condition_variable changed;
	auto payload = MakeSharedBytes(std::string(bytes, 'x'));
	while (clock.Now() < deadline) {
		auto begun = clock.Now();
		bool is_done = false;
		bool is_ok = false;
		engine.Propose(raft::ROOT_GROUP, payload, 10 * NS_PER_SECOND, [&](const node::ProposeOutcome &outcome) {
			std::lock_guard<std::mutex> guard(lock);
			is_done = true;
			is_ok = outcome.status.IsOk();
			changed.notify_one();
		});
		std::unique_lock<std::mutex> guard(lock);
		changed.wait(guard, [&is_done] { return is_done; });
		if (is_ok) {
			latencies.push_back(clock.Now() - begun);
		} else {
			failed++;
		}
	}
	return latencies;
}

} // namespace

int main(int count, char **arguments) {
	auto options = ParseOptions(count, arguments);
	SetLogSink([](LogLevel, const std::string &line) { std::fprintf(stderr, "%s\n", line.c_str()); }, LogLevel::Warn);
	SystemClock clock;
	storage::PosixFileSystem files;
	auto directory = options.dir + "/engine-bench-" + std::to_string(getpid());
	auto nodes = StartNodes<CountingStateMachine>(options.nodes, directory, files, clock);
	auto leader = WaitForLeader(nodes);
	auto entry = options.through == "follower" ? (leader + 1) % nodes.size() : leader;
	std::vector<std::thread> threads;
	std::vector<std::vector<MonotonicNs>> results(options.proposers);
	std::atomic<uint64_t> failed {0};
	auto syncs_before = nodes[leader]->log->GetStatus().sync_count;
	auto begun = clock.Now();
	auto deadline = begun + static_cast<MonotonicNs>(options.seconds * NS_PER_SECOND);
	for (size_t i = 0; i < options.proposers; i++) {
		threads.emplace_back(
		    [&, i] { results[i] = RunProposer(*nodes[entry]->engine, clock, options.bytes, deadline, failed); });
	}
	for (auto &thread : threads) {
		thread.join();
	}
	auto elapsed = static_cast<double>(clock.Now() - begun) / NS_PER_SECOND;
	std::vector<MonotonicNs> all;
	for (auto &result : results) {
		all.insert(all.end(), result.begin(), result.end());
	}
	std::sort(all.begin(), all.end());
	auto at = [&](double share) {
		return all.empty() ? 0.0 : static_cast<double>(all[static_cast<size_t>(share * (all.size() - 1))]) / 1000.0;
	};
	auto syncs = nodes[leader]->log->GetStatus().sync_count - syncs_before;
	auto applies = nodes[leader]->state_machine.ApplyCount();
	for (auto &node : nodes) {
		node->engine->Abort();
	}
	std::error_code ignored;
	std::filesystem::remove_all(directory, ignored);
	std::printf("{\"ok\":%s,\"nodes\":%zu,\"proposers\":%zu,\"bytes\":%zu,\"through\":\"%s\",\"committed\":%zu,"
	            "\"failed\":%llu,\"per_second\":%.0f,\"mb_per_second\":%.1f,\"p50_us\":%.0f,\"p99_us\":%.0f,"
	            "\"leader_syncs\":%llu,\"leader_applies\":%llu}\n",
	            failed.load() == 0 && !all.empty() ? "true" : "false", options.nodes, options.proposers, options.bytes,
	            options.through.c_str(), all.size(), static_cast<unsigned long long>(failed.load()),
	            static_cast<double>(all.size()) / elapsed,
	            static_cast<double>(all.size() * options.bytes) / elapsed / 1e6, at(0.5), at(0.99),
	            static_cast<unsigned long long>(syncs), static_cast<unsigned long long>(applies));
	return failed.load() == 0 && !all.empty() ? 0 : 1;
}
