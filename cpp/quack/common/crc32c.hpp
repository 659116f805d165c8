//! CRC-32C (Castagnoli, RFC 3720 appendix B.4), hardware instruction when the CPU has SSE4.2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quack/common/bytes.hpp"

namespace quack {

//! Extends `crc` (0 to start) by `bytes`. Crc32c("123456789") == 0xE3069283.
uint32_t Crc32c(ByteView bytes, uint32_t crc = 0);

//! Appends the checksum of all that `record` holds.
void SealRecord(std::string &record);
//! What was sealed; nothing when it was cut or changed since.
std::optional<ByteView> UnsealRecord(ByteView sealed);

} // namespace quack
