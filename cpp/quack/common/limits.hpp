//! How large things may be: the one place for every size that more than one layer must agree on. What a node may
//! propose is exactly what its peers take from the wire, what the log takes, and what recovery takes back from the log;
//! tests/unit/node/limits_test.cpp holds the four against each other.
#pragma once

#include <cstddef>
#include <string>

#include "quack/common/status.hpp"

namespace quack {

//! Payload of one log entry. A larger transaction travels in fragments (catalog/fragments.hpp); nothing that any layer
//! is handed is larger.
constexpr size_t ENTRY_BYTES_MAX = 48 * 1024 * 1024;

//! One row of a table, all its columns together, and one definition of a catalog object. A transaction has no limit.
constexpr size_t ROW_BYTES_MAX = 400 * 1024 * 1024;

//! Effects of one log entry, or of one frame of a large transaction, before compression; holds any row twice (an
//! update has the old and the new one). Also bounds what
//! a node that decodes them allocates.
constexpr size_t ENTRY_BODY_BYTES_MAX = size_t(1) << 30;

//! Ok, or InvalidArgument with the size and the limit. `what` names the thing in the message.
inline Status CheckEntryBytes(size_t bytes, const char *what = "log entry") {
	if (bytes <= ENTRY_BYTES_MAX) {
		return Status::Ok();
	}
	return Status(ErrorCode::InvalidArgument, std::string(what) + " of " + std::to_string(bytes) +
	                                              " bytes: one log entry holds at most " +
	                                              std::to_string(ENTRY_BYTES_MAX));
}

} // namespace quack
