//! How many proposals per second engines commit, and how long each takes: N engines in one process, over the real
//! HTTP/2 transport (plain text on loopback) and the real segmented log. Prints one JSON object.
//! Usage: engine_bench [nodes=3] [proposers=16] [bytes=256] [seconds=5] [through=leader|follower] [dir=/tmp]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "quack/common/log.hpp"
#include "quack/node/raft_engine.hpp"
#include "quack/storage/segmented_log.hpp"

using namespace quack;

namespace {

//! Keeps positions and sizes, not the data.
class CountingStateMachine final : public node::StateMachine {
public:
	Status Apply(const std::vector<node::CommittedEntry> &entries) override {
		std::lock_guard<std::mutex> guard(lock);
		for (auto &committed : entries) {
			auto &position = positions[committed.group];
			position.group = committed.group;
			position.index = committed.entry.index;
			position.term = committed.entry.term;
			bytes += committed.entry.payload->size();
		}
		apply_count++;
		return Status::Ok();
	}
	std::vector<node::AppliedPosition> Applied() const override {
		std::lock_guard<std::mutex> guard(lock);
		std::vector<node::AppliedPosition> result;
		for (auto &entry : positions) {
			result.push_back(entry.second);
		}
		return result;
	}
	std::vector<node::AppliedPosition> Durable() const override {
		return Applied();
	}
	Status Checkpoint() override {
		return Status::Ok();
	}
	Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() override {
		return Status(ErrorCode::NotSupported, "the bench has no snapshots");
	}
	std::vector<std::unique_ptr<SnapshotImage>> RetainedSnapshots() override {
		return {};
	}
	Status InstallSnapshot(const std::string &path) override {
		return Status(ErrorCode::NotSupported, "the bench has no snapshots: " + path);
	}
	uint64_t ApplyCount() const {
		std::lock_guard<std::mutex> guard(lock);
		return apply_count;
	}

private:
	mutable std::mutex lock;
	std::map<raft::GroupId, node::AppliedPosition> positions;
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

struct BenchNode {
	node::RaftEngineConfig config;
	std::unique_ptr<storage::LogStore> log;
	std::unique_ptr<node::PeerGateway> gateway;
	std::unique_ptr<transport::Transport> transport;
	CountingStateMachine state_machine;
	std::unique_ptr<node::RaftEngine> engine;
};

void Require(const Status &status, const char *what) {
	if (!status.IsOk()) {
		std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
		std::exit(1);
	}
}

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

uint16_t FreePort() {
	auto listener = socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in address {};
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	socklen_t size = sizeof(address);
	if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0 ||
	    getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size) != 0) {
		std::perror("free port");
		std::exit(1);
	}
	close(listener);
	return ntohs(address.sin_port);
}

void StartNode(BenchNode &node, storage::FileSystem &files, const Clock &clock, uint16_t port) {
	std::filesystem::create_directories(node.config.log_dir);
	storage::LogOptions log_options;
	log_options.directory = node.config.log_dir;
	auto log = storage::OpenSegmentedLog(files, log_options);
	Require(log.IsOk() ? Status::Ok() : log.GetStatus(), "log");
	node.log = std::move(log.Value());
	node.gateway = std::make_unique<node::PeerGateway>(node.config);
	transport::TransportConfig transport_config;
	transport_config.node_id = node.config.node_id;
	transport_config.listen_host = "127.0.0.1";
	transport_config.listen_port = port;
	transport_config.plaintext = true;
	node.transport = transport::MakeHttp2Transport(transport_config, *node.gateway);
	node.engine = std::make_unique<node::RaftEngine>(node.config, *node.log, *node.transport, *node.gateway,
	                                                 node.state_machine, clock);
	Require(node.engine->Start(), "engine");
}

size_t WaitForLeader(std::vector<std::unique_ptr<BenchNode>> &nodes) {
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
	std::vector<std::unique_ptr<BenchNode>> nodes;
	std::vector<node::MemberConfig> members;
	for (size_t i = 0; i < options.nodes; i++) {
		members.push_back({"n" + std::to_string(i), 1, true, "127.0.0.1", FreePort(), 100});
	}
	for (auto &member : members) {
		auto node = std::make_unique<BenchNode>();
		node->config.cluster_id = "bench";
		node->config.node_id = member.node_id;
		node->config.members = members;
		node->config.temp_dir = directory + "/" + member.node_id + "/incoming";
		node->config.log_dir = directory + "/" + member.node_id + "/log";
		StartNode(*node, files, clock, member.port);
		nodes.push_back(std::move(node));
	}
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
