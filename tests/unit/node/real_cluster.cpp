#include "unit/node/real_cluster.hpp"

#include <arpa/inet.h>
#include <filesystem>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <doctest/doctest.h>

namespace quack {
namespace test {

uint16_t FreePort() {
	auto listener = socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in address {};
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	REQUIRE(bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)) == 0);
	socklen_t size = sizeof(address);
	REQUIRE(getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size) == 0);
	close(listener);
	return ntohs(address.sin_port);
}

RealCluster::RealCluster(size_t count, const Adjust &adjust) : TestCluster(count, adjust) {
	std::vector<uint16_t> ports;
	for (size_t i = 0; i < count; i++) {
		ports.push_back(FreePort());
	}
	for (auto &node : nodes) {
		for (auto &member : node->config.members) {
			member.port = ports[std::stoul(member.node_id.substr(1))];
		}
	}
}

RealCluster::~RealCluster() {
	for (size_t i = 0; i < nodes.size(); i++) {
		Kill(i);
		nodes[i]->log.reset(); // before `files`, which it uses
	}
}

std::unique_ptr<storage::LogStore> RealCluster::OpenLog(TestNode &node) {
	node.log.reset(); // the lock file: one log at a time
	std::filesystem::create_directories(node.config.log_dir);
	storage::LogOptions options;
	options.directory = node.config.log_dir;
	options.segment_bytes = 1 << 20;
	auto log = storage::OpenSegmentedLog(files, options);
	REQUIRE_MESSAGE(log.IsOk(), log.GetStatus().ToString());
	return std::move(log.Value());
}

std::unique_ptr<transport::Transport> RealCluster::MakeTransport(TestNode &node) {
	transport::TransportConfig config;
	config.node_id = node.name;
	config.listen_host = "127.0.0.1";
	for (auto &member : node.config.members) {
		config.listen_port = member.node_id == node.name ? member.port : config.listen_port;
	}
	config.plaintext = true;
	return transport::MakeHttp2Transport(config, *node.gateway);
}

} // namespace test
} // namespace quack
