//! Engines in one process over the real HTTP/2 transport (plain text on loopback) and the real segmented log.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "quack/node/raft_engine.hpp"
#include "quack/storage/segmented_log.hpp"

namespace quack {
namespace bench {

//! Positions of groups, and nothing that outlives the process.
class PositionsOnly : public node::StateMachine {
public:
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

protected:
	//! With the lock held.
	node::AppliedPosition &Advance(const node::CommittedEntry &committed) {
		auto &position = positions[committed.group];
		position.group = committed.group;
		position.index = committed.entry.index;
		position.term = committed.entry.term;
		return position;
	}

	mutable std::mutex lock;

private:
	std::map<raft::GroupId, node::AppliedPosition> positions;
};

template <class Machine>
struct BenchNode {
	node::RaftEngineConfig config;
	std::unique_ptr<storage::LogStore> log;
	std::unique_ptr<node::PeerGateway> gateway;
	std::unique_ptr<transport::Transport> transport;
	Machine state_machine;
	std::unique_ptr<node::RaftEngine> engine;
};

inline void Require(const Status &status, const char *what) {
	if (!status.IsOk()) {
		std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
		std::exit(1);
	}
}

inline uint16_t FreePort() {
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

template <class Machine>
void StartNode(BenchNode<Machine> &node, storage::FileSystem &files, const Clock &clock, uint16_t port) {
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

//! Nodes n0, n1, ... over loopback, their logs in directories of their own below `directory`; started.
template <class Machine>
std::vector<std::unique_ptr<BenchNode<Machine>>> StartNodes(size_t count, const std::string &directory,
                                                            storage::FileSystem &files, const Clock &clock) {
	std::vector<std::unique_ptr<BenchNode<Machine>>> nodes;
	std::vector<node::MemberConfig> members;
	for (size_t i = 0; i < count; i++) {
		members.push_back({"n" + std::to_string(i), 1, true, "127.0.0.1", FreePort(), 100});
	}
	for (auto &member : members) {
		auto node = std::make_unique<BenchNode<Machine>>();
		node->config.cluster_id = "bench";
		node->config.node_id = member.node_id;
		node->config.members = members;
		node->config.temp_dir = directory + "/" + member.node_id + "/incoming";
		node->config.log_dir = directory + "/" + member.node_id + "/log";
		StartNode(*node, files, clock, member.port);
		nodes.push_back(std::move(node));
	}
	return nodes;
}

} // namespace bench
} // namespace quack
