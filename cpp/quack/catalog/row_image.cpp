#include "quack/catalog/row_image.hpp"

#include <cstring>

#include "duckdb/common/serializer/binary_serializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"
#include "duckdb/common/types/variant.hpp"
#include "duckdb/function/scalar/variant_utils.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::idx_t;
using duckdb::PhysicalType;
using duckdb::RecursiveUnifiedVectorFormat;

void AppendValue(const RecursiveUnifiedVectorFormat &format, idx_t row, std::string &out);

//! The same variant may be stored shredded or not: its value counts, not its layout.
void AppendVariant(const RecursiveUnifiedVectorFormat &format, idx_t row, std::string &out) {
	duckdb::UnifiedVariantVectorData variant(format);
	auto value = duckdb::VariantUtils::ConvertVariantToValue(variant, row, 0);
	duckdb::MemoryStream stream;
	duckdb::BinarySerializer serializer(stream);
	serializer.Begin();
	value.Serialize(serializer);
	serializer.End();
	ByteWriter(out).PutBytes(ByteView(reinterpret_cast<const char *>(stream.GetData()), stream.GetPosition()));
}

void AppendFixed(const duckdb::UnifiedVectorFormat &unified, idx_t index, size_t width, std::string &out) {
	out.append(reinterpret_cast<const char *>(unified.data) + index * width, width);
}

void AppendString(const duckdb::UnifiedVectorFormat &unified, idx_t index, std::string &out) {
	const auto &value = reinterpret_cast<const duckdb::string_t *>(unified.data)[index];
	ByteWriter(out).PutBytes(ByteView(value.GetData(), value.GetSize()));
}

void AppendList(const RecursiveUnifiedVectorFormat &format, idx_t index, std::string &out) {
	const auto &list = reinterpret_cast<const duckdb::list_entry_t *>(format.unified.data)[index];
	ByteWriter(out).PutVarint(list.length);
	for (idx_t i = 0; i < list.length; i++) {
		AppendValue(format.children[0], list.offset + i, out);
	}
}

void AppendArray(const RecursiveUnifiedVectorFormat &format, idx_t index, std::string &out) {
	const auto size = duckdb::ArrayType::GetSize(format.logical_type);
	for (idx_t i = 0; i < size; i++) {
		AppendValue(format.children[0], index * size + i, out);
	}
}

void AppendValue(const RecursiveUnifiedVectorFormat &format, idx_t row, std::string &out) {
	const auto index = format.unified.sel->get_index(row);
	if (!format.unified.validity.RowIsValid(index)) {
		out.push_back('\0');
		return;
	}
	out.push_back('\1');
	if (format.logical_type.id() == duckdb::LogicalTypeId::VARIANT) {
		AppendVariant(format, row, out);
		return;
	}
	const auto type = format.logical_type.InternalType();
	switch (type) {
	case PhysicalType::VARCHAR:
		AppendString(format.unified, index, out);
		break;
	case PhysicalType::LIST:
		AppendList(format, index, out);
		break;
	case PhysicalType::ARRAY:
		AppendArray(format, index, out);
		break;
	case PhysicalType::STRUCT:
		for (auto &child : format.children) {
			AppendValue(child, row, out);
		}
		break;
	default:
		AppendFixed(format.unified, index, duckdb::GetTypeIdSize(type), out);
		break;
	}
}

uint64_t Mix(uint64_t value) {
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ULL;
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ULL;
	value ^= value >> 32;
	return value;
}

} // namespace

RowImages::RowImages(duckdb::DataChunk &chunk, idx_t column_count) {
	chunk.Flatten();
	columns.resize(column_count);
	for (idx_t i = 0; i < column_count; i++) {
		duckdb::Vector::RecursiveToUnifiedFormat(chunk.data[i], columns[i]);
	}
}

void RowImages::Append(idx_t row, std::string &out) const {
	for (auto &column : columns) {
		AppendValue(column, row, out);
	}
}

std::string Hash128::ToString() const {
	static const char *digits = "0123456789abcdef";
	std::string text(32, '0');
	for (int i = 0; i < 16; i++) {
		text[15 - i] = digits[(high >> (4 * i)) & 15];
		text[31 - i] = digits[(low >> (4 * i)) & 15];
	}
	return text;
}

Hash128 HashBytes(ByteView bytes) {
	Hash128 hash {0x9ae16a3b2f90404fULL, 0xc3a5c85c97cb3127ULL};
	hash.low ^= bytes.size() * 0x9e3779b97f4a7c15ULL;
	size_t offset = 0;
	while (offset < bytes.size()) {
		uint64_t word = 0;
		const auto width = std::min<size_t>(8, bytes.size() - offset);
		memcpy(&word, bytes.data() + offset, width);
		offset += width;
		hash.low = Mix(hash.low ^ word) + hash.high;
		hash.high = (hash.high ^ (word * 0xb492b66fbe98f273ULL)) * 0x9e3779b97f4a7c15ULL;
		hash.high ^= hash.high >> 29;
	}
	return Hash128 {Mix(hash.low ^ hash.high), Mix(hash.high + 0x165667b19e3779f9ULL)};
}

} // namespace catalog
} // namespace quack
