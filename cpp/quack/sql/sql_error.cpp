#include "quack/sql/sql_error.hpp"

#include "duckdb/common/exception.hpp"

namespace quack {
namespace sql {

const std::vector<ErrorClass> &ErrorClasses() {
	static const std::vector<ErrorClass> CLASSES = {{ErrorCode::Conflict, "transaction"},
	                                                {ErrorCode::SchemaChanged, "transaction"},
	                                                {ErrorCode::Constraint, "no"},
	                                                {ErrorCode::OutcomeUnknown, "ask"},
	                                                {ErrorCode::Unavailable, "statement"},
	                                                {ErrorCode::Overloaded, "statement"},
	                                                {ErrorCode::DeadlineExceeded, "statement"},
	                                                {ErrorCode::Cancelled, "statement"},
	                                                {ErrorCode::Degraded, "statement"},
	                                                {ErrorCode::DiskFull, "statement"},
	                                                {ErrorCode::Unauthorized, "no"},
	                                                {ErrorCode::Incompatible, "no"},
	                                                {ErrorCode::NotSupported, "no"},
	                                                {ErrorCode::InvalidArgument, "no"},
	                                                {ErrorCode::NotFound, "no"},
	                                                {ErrorCode::AlreadyExists, "no"},
	                                                {ErrorCode::IoError, "no"},
	                                                {ErrorCode::Corruption, "no"},
	                                                {ErrorCode::Internal, "no"}};
	return CLASSES;
}

ErrorResponse CodedError(const Status &status) {
	ErrorResponse response;
	response.message = status.Message();
	response.exception_type = duckdb::Exception::ExceptionTypeToString(ExceptionTypeOf(status.Code()));
	response.extra_info.emplace_back(EXTRA_INFO_CODE, ErrorCodeName(status.Code()));
	return response;
}

void ThrowOverloaded(const Status &status, uint64_t retry_after_ms) {
	duckdb::unordered_map<std::string, std::string> extra_info;
	extra_info[EXTRA_INFO_CODE] = ErrorCodeName(status.Code());
	extra_info[EXTRA_INFO_RETRY_AFTER_MS] = std::to_string(retry_after_ms);
	throw duckdb::Exception(extra_info, ExceptionTypeOf(status.Code()), status.Message());
}

std::string CodeTag(ErrorCode code) {
	return std::string(" [quack:") + ErrorCodeName(code) + "]";
}

std::string CodeOf(const ErrorResponse &error) {
	for (auto &entry : error.extra_info) {
		if (entry.first == EXTRA_INFO_CODE) {
			return entry.second;
		}
	}
	return std::string();
}

} // namespace sql
} // namespace quack
