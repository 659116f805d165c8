//! Bit-exact images of rows: equal images <=> equal rows (IS NOT DISTINCT FROM, floats by their bits). Used to find the
//! row an effect means and for the state hash. An image never depends on how a vector is stored.
#pragma once

#include <string>

#include "duckdb.hpp"
#include "duckdb/common/vector/unified_vector_format.hpp"
#include "quack/common/bytes.hpp"

namespace quack {
namespace catalog {

//! Images of the rows of one chunk. Flattens the chunk; the chunk outlives it.
class RowImages {
public:
	//! `columns` = how many leading columns take part.
	RowImages(duckdb::DataChunk &chunk, duckdb::idx_t columns);

	void Append(duckdb::idx_t row, std::string &out) const;
	std::string Get(duckdb::idx_t row) const {
		std::string out;
		Append(row, out);
		return out;
	}

private:
	std::vector<duckdb::RecursiveUnifiedVectorFormat> columns;
};

//! A 128-bit non-cryptographic hash.
struct Hash128 {
	uint64_t low = 0;
	uint64_t high = 0;

	//! Sum modulo 2^128: order-independent, and it counts duplicates (an XOR would cancel them).
	void Add(const Hash128 &other) {
		low += other.low;
		high += other.high + (low < other.low ? 1 : 0);
	}
	//! 32 lower-case hex digits.
	std::string ToString() const;
};

//! The same bytes give the same hash on every platform and version.
Hash128 HashBytes(ByteView bytes);

} // namespace catalog
} // namespace quack
