#include "quack/sql/node_config.hpp"

#include <set>

#include "yyjson.hpp"

namespace quack {
namespace sql {

namespace json = duckdb_yyjson;

namespace {

constexpr uint64_t BYTES_MAX = 1ULL << 40;
constexpr uint64_t ENTRIES_MAX = 1ULL << 40;
constexpr uint64_t MS_MAX = 24ULL * 3600 * 1000;

Status Bad(const std::string &key, const std::string &expected, const std::string &got) {
	return Status(ErrorCode::InvalidArgument,
	              "quack_node_start: key '" + key + "': expected " + expected + ", got " + got);
}

//! What a value is, without saying a string: it could be a secret.
std::string KindOf(json::yyjson_val *value) {
	if (json::yyjson_is_uint(value)) {
		return std::to_string(json::yyjson_get_uint(value));
	}
	if (json::yyjson_is_sint(value)) {
		return std::to_string(json::yyjson_get_sint(value));
	}
	return json::yyjson_get_type_desc(value);
}

//! Reads the keys of one JSON object into fields; then Finish names what nobody asked for or what is missing.
class ObjectReader {
public:
	ObjectReader(json::yyjson_val *object_p, std::string prefix_p) : object(object_p), prefix(std::move(prefix_p)) {
	}

	void String(const char *key, std::string &out, bool required) {
		auto *value = Get(key, required);
		if (value == nullptr) {
			return;
		}
		if (!json::yyjson_is_str(value)) {
			Fail(key, "a string", KindOf(value));
			return;
		}
		out.assign(json::yyjson_get_str(value), json::yyjson_get_len(value));
		if (required && out.empty()) {
			Fail(key, "a string that is not empty", "an empty one");
		}
	}

	void Number(const char *key, uint64_t &out, uint64_t min, uint64_t max, bool required = false) {
		auto *value = Get(key, required);
		if (value == nullptr) {
			return;
		}
		if (!json::yyjson_is_uint(value) || json::yyjson_get_uint(value) < min || json::yyjson_get_uint(value) > max) {
			Fail(key, "a whole number from " + std::to_string(min) + " to " + std::to_string(max), KindOf(value));
			return;
		}
		out = json::yyjson_get_uint(value);
	}

	void Size(const char *key, size_t &out, uint64_t min, uint64_t max) {
		uint64_t value = out;
		Number(key, value, min, max);
		out = static_cast<size_t>(value);
	}

	void Bool(const char *key, bool &out) {
		auto *value = Get(key, false);
		if (value == nullptr) {
			return;
		}
		if (!json::yyjson_is_bool(value)) {
			Fail(key, "true or false", KindOf(value));
			return;
		}
		out = json::yyjson_get_bool(value);
	}

	//! Null when absent; the caller checks its type.
	json::yyjson_val *Get(const char *key, bool required) {
		known.insert(key);
		auto *value = json::yyjson_obj_get(object, key);
		if (value == nullptr && required) {
			Fail(key, "a value", "nothing: the key is missing");
		}
		return value;
	}

	void Fail(const std::string &key, const std::string &expected, const std::string &got) {
		if (failure.IsOk()) {
			failure = Bad(prefix + key, expected, got);
		}
	}

