//! What groups cost that nobody uses: three nodes in one process, N groups besides the root group, all idle. Prints one
//! JSON object: the share of one core that a node takes, without the groups and with them, and the memory that the
//! process has gained while they were idle. Usage: groups_bench [groups=100] [seconds=20] [dir=/tmp]
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "bench/bench_cluster.hpp"
#include "quack/common/log.hpp"

using namespace quack;
using namespace quack::bench;

namespace {

constexpr size_t NODES = 3;

//! Knows positions, and groups by the payload "create <number>".
class GroupsMachine final : public PositionsOnly {
public:
	Status Apply(const std::vector<node::CommittedEntry> &entries) override {
		std::lock_guard<std::mutex> guard(lock);
		for (auto &committed : entries) {
			auto &entry = committed.entry;
			auto &position = Advance(committed);
			std::istringstream words(*entry.payload);
			std::string verb;
			node::GroupDefinition group;
			if (entry.type == raft::EntryType::Membership) {
				position.membership = raft::DecodeMembership(*entry.payload).Value();
			} else if (words >> verb >> group.id) {
				group.name = "group";
				groups.push_back(group);
			}
		}
		return Status::Ok();
	}
	std::vector<node::GroupDefinition> Groups() const override {
		std::lock_guard<std::mutex> guard(lock);
		return groups;
	}
	uint64_t GroupsVersion() const override {
		std::lock_guard<std::mutex> guard(lock);
		return groups.size();
	}

private:
	std::vector<node::GroupDefinition> groups;
};

using Nodes = std::vector<std::unique_ptr<BenchNode<GroupsMachine>>>;

double CpuSeconds() {
	rusage usage {};
	getrusage(RUSAGE_SELF, &usage);
	auto seconds = [](const timeval &time) {
		return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
	};
	return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentMegabytes() {
	std::ifstream file("/proc/self/statm");
	uint64_t total = 0;
	uint64_t resident = 0;
	file >> total >> resident;
	return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

//! Percent of one core, per node, while nothing is asked of anybody.
double IdleShare(double seconds) {
	auto before = CpuSeconds();
	std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
	return (CpuSeconds() - before) / seconds / NODES * 100;
}

//! Until every node has so many groups and knows the leader of each.
void WaitForLeaders(const Nodes &nodes, size_t count) {
	auto is_ready = [&] {
		for (auto &node : nodes) {
			size_t led = 0;
			for (auto &row : node->engine->GetStatus()) {
				led += row.leader_id.empty() ? 0 : 1;
			}
			if (led != count) {
				return false;
			}
		}
		return true;
	};
	while (!is_ready()) {
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
	}
}

//! Until every group has gone quiet.
void WaitForQuiet(const Nodes &nodes) {
	auto is_quiet = [&] {
		for (auto &node : nodes) {
			for (auto &row : node->engine->GetStatus()) {
				if (row.is_leader && row.lease != "quiet") {
					return false;
				}
			}
		}
		return true;
	};
	while (!is_quiet()) {
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
	}
}

void Propose(node::RaftEngine &engine, const std::string &payload) {
	std::promise<Status> promise;
	engine.Propose(raft::ROOT_GROUP, MakeSharedBytes(payload), 30 * NS_PER_SECOND,
	               [&promise](const node::ProposeOutcome &outcome) { promise.set_value(outcome.status); });
	Require(promise.get_future().get(), "propose");
}

} // namespace

int main(int count, char **arguments) {
	size_t groups = 100;
	double seconds = 20;
	auto directory = std::filesystem::temp_directory_path().string();
	for (int i = 1; i < count; i++) {
		std::string argument = arguments[i];
		auto split = argument.find('=');
		auto value = split == std::string::npos ? std::string() : argument.substr(split + 1);
		auto key = argument.substr(0, split);
		if (key == "groups") {
			groups = std::stoul(value);
		} else if (key == "seconds") {
			seconds = std::stod(value);
		} else if (key == "dir") {
			directory = value;
		} else {
			std::fprintf(stderr, "unknown option '%s'\n", argument.c_str());
			return 2;
		}
	}
	SetLogSink([](LogLevel, const std::string &line) { std::fprintf(stderr, "%s\n", line.c_str()); }, LogLevel::Error);
	directory += "/groups-bench-" + std::to_string(getpid());
	SystemClock clock;
	storage::PosixFileSystem files;
	auto nodes = StartNodes<GroupsMachine>(NODES, directory, files, clock);
	WaitForLeaders(nodes, 1);
	WaitForQuiet(nodes);
	auto share_before = IdleShare(seconds);
	auto begun = clock.Now();
	for (size_t group = 2; group < groups + 2; group++) {
		Propose(*nodes[0]->engine, "create " + std::to_string(group));
	}
	WaitForLeaders(nodes, groups + 1);
	auto created = static_cast<double>(clock.Now() - begun) / 1e6;
	// Until leaders have spread and checkpoints are over.
	IdleShare(seconds);
	WaitForQuiet(nodes);
	auto megabytes = ResidentMegabytes();
	auto share = IdleShare(seconds);
	auto growth = ResidentMegabytes() - megabytes;
	for (auto &node : nodes) {
		node->engine->Abort();
	}
	std::error_code ignored;
	std::filesystem::remove_all(directory, ignored);
	std::printf("{\"ok\":%s,\"groups\":%zu,\"created_ms\":%.0f,\"cpu_percent_without\":%.2f,\"cpu_percent\":%.2f,"
	            "\"resident_mb\":%.1f,\"growth_mb\":%.2f}\n",
	            share - share_before < 2 && growth < 1 ? "true" : "false", groups, created, share_before, share,
	            megabytes, growth);
	return 0;
}
