//! Rows as bytes: DuckDB's binary serialization of each vector with the storage version pinned, without types.
#pragma once

#include <string>

#include "duckdb.hpp"
#include "duckdb/common/serializer/serializer.hpp"
#include "quack/common/bytes.hpp"

namespace quack {
namespace catalog {

//! Pinned to the storage version of DuckDB 2.0.0, whatever the running version calls its default.
duckdb::SerializationOptions PinnedSerialization();

//! The first `columns` columns of the chunk; at most 65,535 rows.
std::string EncodeChunk(const duckdb::DataChunk &chunk, duckdb::idx_t columns);

//! Initializes `chunk` with `types`. Throws a DuckDB exception when the bytes are not rows of these types.
void DecodeChunk(ByteView bytes, const duckdb::vector<duckdb::LogicalType> &types, duckdb::DataChunk &chunk);

//! Of encoded rows, without decoding them. Throws as above.
uint64_t RowCountOf(ByteView bytes);

} // namespace catalog
} // namespace quack
