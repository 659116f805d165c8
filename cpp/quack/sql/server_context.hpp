//! What the parts of the server share: the database, the replicated state behind it, and the limits. Plain data; the
//! NodeRuntime owns what the pointers name and outlives every session.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/common/limits.hpp"
#include "quack/node/consensus_engine.hpp"
#include "quack/sql/admission.hpp"
#include "quack/sql/contention.hpp"
#include "quack/sql/query_execution.hpp"

namespace quack {
namespace sql {

struct ServerLimits {
	ResultLimits result;
	AdmissionLimits admission;
	size_t sessions_max = 1024;
	size_t connections_max = 1024;
	//! Further ones, for requests that end work or tell about the node.
	size_t connections_reserve = 64;
	//! Statements that wait behind the running one, per session; past it Overloaded.
	size_t statement_queue_max = 64;
	//! Finished statements whose answers can be asked for again, per session.
	size_t executions_kept_max = 64;
	size_t stream_buffer_bytes_max = 64 * 1024 * 1024;
	size_t streams_max = 64; //! per session
	//! Holds any row that a table may hold.
	size_t request_bytes_max = ROW_BYTES_MAX + 48 * 1024 * 1024;
	uint64_t heartbeat_timeout_s_default = 60;
	uint64_t heartbeat_timeout_s_max = 24 * 3600;
	//! Sessions of version 1 have no heartbeat: they end after this long without a request.
	uint64_t v1_idle_timeout_s = 3600;
	//! A result that waits for a FETCH for so long is given up; its snapshot and memory are freed.
	uint64_t result_ttl_s = 3600;
	//! Server-side limit of one statement in milliseconds; 0 = none. A client's own deadline only shortens it.
	uint64_t statement_timeout_ms = 0;
	//! An autocommit statement that meets conflicts or schema changes is repeated for so long, or until its deadline
	//! when that comes first.
	uint64_t conflict_retry_ms_max = 60 * 1000;
	uint32_t failed_logins_burst = 50;
	uint32_t failed_logins_per_second = 10;
};

struct VoterAddress {
	std::string node_id;
	std::string host;
	uint16_t port = 0;
};

struct ServerContext {
	duckdb::DatabaseInstance *db = nullptr;
	//! Default catalog of sessions; empty = the instance's own.
	std::string catalog;
	std::string cluster_id;
	std::string node_id;
	catalog::ReplicatedDatabase *replica = nullptr;
	node::ConsensusEngine *engine = nullptr;
	ContentionQueue *contention = nullptr;
	Admission *admission = nullptr;
	//! Voters of the root group and node_id of its leader as known here, empty when unknown. Cheap; any thread.
	std::function<std::vector<VoterAddress>()> voters;
	std::function<std::string()> leader;
	ServerLimits limits;
};

} // namespace sql
} // namespace quack
