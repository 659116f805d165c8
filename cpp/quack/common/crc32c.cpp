#include "quack/common/crc32c.hpp"

#include <array>
#include <cstring>

namespace quack {

namespace {

std::array<uint32_t, 256> MakeTable() {
	std::array<uint32_t, 256> table {};
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;
		for (int bit = 0; bit < 8; bit++) {
			crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
		}
		table[i] = crc;
	}
	return table;
}

uint32_t ExtendByTable(ByteView bytes, uint32_t crc) {
	static const auto table = MakeTable();
	for (auto byte : bytes) {
		crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
	}
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(ByteView bytes, uint32_t crc) {
	uint64_t wide = crc;
	size_t offset = 0;
	for (; offset + 8 <= bytes.size(); offset += 8) {
		uint64_t word;
		std::memcpy(&word, bytes.data() + offset, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = static_cast<uint32_t>(wide);
	for (; offset < bytes.size(); offset++) {
		crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(bytes[offset]));
	}
	return crc;
}
#endif

} // namespace

uint32_t Crc32c(ByteView bytes, uint32_t crc) {
	crc = ~crc;
#if defined(__x86_64__)
	static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
	if (has_instruction) {
		return ~ExtendByInstruction(bytes, crc);
	}
#endif
	return ~ExtendByTable(bytes, crc);
}

void SealRecord(std::string &record) {
	ByteWriter(record).PutU32(Crc32c(record));
}

std::optional<ByteView> UnsealRecord(ByteView sealed) {
	constexpr size_t CRC_BYTES = sizeof(uint32_t);
	if (sealed.size() < CRC_BYTES) {
		return std::nullopt;
	}
	auto record = sealed.substr(0, sealed.size() - CRC_BYTES);
	auto crc = ByteReader(sealed.substr(record.size())).GetU32();
	return crc == Crc32c(record) ? std::optional<ByteView>(record) : std::nullopt;
}

} // namespace quack
