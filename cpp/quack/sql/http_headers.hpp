//! HTTP headers of quack-duckdb beside the Quack protocol: everything of ours travels here, never in message fields, so
//! that stock clients and servers interoperate. Values are ASCII; an absent header has the meaning "not told".
#pragma once

namespace quack {
namespace sql {
namespace header {

//! Request. 32 hex digits chosen by the client per autocommit statement or COMMIT. The server applies each id at most
//! once within its window and answers a repeat with the first outcome.
constexpr const char *REQUEST_ID = "X-Quack-Request-Id";
//! Request. "eventual", "session" or "linearizable"; absent = session.
constexpr const char *CONSISTENCY = "X-Quack-Consistency";
//! Request. Milliseconds left of the client's end-to-end deadline, decimal.
constexpr const char *TIMEOUT_MS = "X-Quack-Timeout-Ms";
//! Request, on PREPARE only. "1": bind the statement, answer names and types with no rows, execute nothing.
constexpr const char *DESCRIBE = "X-Quack-Describe";
//! Request and reply. "group:index[,group:index…]": in a reply the applied vector the answer reflects (after a write:
//! includes it); in a request what the session has seen, so that 'session' reads hold across nodes.
constexpr const char *POSITION = "X-Quack-Position";
//! Reply, always. Decimal; changes whenever the replicated schema changes, equal on all nodes at the same position.
constexpr const char *CATALOG_VERSION = "X-Quack-Catalog-Version";
//! Reply. "node_id=host:port[,node_id=host:port…]": where clients reach the voters.
constexpr const char *VOTERS = "X-Quack-Voters";
//! Reply. Id of the answering node.
constexpr const char *NODE_ID = "X-Quack-Node-Id";
//! Reply beside ERROR_RESPONSE. ErrorCodeName() of the failure. For "unavailable", "not_leader", "overloaded",
//! "deadline_exceeded", "degraded" and "outcome_unknown" the client may send the same request id again, here or to
//! another node; "conflict" and "schema_changed" are retryable by the application; all others are final.
constexpr const char *ERROR_CODE = "X-Quack-Error-Code";

} // namespace header
} // namespace sql
} // namespace quack
