//! HTTP headers of the client side beside those of quack_message.hpp.
#pragma once

namespace quack {
namespace sql {

//! Request, on PREPARE only. "1": bind the statement and answer names and types with no rows and needs_more_fetch
//! false; execute nothing. The client uses it to plan statements that have effects and return rows (RETURNING,
//! nextval), for EXPLAIN and for PREPARE. A server that knows it answers with the same header.
constexpr const char *HEADER_DESCRIBE = "X-Quack-Describe";

//! Request, on PREPARE with a request id. "1": the statement was sent before under this id, and what became of it is
//! not known. The node answers only when the log has decided that id.
constexpr const char *HEADER_REPEAT = "X-Quack-Repeat";

} // namespace sql
} // namespace quack
