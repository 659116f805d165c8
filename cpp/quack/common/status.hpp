//! Expected failures as values. Exceptions never cross the layers below `catalog`; a broken invariant aborts through
//! QUACK_CHECK (check.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "quack/common/check.hpp"

namespace quack {

//! Every failure class of the layers below DuckDB. The numeric values travel on the wire: append only, never renumber.
enum class ErrorCode : uint8_t {
	Ok = 0,
	InvalidArgument = 1,   //! the caller passed something no retry can mend
	NotFound = 2,          //! the named object does not exist
	AlreadyExists = 3,     //! the named object exists already
	Corruption = 4,        //! stored bytes fail their checksum or their structure
	IoError = 5,           //! the operating system refused an IO; never retried on fsync
	DiskFull = 6,          //! ENOSPC or EDQUOT; heals when space returns
	Unavailable = 7,       //! no quorum, no leader or no contact; nothing was done, retry is safe
	NotLeader = 8,         //! internal: the receiver is not the leader of the group; nothing was done
	Overloaded = 9,        //! a bounded queue is full; nothing was done, retry later
	DeadlineExceeded = 10, //! the deadline passed before anything was done
	OutcomeUnknown = 11,   //! the request may or may not commit later
	Conflict = 12,         //! first committer won; retry the transaction
	Constraint = 13,       //! a deterministic constraint violation
	SchemaChanged = 14,    //! the catalog moved on between planning and apply; retry
	Unauthorized = 15,     //! identity or token refused
	Incompatible = 16,     //! versions, formats or cluster ids do not match
	NotSupported = 17,     //! a known feature that is refused on purpose
	Degraded = 18,         //! this node latched itself out of service
	Cancelled = 19,        //! the caller gave up
	Internal = 20,         //! a bug on our side
};

//! Stable lower-case name, e.g. "not_leader"; used in logs and in SQL error codes.
const char *ErrorCodeName(ErrorCode code);

//! A code and one human sentence naming the object, what was expected, what came and the fix.
class [[nodiscard]] Status {
public:
	Status() = default;
	Status(ErrorCode code_p, std::string message_p) : code(code_p), message(std::move(message_p)) {
	}
	static Status Ok() {
		return Status();
	}

	bool IsOk() const {
		return code == ErrorCode::Ok;
	}
	ErrorCode Code() const {
		return code;
	}
	const std::string &Message() const {
		return message;
	}
	//! "code: message", or "ok".
	std::string ToString() const;

private:
	ErrorCode code = ErrorCode::Ok;
	std::string message;
};

//! A value or a failure. Value() on a failure aborts.
template <class T>
class [[nodiscard]] Result {
public:
	Result(T value_p) : value(std::move(value_p)) { // NOLINT: implicit on purpose
	}
	Result(Status status_p) : status(std::move(status_p)) { // NOLINT: implicit on purpose
		QUACK_CHECK(!status.IsOk(), "a Result built from a Status needs a failure");
	}

	bool IsOk() const {
		return value.has_value();
	}
	const Status &GetStatus() const {
		return status;
	}
	T &Value() {
		QUACK_CHECK(value.has_value(), status.ToString().c_str());
		return *value;
	}
	const T &Value() const {
		QUACK_CHECK(value.has_value(), status.ToString().c_str());
		return *value;
	}

private:
	std::optional<T> value;
	Status status;
};

} // namespace quack
