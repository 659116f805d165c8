//! From Status and DuckDB errors to what a client sees: exception type, text, and a stable code in the extra info.
#pragma once

#include "duckdb.hpp"
#include "duckdb/common/error_data.hpp"
#include "quack/common/status.hpp"
#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

//! The DuckDB exception type under which a code is shown.
duckdb::ExceptionType ExceptionTypeOf(ErrorCode code);

//! An answer for a failure below DuckDB; carries {"quack_code": ErrorCodeName(code)}.
ErrorResponse CodedError(const Status &status);

//! The same as an exception.
[[noreturn]] void ThrowCoded(const Status &status);

//! The value of "quack_code" in an error, empty when it has none.
std::string CodeOf(const ErrorResponse &error);

} // namespace sql
} // namespace quack
