#include "quack/sql/bounded_deserializer.hpp"

#include <cstring>
#include <limits>

#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

using duckdb::field_id_t;
using duckdb::SerializationException;

namespace {

constexpr field_id_t OBJECT_END = 0xFFFF;
constexpr size_t DEPTH_MAX = 256;
//! Elements of all lists of one list column of a chunk; they can be constant, so the bytes left do not bound them.
constexpr uint64_t LIST_ELEMENTS_MAX = 256 * 1024 * 1024;

bool IsTag(const char *tag, const char *name) {
	return std::strcmp(tag, name) == 0;
}

} // namespace

void BoundedDeserializer::Need(uint64_t size) const {
	if (size > bytes.size() - offset) {
		throw SerializationException("Malformed Quack message: %llu bytes expected at offset %llu, %llu are left", size,
		                             static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes.size() - offset));
	}
}

field_id_t BoundedDeserializer::PeekField() const {
	Need(sizeof(field_id_t));
	auto low = static_cast<uint8_t>(bytes[offset]);
	auto high = static_cast<uint8_t>(bytes[offset + 1]);
	return static_cast<field_id_t>(low | (high << 8));
}

bool BoundedDeserializer::CanDeserializeProperty(const field_id_t field_id, const char *) {
	return PeekField() == field_id;
}

void BoundedDeserializer::OnPropertyBegin(const field_id_t field_id, const char *tag) {
	auto found = PeekField();
	if (found != field_id) {
		throw SerializationException("Malformed Quack message: field %d (%s) expected, but found field id: %d",
		                             field_id, tag, found);
	}
	offset += sizeof(field_id_t);
	current_tag = tag;
}

bool BoundedDeserializer::OnOptionalPropertyBegin(const field_id_t field_id, const char *tag) {
	if (PeekField() != field_id) {
		return false;
	}
	offset += sizeof(field_id_t);
	current_tag = tag;
	return true;
}

void BoundedDeserializer::OnObjectBegin() {
	if (++depth > DEPTH_MAX) {
		throw SerializationException("Malformed Quack message: objects nested deeper than %llu",
		                             static_cast<uint64_t>(DEPTH_MAX));
	}
}

void BoundedDeserializer::OnObjectEnd() {
	auto found = PeekField();
	if (found != OBJECT_END) {
		throw SerializationException("Malformed Quack message: expected end of object, but found field id: %d", found);
	}
	offset += sizeof(field_id_t);
	depth--;
}

duckdb::idx_t BoundedDeserializer::OnListBegin() {
	auto count = ReadVarint();
	// Every element takes at least one byte.
	Need(count);
	return count;
}

uint64_t BoundedDeserializer::ReadVarint() {
	uint64_t value = 0;
	for (uint32_t shift = 0; shift < 64; shift += 7) {
		Need(1);
		auto byte = static_cast<uint8_t>(bytes[offset++]);
		value |= static_cast<uint64_t>(byte & 0x7F) << shift;
		if ((byte & 0x80) == 0) {
			return value;
		}
	}
	throw SerializationException("Malformed Quack message: a number has more than 64 bits");
}

int64_t BoundedDeserializer::ReadSignedVarint() {
	uint64_t value = 0;
	for (uint32_t shift = 0; shift < 64; shift += 7) {
		Need(1);
		auto byte = static_cast<uint8_t>(bytes[offset++]);
		value |= static_cast<uint64_t>(byte & 0x7F) << shift;
		if ((byte & 0x80) == 0) {
			if ((byte & 0x40) != 0 && shift + 7 < 64) {
				value |= ~uint64_t(0) << (shift + 7);
			}
			return static_cast<int64_t>(value);
		}
	}
	throw SerializationException("Malformed Quack message: a number has more than 64 bits");
}

