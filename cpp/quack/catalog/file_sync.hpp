//! Calls that make files and their names durable.
#pragma once

#include <string>

#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! The failure that `errno` tells: DiskFull or IoError, with what was done to which path. Leaves `errno` as it is.
Status SystemError(const std::string &what, const std::string &path);

Status SyncFile(const std::string &path);

//! Makes the names in the directory of the file durable: creations, removals, renames.
Status SyncDirectoryOf(const std::string &path);

} // namespace catalog
} // namespace quack
