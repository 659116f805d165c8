//! The JSON that quack_node_start takes, checked in full before anything starts.
#pragma once

#include <string>
#include <vector>

#include "quack/common/log.hpp"
#include "quack/common/status.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/sql/server_context.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace sql {

struct NodeConfig {
	std::string cluster_id;
	std::string node_id;
	std::string data_dir;
	std::string advertised_host;
	std::string listen_host = "0.0.0.0";
	uint64_t port = 0;
	std::vector<node::MemberConfig> peers; //! this node included
	std::string token;                     //! never logged
	bool accept_client_certificates = false;
	transport::TlsFiles tls;
	bool plaintext = false;
	LogLevel log_level = LogLevel::Info;
	uint64_t election_timeout_ms = 500;
	uint64_t heartbeat_interval_ms = 75;
	uint64_t checkpoint_log_bytes = 16 * 1024 * 1024;
	uint64_t checkpoint_log_entries = 100 * 1000;
	uint64_t checkpoint_interval_ms = 60 * 1000;
	uint64_t checkpoint_idle_ms = 5 * 1000;
	uint64_t checkpoint_writer_patience_ms = 30 * 1000;
	uint64_t checkpoint_reader_patience_ms = 120 * 1000;
	uint64_t checksum_interval_ms = 10 * 60 * 1000; //! 0 = never
	uint64_t transaction_split_bytes = 8 * 1024 * 1024;
	uint64_t transaction_patience_ms = 60 * 1000;
	uint64_t log_tail_bytes = 64 * 1024 * 1024;
	uint64_t log_tail_entries = 1000 * 1000;
	uint64_t log_segment_bytes = 64 * 1024 * 1024;
	uint64_t log_cache_bytes = 16 * 1024 * 1024;
	uint64_t snapshot_bytes_per_second = 64 * 1024 * 1024; //! 0 = no limit
	uint64_t stop_timeout_ms = 10 * 1000;
	ServerLimits limits;
};

//! InvalidArgument: names the key, what was expected, what came. The token is in no message.
Result<NodeConfig> ParseNodeConfig(const std::string &json);

} // namespace sql
} // namespace quack