template <class T>
T BoundedDeserializer::ReadUnsigned() {
	auto value = ReadVarint();
	if (value > std::numeric_limits<T>::max()) {
		throw SerializationException("Malformed Quack message: %s is %llu, out of range", current_tag, value);
	}
	return static_cast<T>(value);
}

template <class T>
T BoundedDeserializer::ReadSigned() {
	auto value = ReadSignedVarint();
	if (value > std::numeric_limits<T>::max() || value < std::numeric_limits<T>::min()) {
		throw SerializationException("Malformed Quack message: %s is %lld, out of range", current_tag, value);
	}
	return static_cast<T>(value);
}

bool BoundedDeserializer::ReadBool() {
	return ReadChar() != 0;
}

char BoundedDeserializer::ReadChar() {
	Need(1);
	return bytes[offset++];
}

int8_t BoundedDeserializer::ReadSignedInt8() {
	return ReadSigned<int8_t>();
}

uint8_t BoundedDeserializer::ReadUnsignedInt8() {
	return ReadUnsigned<uint8_t>();
}

int16_t BoundedDeserializer::ReadSignedInt16() {
	return ReadSigned<int16_t>();
}

uint16_t BoundedDeserializer::ReadUnsignedInt16() {
	return ReadUnsigned<uint16_t>();
}

int32_t BoundedDeserializer::ReadSignedInt32() {
	return ReadSigned<int32_t>();
}

uint32_t BoundedDeserializer::ReadUnsignedInt32() {
	auto value = ReadUnsigned<uint32_t>();
	if (IsTag(current_tag, "rows") && value > CHUNK_ROWS_MAX) {
		throw SerializationException("Malformed Quack message: a chunk of %llu rows, at most %llu are taken",
		                             static_cast<uint64_t>(value), CHUNK_ROWS_MAX);
	}
	return value;
}

int64_t BoundedDeserializer::ReadSignedInt64() {
	return ReadSignedVarint();
}

uint64_t BoundedDeserializer::ReadUnsignedInt64() {
	auto value = ReadVarint();
	if (IsTag(current_tag, "byte_data_length") && value != duckdb::DConstants::INVALID_INDEX) {
		Need(value);
	}
	if (IsTag(current_tag, "list_size") && value > LIST_ELEMENTS_MAX) {
		throw SerializationException("Malformed Quack message: a list column of %llu elements, at most %llu are taken",
		                             value, LIST_ELEMENTS_MAX);
	}
	return value;
}

duckdb::hugeint_t BoundedDeserializer::ReadHugeInt() {
	auto upper = ReadSignedVarint();
	auto lower = ReadVarint();
	return duckdb::hugeint_t(upper, lower);
}

duckdb::uhugeint_t BoundedDeserializer::ReadUhugeInt() {
	auto upper = ReadVarint();
	auto lower = ReadVarint();
	return duckdb::uhugeint_t(upper, lower);
}

float BoundedDeserializer::ReadFloat() {
	float value;
	Need(sizeof(value));
	std::memcpy(&value, bytes.data() + offset, sizeof(value));
	offset += sizeof(value);
	return value;
}

double BoundedDeserializer::ReadDouble() {
	double value;
	Need(sizeof(value));
	std::memcpy(&value, bytes.data() + offset, sizeof(value));
	offset += sizeof(value);
	return value;
}

std::string BoundedDeserializer::ReadString() {
	auto size = ReadVarint();
	Need(size);
	std::string value(bytes.data() + offset, size);
	offset += size;
	return value;
}

void BoundedDeserializer::ReadDataPtr(duckdb::data_ptr_t &ptr, duckdb::idx_t count) {
	auto size = ReadVarint();
	if (size != count) {
		throw SerializationException("Malformed Quack message: %s has %llu bytes, expected %llu", current_tag, size,
		                             static_cast<uint64_t>(count));
	}
	Need(size);
	std::memcpy(ptr, bytes.data() + offset, size);
	offset += size;
}

} // namespace sql
} // namespace quack
