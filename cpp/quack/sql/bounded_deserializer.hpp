//! DuckDB's binary object format read from memory, for bytes that came over a network: every length is checked against
//! the bytes that are left before anything is allocated. One thread.
#pragma once

#include "duckdb.hpp"
#include "duckdb/common/serializer/deserializer.hpp"
#include "quack/common/bytes.hpp"

namespace quack {
namespace sql {

class BoundedDeserializer final : public duckdb::Deserializer {
public:
	//! `bytes` outlives this object.
	explicit BoundedDeserializer(ByteView bytes_p, size_t offset_p = 0) : bytes(bytes_p), offset(offset_p) {
	}

	void Begin() {
		OnObjectBegin();
	}
	//! Throws when a field is left that nobody read.
	void End() {
		OnObjectEnd();
	}
	//! Position after the last byte read; meaningful between objects.
	size_t Offset() const {
		return offset;
	}

	bool CanDeserializeProperty(const duckdb::field_id_t field_id, const char *tag) override;

protected:
	void OnPropertyBegin(const duckdb::field_id_t field_id, const char *tag) override;
	void OnPropertyEnd() override {
	}
	bool OnOptionalPropertyBegin(const duckdb::field_id_t field_id, const char *tag) override;
	void OnOptionalPropertyEnd(bool) override {
	}
	void OnObjectBegin() override;
	void OnObjectEnd() override;
	duckdb::idx_t OnListBegin() override;
	void OnListEnd() override {
	}
	bool OnNullableBegin() override {
		return ReadBool();
	}
	void OnNullableEnd() override {
	}

	bool ReadBool() override;
	char ReadChar() override;
	int8_t ReadSignedInt8() override;
	uint8_t ReadUnsignedInt8() override;
	int16_t ReadSignedInt16() override;
	uint16_t ReadUnsignedInt16() override;
	int32_t ReadSignedInt32() override;
	uint32_t ReadUnsignedInt32() override;
	int64_t ReadSignedInt64() override;
	uint64_t ReadUnsignedInt64() override;
	duckdb::hugeint_t ReadHugeInt() override;
	duckdb::uhugeint_t ReadUhugeInt() override;
	float ReadFloat() override;
	double ReadDouble() override;
	std::string ReadString() override;
	void ReadDataPtr(duckdb::data_ptr_t &ptr, duckdb::idx_t count) override;

private:
	//! Throws unless `size` more bytes are there.
	void Need(uint64_t size) const;
	duckdb::field_id_t PeekField() const;
	uint64_t ReadVarint();
	int64_t ReadSignedVarint();
	template <class T>
	T ReadUnsigned();
	template <class T>
	T ReadSigned();

	ByteView bytes;
	size_t offset;
	size_t depth = 0;
	//! Name of the field being read, for lengths that must be bounded although nothing follows them yet.
	const char *current_tag = "";
};

} // namespace sql
} // namespace quack
