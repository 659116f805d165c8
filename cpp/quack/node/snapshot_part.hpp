//! What a receiver holds of an image, and the record of it that lies beside the bytes.
#pragma once

#include <string>

#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! The first `offset` bytes of an image, as they were when the record was written; more may have come since.
struct SnapshotPart {
	wire::SnapshotOpenAnswer image; //! cluster, id, size and positions as offered
	std::string source;             //! node that offered it
	uint64_t chunk_bytes = 0;       //! at most so much in one request
	uint64_t offset = 0;
	uint32_t crc32c = 0; //! of the bytes before offset
	uint64_t resumed_count = 0;
};

//! With a version and a checksum of its own.
std::string Encode(const SnapshotPart &part);
//! Corruption when the record is torn or bent, Incompatible when another version wrote it.
Result<SnapshotPart> DecodeSnapshotPart(ByteView bytes);

} // namespace node
} // namespace quack
