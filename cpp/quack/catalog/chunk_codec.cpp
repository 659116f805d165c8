#include "quack/catalog/chunk_codec.hpp"

#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/binary_serializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"

namespace quack {
namespace catalog {

duckdb::SerializationOptions PinnedSerialization() {
	duckdb::SerializationOptions options;
	options.storage_compatibility = duckdb::StorageCompatibility::FromIndex(duckdb::StorageVersion::V2_0_0);
	return options;
}

std::string EncodeChunk(const duckdb::DataChunk &chunk, duckdb::idx_t columns) {
	duckdb::MemoryStream stream(16 * 1024);
	duckdb::BinarySerializer serializer(stream, PinnedSerialization());
	serializer.Begin();
	serializer.WriteProperty<uint64_t>(100, "rows", chunk.size());
	serializer.WriteList(101, "columns", columns, [&](duckdb::Serializer::List &list, duckdb::idx_t i) {
		list.WriteObject([&](duckdb::Serializer &object) {
			// A reference, because serializing may change the vector's own form.
			duckdb::Vector column(chunk.data[i].GetType());
			column.Reference(chunk.data[i]);
			column.Serialize(object, false);
		});
	});
	serializer.End();
	return std::string(reinterpret_cast<const char *>(stream.GetData()), stream.GetPosition());
}

namespace {

duckdb::MemoryStream StreamOver(ByteView bytes) {
	return duckdb::MemoryStream(reinterpret_cast<duckdb::data_ptr_t>(const_cast<char *>(bytes.data())), bytes.size());
}

} // namespace

uint64_t RowCountOf(ByteView bytes) {
	auto stream = StreamOver(bytes);
	duckdb::BinaryDeserializer deserializer(stream);
	deserializer.Begin();
	return deserializer.ReadProperty<uint64_t>(100, "rows");
}

void DecodeChunk(ByteView bytes, const duckdb::vector<duckdb::LogicalType> &types, duckdb::DataChunk &chunk) {
	auto stream = StreamOver(bytes);
	duckdb::BinaryDeserializer deserializer(stream);
	deserializer.Begin();
	auto rows = deserializer.ReadProperty<uint64_t>(100, "rows");
	chunk.Initialize(duckdb::Allocator::DefaultAllocator(), types,
	                 duckdb::MaxValue<duckdb::idx_t>(rows, STANDARD_VECTOR_SIZE));
	duckdb::idx_t seen = 0;
	deserializer.ReadList(101, "columns", [&](duckdb::Deserializer::List &list, duckdb::idx_t i) {
		if (i >= types.size()) {
			throw duckdb::SerializationException("rows of a log entry have more columns than their table");
		}
		list.ReadObject([&](duckdb::Deserializer &object) { chunk.data[i].Deserialize(object, rows); });
		seen++;
	});
	if (seen != types.size()) {
		throw duckdb::SerializationException("rows of a log entry have fewer columns than their table");
	}
	deserializer.End();
	chunk.SetChildCardinality(rows);
}

} // namespace catalog
} // namespace quack
