//! System calls on files, whole and with their failures in words.
#pragma once

#include <string>

#include <sys/types.h>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! The failure that `errno` tells: DiskFull or IoError, with what was done to which path. Leaves `errno` as it is.
Status SystemError(const std::string &what, const std::string &path);

//! `path`: of the file, for the words.
Status WriteAt(int file, ByteView bytes, uint64_t offset, const std::string &path);
//! How many bytes came: fewer at the end of the file; -1 and `errno` for a failure.
ssize_t ReadAt(int file, char *bytes, size_t size, uint64_t offset);

Status SyncFile(const std::string &path);

//! Makes the names in the directory of the file durable: creations, removals, renames.
Status SyncDirectoryOf(const std::string &path);

} // namespace catalog
} // namespace quack
