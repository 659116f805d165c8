//! Numbered fields, the one notation of every message here. No IO, no clock, no thread.
//!
//! A field is a varint tag (number * 4 + kind), then its value: kind 0 = varint, 1 = varint length and bytes,
//! 2 = 8 bytes little-endian. Zero and empty values are left out. Numbers are never reused. A reader refuses an unknown
//! number below 64 (it must be understood) and skips one from 64 on (it may be ignored).
#pragma once

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace wire {

enum class FieldKind : uint8_t { Varint = 0, Bytes = 1, Fixed64 = 2 };

//! First field number that an older reader may skip.
constexpr uint32_t FIRST_OPTIONAL_FIELD = 64;

size_t VarintSize(uint64_t value);
//! Bytes that the field takes, its tag included; 0 for a value that is left out.
size_t VarintFieldSize(uint32_t number, uint64_t value);
size_t Fixed64FieldSize(uint32_t number, uint64_t value);
size_t BytesFieldSize(uint32_t number, size_t size);

class FieldWriter {
public:
	explicit FieldWriter(std::string &out) : writer(out) {
	}
	void PutVarint(uint32_t number, uint64_t value);
	void PutFixed64(uint32_t number, uint64_t value);
	void PutBytes(uint32_t number, ByteView bytes);
	//! As PutBytes, but written even when empty: for repeated fields, whose count matters.
	void PutElement(uint32_t number, ByteView bytes);
	//! Tag and length of a bytes field whose `size` bytes the caller appends next.
	void PutHeader(uint32_t number, size_t size);

private:
	ByteWriter writer;
};

//! Iterates over fields. Every access is bounds-checked; after the first fault Next() is false and Finish() tells it.
class FieldReader {
public:
	//! `what` names the message in errors and outlives the reader.
	FieldReader(ByteView bytes, const char *what_p) : reader(bytes), what(what_p) {
	}
	//! Moves to the next field; false at the end or after a fault.
	bool Next();
	uint32_t Number() const {
		return number;
	}
	//! Value of a varint or fixed64 field; a bytes field is a fault.
	uint64_t Value();
	//! Value that must be at most `max`; above is a fault.
	uint64_t ValueUpTo(uint64_t max);
	//! Value of a bytes field; another kind is a fault. A view into the input.
	ByteView Bytes();
	//! To be called for a number that the caller does not know.
	void Unknown();
	void Fail(const std::string &reason);
	//! Ok when all input was read without a fault, else Corruption (or Incompatible for an unknown field).
	Status Finish() const;

private:
	ByteReader reader;
	const char *what;
	uint32_t number = 0;
	FieldKind kind = FieldKind::Varint;
	uint64_t value = 0;
	ByteView bytes;
	Status fault;
};

} // namespace wire
} // namespace quack
