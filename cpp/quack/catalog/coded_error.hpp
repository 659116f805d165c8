//! A Status as the DuckDB exception that users see.
#pragma once

#include "duckdb.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! Key of the stable error code in an error's extra info; values are ErrorCodeName() texts, e.g. "conflict".
constexpr const char *EXTRA_INFO_CODE = "quack_code";

//! The DuckDB exception type under which a code is shown.
duckdb::ExceptionType ExceptionTypeOf(ErrorCode code);

//! An exception that carries {"quack_code": ErrorCodeName(code)}.
[[noreturn]] void ThrowCoded(const Status &status);

} // namespace catalog
} // namespace quack
