#include "quack/common/bytes.hpp"

namespace quack {

namespace {

template <class T>
void PutLittleEndian(std::string &out, T value) {
	for (size_t i = 0; i < sizeof(T); i++) {
		out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
	}
}

template <class T>
T GetLittleEndian(const char *in) {
	T value = 0;
	for (size_t i = 0; i < sizeof(T); i++) {
		value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(in[i])) << (8 * i));
	}
	return value;
}

} // namespace

void ByteWriter::PutU8(uint8_t value) {
	out.push_back(static_cast<char>(value));
}

void ByteWriter::PutU16(uint16_t value) {
	PutLittleEndian(out, value);
}

void ByteWriter::PutU32(uint32_t value) {
	PutLittleEndian(out, value);
}

void ByteWriter::PutU64(uint64_t value) {
	PutLittleEndian(out, value);
}

void ByteWriter::PutVarint(uint64_t value) {
	while (value >= 0x80) {
		out.push_back(static_cast<char>((value & 0x7f) | 0x80));
		value >>= 7;
	}
	out.push_back(static_cast<char>(value));
}

void ByteWriter::PutBytes(ByteView bytes) {
	PutVarint(bytes.size());
	PutRaw(bytes);
}

void ByteWriter::PutRaw(ByteView bytes) {
	out.append(bytes.data(), bytes.size());
}

bool ByteReader::Need(size_t size) {
	if (failed || Remaining() < size) {
		failed = true;
		return false;
	}
	return true;
}

uint8_t ByteReader::GetU8() {
	return Need(1) ? static_cast<uint8_t>(in[offset++]) : 0;
}

uint16_t ByteReader::GetU16() {
	if (!Need(2)) {
		return 0;
	}
	offset += 2;
	return GetLittleEndian<uint16_t>(in.data() + offset - 2);
}

uint32_t ByteReader::GetU32() {
	if (!Need(4)) {
		return 0;
	}
	offset += 4;
	return GetLittleEndian<uint32_t>(in.data() + offset - 4);
}

uint64_t ByteReader::GetU64() {
	if (!Need(8)) {
		return 0;
	}
	offset += 8;
	return GetLittleEndian<uint64_t>(in.data() + offset - 8);
}

uint64_t ByteReader::GetVarint() {
	uint64_t value = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (!Need(1)) {
			return 0;
		}
		auto byte = static_cast<unsigned char>(in[offset++]);
		if (shift == 63 && byte > 1) {
			break;
		}
		value |= static_cast<uint64_t>(byte & 0x7f) << shift;
		if ((byte & 0x80) == 0) {
			return value;
		}
	}
	failed = true;
	return 0;
}

ByteView ByteReader::GetBytes() {
	auto size = GetVarint();
	if (failed || size > Remaining()) {
		failed = true;
		return ByteView();
	}
	return GetRaw(static_cast<size_t>(size));
}

ByteView ByteReader::GetRaw(size_t size) {
	if (!Need(size)) {
		return ByteView();
	}
	offset += size;
	return in.substr(offset - size, size);
}

} // namespace quack
