//! APPEND_REQUEST of protocol version 1: one chunk into one table, in the session's transaction state.
#pragma once

#include "quack/sql/query_execution.hpp"
#include "quack/sql/session.hpp"

namespace quack {
namespace sql {

//! Called on the session's worker. Never throws: the execution ends Finished or Failed.
void RunAppend(Session &session, QueryExecution &execution, AppendRequest &request);

} // namespace sql
} // namespace quack
