//! Where and how a client reaches a cluster: parsed from the ATTACH path, its options and a secret. Pure data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "duckdb.hpp"

namespace duckdb {
struct AttachOptions;
}

namespace quack {
namespace sql {

struct RemoteEndpoint {
	std::string host; //! name or address, without brackets
	uint16_t port = 9494;

	//! "host:port", an IPv6 address in brackets.
	std::string ToString() const;
	bool IsLoopback() const;
	bool operator==(const RemoteEndpoint &other) const {
		return port == other.port && host == other.host;
	}
};

struct RemoteOptions {
	std::vector<RemoteEndpoint> hosts; //! never empty, tried in this order
	std::string token;                 //! secret: never printed
	std::string consistency;           //! "eventual", "session" or "linearizable"
	std::string cert_file;             //! client certificate and key, both or none
	std::string key_file;
	std::string client_ca_file; //! CA that signs the nodes' certificates; empty = the system's CAs
	std::vector<std::string> server_names;
	bool use_tls = true;
	bool read_only = false;
	uint64_t request_timeout_ms = 0; //! 0 = the setting quack_request_timeout_ms
};

//! Splits "quack:h1:p1,h2:p2" (also "quack://", "quack:[::1]:1", no scheme). Throws InvalidInputException naming the
//! part.
std::vector<RemoteEndpoint> ParseRemoteEndpoints(const std::string &path);

//! Reads and removes our options (so that the token is not shown by duckdb_databases()); any other option is refused
//! with DuckDB's own "Unrecognized option" error. Falls back to the secret for the token.
RemoteOptions ParseRemoteOptions(duckdb::ClientContext &context, const std::string &path,
                                 duckdb::AttachOptions &options);

//! Registers the secret type `quack` with its provider `config`.
void RegisterRemoteSecret(duckdb::ExtensionLoader &loader);

//! The setting that bounds one statement with all its retries.
constexpr const char *SETTING_REQUEST_TIMEOUT_MS = "quack_request_timeout_ms";
constexpr uint64_t DEFAULT_REQUEST_TIMEOUT_MS = 30000;
//! The setting that bounds how long a statement of any kind may run; 0 = as long as its node lives.
constexpr const char *SETTING_STATEMENT_TIMEOUT_MS = "quack_statement_timeout_ms";

} // namespace sql
} // namespace quack
