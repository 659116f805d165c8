//! Runs one statement on its session's connection and fills its QueryExecution; retries what may be retried.
#pragma once

#include "quack/sql/attempt_walk.hpp"
#include "quack/sql/query_execution.hpp"
#include "quack/sql/session.hpp"

namespace quack {
namespace sql {

//! Called on the session's worker. Never throws: the execution ends Finished or Failed.
void RunStatement(Session &session, QueryExecution &execution);

//! Sets request id, deadline, consistency and floor of the session for one attempt.
void PrepareAttempt(Session &session, const StatementOptions &options, const AttemptWalk &walk);

//! What the client sees of a failed attempt: the typed status of the commit where there is one, else DuckDB's error.
ErrorResponse ExplainFailure(Session &session, const QueryExecution &execution, const duckdb::ErrorData &error,
                             const catalog::RequestId &request_id);

} // namespace sql
} // namespace quack
