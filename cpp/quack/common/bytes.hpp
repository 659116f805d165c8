//! Owned, shared and borrowed bytes, and the little-endian primitives that every disk and wire format uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace quack {

//! Borrowed bytes; the owner outlives the view.
using ByteView = std::string_view;

//! Immutable bytes shared by log, wire and apply: one encode serves all three. Never null.
using SharedBytes = std::shared_ptr<const std::string>;

inline SharedBytes MakeSharedBytes(std::string bytes) {
	return std::make_shared<const std::string>(std::move(bytes));
}

//! Appends little-endian primitives to a string.
class ByteWriter {
public:
	explicit ByteWriter(std::string &out_p) : out(out_p) {
	}
	void PutU8(uint8_t value);
	void PutU16(uint16_t value);
	void PutU32(uint32_t value);
	void PutU64(uint64_t value);
	//! Unsigned LEB128.
	void PutVarint(uint64_t value);
	//! Varint length, then the bytes.
	void PutBytes(ByteView bytes);
	//! The bytes alone, no length.
	void PutRaw(ByteView bytes);

private:
	std::string &out;
};

//! Reads what ByteWriter wrote. After the first failure every Get returns zero/empty and Failed() stays true; check it
//! once at the end. Never reads out of bounds, never allocates by a length it has not verified.
class ByteReader {
public:
	explicit ByteReader(ByteView in_p) : in(in_p) {
	}
	uint8_t GetU8();
	uint16_t GetU16();
	uint32_t GetU32();
	uint64_t GetU64();
	uint64_t GetVarint();
	//! A view into the input.
	ByteView GetBytes();
	ByteView GetRaw(size_t size);

	size_t Remaining() const {
		return in.size() - offset;
	}
	bool Failed() const {
		return failed;
	}
	//! True when nothing failed and nothing is left.
	bool Done() const {
		return !failed && Remaining() == 0;
	}

private:
	bool Need(size_t size);

	ByteView in;
	size_t offset = 0;
	bool failed = false;
};

} // namespace quack
