//! Executes a large transaction from its fragments, one frame in memory at a time.
#pragma once

#include "quack/catalog/effect_apply.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

class StreamApplier {
public:
	//! `end`: the entry that ends the stream `open`. `changes`: told what was executed; null = nobody.
	StreamApplier(ApplySession &session_p, const DecodedEntry &end_p, const OpenStream &open_p, ChangeTee *changes_p)
	    : session(session_p), end(end_p), open(open_p), changes(changes_p), locators(session_p) {
	}

	//! As EffectApplier::Locate; keeps the row ids of all deleted and updated rows.
	void Locate();
	//! Throws Rejected, Status (the fragments are damaged), or what DuckDB throws.
	void Execute();

	uint64_t Rows() const {
		return rows;
	}
	std::vector<SequenceMove> TakeSequenceMoves() {
		return std::move(sequence_moves);
	}

private:
	void ForEachFrame(const std::function<void(const DecodedEntry &)> &visit);

	ApplySession &session;
	const DecodedEntry &end;
	const OpenStream &open;
	ChangeTee *const changes;
	SharedLocators locators;
	RowIdQueue row_ids;
	bool is_located = false;
	std::vector<SequenceMove> sequence_moves;
	uint64_t rows = 0;
};

} // namespace catalog
} // namespace quack
