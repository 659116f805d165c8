//! How many rows to encode at once, so that batches stay small however large the rows are.
#pragma once

#include <algorithm>
#include <cstddef>

#include "quack/common/limits.hpp"

namespace quack {

class BatchSize {
public:
	enum class Fit : unsigned char {
		Yes,
		Again,      //! too much: encode the rows again, fewer at a time
		RowTooLarge //! a single row has more than ROW_BYTES_MAX
	};

	//! A batch has about `bytes`, and at most `rows_max` rows.
	BatchSize(size_t bytes_p, size_t rows_max_p) : bytes_wanted(bytes_p), rows_max(rows_max_p) {
	}

	//! Of the next batch, when so many rows are left.
	size_t Rows(size_t left) const {
		return std::min(rows, left);
	}
	//! What came of encoding `count` rows.
	Fit Note(size_t bytes, size_t count) {
		if (bytes > bytes_wanted && count > 1) {
			rows = std::max<size_t>(1, count * bytes_wanted / bytes);
			return Fit::Again;
		}
		if (bytes > ROW_BYTES_MAX) {
			return Fit::RowTooLarge;
		}
		if (bytes < bytes_wanted / 4) {
			rows = std::min(2 * rows, rows_max);
		}
		return Fit::Yes;
	}

private:
	const size_t bytes_wanted;
	const size_t rows_max;
	//! A first guess of how many large rows fit.
	size_t rows = 64;
};

} // namespace quack
