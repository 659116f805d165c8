//! Bytes that do not fit into memory, in a file without a name beside the catalog file: it is gone when the object or
//! the process is.
#pragma once

#include <string>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! One thread at a time.
class SpoolFile {
public:
	//! `directory`: where the file is made when the first bytes come.
	explicit SpoolFile(std::string directory_p) : directory(std::move(directory_p)) {
	}
	~SpoolFile();
	SpoolFile(const SpoolFile &) = delete;
	SpoolFile &operator=(const SpoolFile &) = delete;

	//! DiskFull, IoError; whatever was written before is of no use then.
	Status Append(ByteView bytes);
	//! [offset, offset + size), shorter only at the end. IoError.
	Result<std::string> Read(uint64_t offset, size_t size) const;

	uint64_t Bytes() const {
		return bytes;
	}
	//! CRC32C of all bytes.
	uint32_t Crc() const {
		return crc;
	}

private:
	Status Failure(const char *what) const;

	const std::string directory;
	int file = -1;
	uint64_t bytes = 0;
	uint32_t crc = 0;
};

} // namespace catalog
} // namespace quack