	Status Finish() {
		size_t index;
		size_t count;
		json::yyjson_val *key;
		json::yyjson_val *value;
		yyjson_obj_foreach(object, index, count, key, value) {
			std::string name(json::yyjson_get_str(key), json::yyjson_get_len(key));
			if (known.count(name) == 0) {
				std::string list;
				for (auto &entry : known) {
					list += (list.empty() ? "" : ", ") + entry;
				}
				Fail(name, "one of " + list, "an unknown key; remove it or mend the spelling");
			}
		}
		return failure;
	}

private:
	json::yyjson_val *object;
	std::string prefix;
	std::set<std::string> known;
	Status failure;
};

Status ReadPeer(json::yyjson_val *value, const std::string &prefix, node::MemberConfig &peer) {
	if (!json::yyjson_is_obj(value)) {
		return Bad(prefix, "an object", KindOf(value));
	}
	ObjectReader reader(value, prefix + ".");
	std::string role = "voter";
	uint64_t port = 0;
	uint64_t priority = peer.election_priority;
	reader.String("node_id", peer.node_id, true);
	reader.String("role", role, false);
	reader.String("host", peer.host, true);
	reader.Number("port", port, 1, 65535, true);
	reader.Number("election_priority", priority, 0, 1000);
	if (role != "voter" && role != "learner") {
		reader.Fail("role", "voter or learner", "'" + role + "'");
	}
	peer.port = static_cast<uint16_t>(port);
	peer.election_priority = static_cast<uint32_t>(priority);
	peer.voter = role == "voter";
	return reader.Finish();
}

Status ReadPeers(ObjectReader &reader, NodeConfig &config) {
	auto *list = reader.Get("peers", true);
	if (list == nullptr) {
		return Status::Ok();
	}
	if (!json::yyjson_is_arr(list) || json::yyjson_arr_size(list) == 0) {
		return Bad("peers", "a list of all members, this node included", KindOf(list));
	}
	size_t index;
	size_t count;
	json::yyjson_val *value;
	yyjson_arr_foreach(list, index, count, value) {
		node::MemberConfig peer;
		auto status = ReadPeer(value, "peers[" + std::to_string(index) + "]", peer);
		if (!status.IsOk()) {
			return status;
		}
		config.peers.push_back(std::move(peer));
	}
	return Status::Ok();
}

Status ReadTls(ObjectReader &reader, NodeConfig &config) {
	auto *object = reader.Get("tls", false);
	if (object == nullptr || json::yyjson_is_null(object)) {
		if (!config.plaintext) {
			return Bad("tls", "cert_file, key_file and ca_file, or plaintext true for a loopback cluster", "nothing");
		}
		return Status::Ok();
	}
	if (!json::yyjson_is_obj(object)) {
		return Bad("tls", "an object", KindOf(object));
	}
	if (config.plaintext) {
		return Bad("tls", "nothing when plaintext is true", "an object");
	}
	ObjectReader files(object, "tls.");
	files.String("cert_file", config.tls.cert_file, true);
	files.String("key_file", config.tls.key_file, true);
	files.String("ca_file", config.tls.ca_file, true);
	return files.Finish();
}

void ReadLimits(ObjectReader &reader, NodeConfig &config) {
	auto &limits = config.limits;
	reader.Size("sessions_max", limits.sessions_max, 1, 100000);
	reader.Size("connections_max", limits.connections_max, 1, 100000);
	reader.Size("connections_reserve", limits.connections_reserve, 0, 100000);
	reader.Number("statements_max", limits.admission.statements_max, 1, 1000000);
	reader.Number("statements_reserve", limits.admission.statements_reserve, 0, 1000000);
	reader.Number("buffer_bytes_max", limits.admission.buffer_bytes_max, 1024 * 1024, BYTES_MAX);
	reader.Number("conflict_retry_ms_max", limits.conflict_retry_ms_max, 0, MS_MAX);
	reader.Size("request_bytes_max", limits.request_bytes_max, 64 * 1024, BYTES_MAX);
	reader.Size("stream_buffer_bytes_max", limits.stream_buffer_bytes_max, 64 * 1024, BYTES_MAX);
	reader.Number("result_batch_bytes", limits.result.batch_bytes, 1024, BYTES_MAX);
	reader.Number("result_buffer_bytes_max", limits.result.buffer_bytes_max, 64 * 1024, BYTES_MAX);
	reader.Number("result_spool_bytes_max", limits.result.spool_bytes_max, 64 * 1024, BYTES_MAX);
	reader.Number("session_heartbeat_timeout_s", limits.heartbeat_timeout_s_default, 1, MS_MAX / 1000);
	reader.Number("session_heartbeat_timeout_s_max", limits.heartbeat_timeout_s_max, 1, MS_MAX / 1000);
	reader.Number("result_ttl_s", limits.result_ttl_s, 1, MS_MAX);
	reader.Number("statement_timeout_ms", limits.statement_timeout_ms, 0, MS_MAX);
	uint64_t burst = limits.failed_logins_burst;
	uint64_t rate = limits.failed_logins_per_second;
	reader.Number("failed_logins_burst", burst, 1, 1000000);
	reader.Number("failed_logins_per_second", rate, 1, 1000000);
	limits.failed_logins_burst = static_cast<uint32_t>(burst);
	limits.failed_logins_per_second = static_cast<uint32_t>(rate);
	reader.Number("checkpoint_log_bytes", config.checkpoint_log_bytes, 64 * 1024, BYTES_MAX);
	reader.Number("checkpoint_log_entries", config.checkpoint_log_entries, 1000, ENTRIES_MAX);
	reader.Number("checkpoint_interval_ms", config.checkpoint_interval_ms, 100, MS_MAX);
	reader.Number("checkpoint_idle_ms", config.checkpoint_idle_ms, 100, MS_MAX);
	reader.Number("checkpoint_writer_patience_ms", config.checkpoint_writer_patience_ms, 100, MS_MAX);
	reader.Number("checkpoint_reader_patience_ms", config.checkpoint_reader_patience_ms, 100, MS_MAX);
	reader.Number("checksum_interval_ms", config.checksum_interval_ms, 0, MS_MAX);
	reader.Number("transaction_split_bytes", config.transaction_split_bytes, 16 * 1024, 64 * 1024 * 1024);
	reader.Number("transaction_patience_ms", config.transaction_patience_ms, 100, MS_MAX);
	reader.Number("log_tail_bytes", config.log_tail_bytes, 0, BYTES_MAX);
	reader.Number("log_tail_entries", config.log_tail_entries, 0, ENTRIES_MAX);
	reader.Number("log_segment_bytes", config.log_segment_bytes, 64 * 1024, BYTES_MAX);
	reader.Number("log_cache_bytes", config.log_cache_bytes, 64 * 1024, BYTES_MAX);
	reader.Number("snapshot_bytes_per_second", config.snapshot_bytes_per_second, 0, BYTES_MAX);
	reader.Number("stop_timeout_ms", config.stop_timeout_ms, 1, MS_MAX);
}

void ReadLogLevel(ObjectReader &reader, NodeConfig &config) {
	std::string level = "info";
	reader.String("log_level", level, false);
	static const std::vector<std::string> NAMES = {"debug", "info", "warn", "error"};
	for (size_t i = 0; i < NAMES.size(); i++) {
		if (NAMES[i] == level) {
			config.log_level = static_cast<LogLevel>(i);
			return;
		}
	}
	reader.Fail("log_level", "debug, info, warn or error", "'" + level + "'");
}

Status Check(const NodeConfig &config) {
	bool found = false;
	std::string names;
	for (auto &peer : config.peers) {
		found = found || peer.node_id == config.node_id;
		names += (names.empty() ? "" : ", ") + peer.node_id;
	}
	if (!found) {
		return Bad("peers", "an entry for this node, '" + config.node_id + "'", "only " + names);
	}
	if (config.token.empty() && !config.accept_client_certificates) {
		return Bad("token", "a token of at least 4 characters, or accept_client_certificates true", "nothing");
	}
	if (!config.token.empty() && config.token.size() < 4) {
		return Bad("token", "at least 4 characters", "fewer");
	}
	if (config.heartbeat_interval_ms * 3 > config.election_timeout_ms) {
		return Bad("heartbeat_interval_ms",
		           "at most a third of election_timeout_ms (" + std::to_string(config.election_timeout_ms) + ")",
		           std::to_string(config.heartbeat_interval_ms));
	}
	return Status::Ok();
}

Status ReadAll(json::yyjson_val *root, NodeConfig &config) {
	ObjectReader reader(root, "");
	reader.String("cluster_id", config.cluster_id, true);
	reader.String("node_id", config.node_id, true);
	reader.String("data_dir", config.data_dir, true);
	reader.String("advertised_host", config.advertised_host, false);
	reader.String("listen_host", config.listen_host, false);
	reader.Number("port", config.port, 0, 65535, true);
	reader.String("token", config.token, false);
	reader.Bool("accept_client_certificates", config.accept_client_certificates);
	reader.Bool("plaintext", config.plaintext);
	reader.Number("election_timeout_ms", config.election_timeout_ms, 50, 60 * 1000);
	reader.Number("heartbeat_interval_ms", config.heartbeat_interval_ms, 5, 20 * 1000);
	ReadLogLevel(reader, config);
	ReadLimits(reader, config);
	for (auto status : {ReadPeers(reader, config), ReadTls(reader, config), reader.Finish()}) {
		if (!status.IsOk()) {
			return status;
		}
	}
	return Check(config);
}

} // namespace

Result<NodeConfig> ParseNodeConfig(const std::string &text) {
	json::yyjson_read_err error;
	auto *document =
	    json::yyjson_read_opts(const_cast<char *>(text.data()), text.size(), json::YYJSON_READ_NOFLAG, nullptr, &error);
	if (document == nullptr) {
		return Status(ErrorCode::InvalidArgument, std::string("quack_node_start: the parameter is no JSON: ") +
		                                              error.msg + " at byte " + std::to_string(error.pos));
	}
	NodeConfig config;
	auto *root = json::yyjson_doc_get_root(document);
	auto status = json::yyjson_is_obj(root)
	                  ? ReadAll(root, config)
	                  : Status(ErrorCode::InvalidArgument, "quack_node_start: expected one JSON object");
	json::yyjson_doc_free(document);
	if (!status.IsOk()) {
		return status;
	}
	return config;
}

} // namespace sql
} // namespace quack
