#include "quack/catalog/coded_error.hpp"

#include "duckdb/common/exception.hpp"

namespace quack {
namespace catalog {

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

void ThrowCoded(const Status &status) {
	duckdb::unordered_map<std::string, std::string> extra_info;
	extra_info[EXTRA_INFO_CODE] = ErrorCodeName(status.Code());
	throw duckdb::Exception(extra_info, ExceptionTypeOf(status.Code()), status.Message());
}

} // namespace catalog
} // namespace quack
