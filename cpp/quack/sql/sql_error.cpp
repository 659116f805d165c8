#include "quack/sql/sql_error.hpp"

#include "duckdb/common/exception.hpp"

namespace quack {
namespace sql {

using duckdb::ExceptionType;

ExceptionType ExceptionTypeOf(ErrorCode code) {
	switch (code) {
	case ErrorCode::Conflict:
	case ErrorCode::SchemaChanged:
	case ErrorCode::OutcomeUnknown:
		return ExceptionType::TRANSACTION;
	case ErrorCode::Constraint:
		return ExceptionType::CONSTRAINT;
	case ErrorCode::Unavailable:
	case ErrorCode::NotLeader:
	case ErrorCode::Degraded:
		return ExceptionType::CONNECTION;
	case ErrorCode::DeadlineExceeded:
	case ErrorCode::Cancelled:
		return ExceptionType::INTERRUPT;
	case ErrorCode::Overloaded:
		return ExceptionType::OUT_OF_MEMORY;
	case ErrorCode::Unauthorized:
		return ExceptionType::PERMISSION;
	case ErrorCode::NotSupported:
		return ExceptionType::NOT_IMPLEMENTED;
	case ErrorCode::Corruption:
		return ExceptionType::DATA_CORRUPTION;
	case ErrorCode::IoError:
	case ErrorCode::DiskFull:
		return ExceptionType::IO;
	case ErrorCode::NotFound:
	case ErrorCode::AlreadyExists:
		return ExceptionType::CATALOG;
	case ErrorCode::Incompatible:
		return ExceptionType::INVALID_CONFIGURATION;
	default:
		return ExceptionType::INVALID_INPUT;
	}
}

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

void ThrowCoded(const Status &status) {
	duckdb::unordered_map<std::string, std::string> extra_info;
	extra_info[EXTRA_INFO_CODE] = ErrorCodeName(status.Code());
	throw duckdb::Exception(extra_info, ExceptionTypeOf(status.Code()), status.Message());
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
