#include "quack/wire/fields.hpp"

namespace quack {
namespace wire {

namespace {

constexpr uint32_t KIND_BITS = 2;
constexpr uint64_t FIELD_NUMBER_MAX = 4095;

uint64_t Tag(uint32_t number, FieldKind kind) {
	return (static_cast<uint64_t>(number) << KIND_BITS) | static_cast<uint64_t>(kind);
}

} // namespace

size_t VarintSize(uint64_t value) {
	size_t size = 1;
	while (value >= 0x80) {
		value >>= 7;
		size++;
	}
	return size;
}

size_t VarintFieldSize(uint32_t number, uint64_t value) {
	return value == 0 ? 0 : VarintSize(Tag(number, FieldKind::Varint)) + VarintSize(value);
}

size_t Fixed64FieldSize(uint32_t number, uint64_t value) {
	return value == 0 ? 0 : VarintSize(Tag(number, FieldKind::Fixed64)) + sizeof(uint64_t);
}

size_t BytesFieldSize(uint32_t number, size_t size) {
	return VarintSize(Tag(number, FieldKind::Bytes)) + VarintSize(size) + size;
}

void FieldWriter::PutVarint(uint32_t number, uint64_t value) {
	if (value != 0) {
		writer.PutVarint(Tag(number, FieldKind::Varint));
		writer.PutVarint(value);
	}
}

void FieldWriter::PutFixed64(uint32_t number, uint64_t value) {
	if (value != 0) {
		writer.PutVarint(Tag(number, FieldKind::Fixed64));
		writer.PutU64(value);
	}
}

void FieldWriter::PutBytes(uint32_t number, ByteView bytes) {
	if (!bytes.empty()) {
		PutElement(number, bytes);
	}
}

void FieldWriter::PutElement(uint32_t number, ByteView bytes) {
	PutHeader(number, bytes.size());
	writer.PutRaw(bytes);
}

void FieldWriter::PutHeader(uint32_t number, size_t size) {
	writer.PutVarint(Tag(number, FieldKind::Bytes));
	writer.PutVarint(size);
}

bool FieldReader::Next() {
	if (!fault.IsOk() || reader.Remaining() == 0) {
		return false;
	}
	auto tag = reader.GetVarint();
	auto tag_number = tag >> KIND_BITS;
	auto tag_kind = tag & ((1 << KIND_BITS) - 1);
	if (reader.Failed() || tag_number == 0 || tag_number > FIELD_NUMBER_MAX || tag_kind > 2) {
		Fail("malformed field tag");
		return false;
	}
	number = static_cast<uint32_t>(tag_number);
	kind = static_cast<FieldKind>(tag_kind);
	value = 0;
	bytes = ByteView();
	if (kind == FieldKind::Bytes) {
		bytes = reader.GetBytes();
	} else {
		value = kind == FieldKind::Varint ? reader.GetVarint() : reader.GetU64();
	}
	if (reader.Failed()) {
		Fail("field " + std::to_string(number) + " is cut short");
		return false;
	}
	return true;
}

uint64_t FieldReader::Value() {
	if (kind == FieldKind::Bytes) {
		Fail("field " + std::to_string(number) + " holds bytes, expected a number");
		return 0;
	}
	return value;
}

uint64_t FieldReader::ValueUpTo(uint64_t max) {
	auto result = Value();
	if (result > max) {
		Fail("field " + std::to_string(number) + " is " + std::to_string(result) + ", expected at most " +
		     std::to_string(max));
		return 0;
	}
	return result;
}

ByteView FieldReader::Bytes() {
	if (kind != FieldKind::Bytes) {
		Fail("field " + std::to_string(number) + " holds a number, expected bytes");
	}
	return bytes;
}

void FieldReader::Unknown() {
	if (number < FIRST_OPTIONAL_FIELD && fault.IsOk()) {
		fault = Status(ErrorCode::Incompatible, std::string(what) + ": field " + std::to_string(number) +
		                                            " is unknown here; a newer version wrote it, upgrade this node");
	}
}

void FieldReader::Fail(const std::string &reason) {
	if (fault.IsOk()) {
		fault = Status(ErrorCode::Corruption, std::string(what) + ": " + reason);
	}
}

Status FieldReader::Finish() const {
	return fault;
}

} // namespace wire
} // namespace quack
