//! Runs one statement on its session's connection and fills its QueryExecution; retries what may be retried.
#pragma once

#include "quack/sql/query_execution.hpp"
#include "quack/sql/session.hpp"

namespace quack {
namespace sql {

//! Called on the session's worker. Never throws: the execution ends Finished or Failed.
void RunStatement(Session &session, QueryExecution &execution);

//! The id of the n-th attempt of a statement whose client chose `first` (attempt 0 is `first` itself). The same on
//! every node, so that whoever repeats the statement walks the same ids.
catalog::RequestId AttemptId(const catalog::RequestId &first, uint32_t attempt);

//! Sets request id, deadline, consistency and floor of the session for one attempt. Returns the
//! id in force.
catalog::RequestId PrepareAttempt(Session &session, const StatementOptions &options, uint32_t attempt);

//! What the client sees of a failed attempt: the typed status of the commit where there is one, else DuckDB's error.
ErrorResponse ExplainFailure(Session &session, const QueryExecution &execution, const duckdb::ErrorData &error,
                             const catalog::RequestId &request_id);

} // namespace sql
} // namespace quack
