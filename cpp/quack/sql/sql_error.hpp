//! From Status and DuckDB errors to what a client sees: exception type, text, and a stable code in the extra info.
#pragma once

#include <string>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/common/error_data.hpp"
#include "quack/catalog/coded_error.hpp"
#include "quack/common/status.hpp"
#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

using catalog::ExceptionTypeOf;
using catalog::ThrowCoded;

//! One row of the documented table (python/quack/ERRORS.md, quack_error_codes()).
struct ErrorClass {
	ErrorCode code;
	//! What may be done about it: statement (the same statement may be sent again), transaction (run the transaction
	//! again), ask (quack_transaction_outcome), no (nothing changes by repeating).
	const char *retry;
};

//! Every code that reaches users, in the order of the table.
const std::vector<ErrorClass> &ErrorClasses();

//! An answer for a failure below DuckDB; carries {"quack_code": ErrorCodeName(code)}.
ErrorResponse CodedError(const Status &status);

//! Overloaded, with the time after which it may be worth trying again.
[[noreturn]] void ThrowOverloaded(const Status &status, uint64_t retry_after_ms);

//! " [quack:code]": programs that see only an error's text find the stable code at its end.
std::string CodeTag(ErrorCode code);

//! The value of "quack_code" in an error, empty when it has none.
std::string CodeOf(const ErrorResponse &error);

} // namespace sql
} // namespace quack
