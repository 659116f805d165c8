//! Executes the effects of one entry inside an ApplySession.
#pragma once

#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include "quack/catalog/apply_session.hpp"

namespace quack {
namespace catalog {

//! A sequence that must move to `use` once the transaction is committed: sequences do not roll back.
struct SequenceMove {
	const Effect *effect;
	duckdb::shared_ptr<duckdb::SequenceState> state;
	SequenceUse use;
};

class EffectApplier {
public:
	EffectApplier(ApplySession &session_p, const DecodedEntry &entry_p) : session(session_p), entry(entry_p) {
	}

	//! Finds all rows that the entry deletes or updates, changing nothing. Throws Rejected (Conflict). Not for entries
	//! with DDL: their rows may depend on it.
	void Locate();
	//! Throws Rejected, or what DuckDB throws.
	void Execute();

	uint64_t Rows() const {
		return rows;
	}
	std::vector<SequenceMove> TakeSequenceMoves() {
		return std::move(sequence_moves);
	}

private:
	//! Decoded old rows and where they are, per batch of one effect.
	struct LocatedBatch {
		std::unique_ptr<duckdb::DataChunk> old_rows;
		std::vector<int64_t> row_ids;
	};

	std::vector<LocatedBatch> LocateEffect(const Effect &effect);
	void Insert(const Effect &effect);
	void Delete(const Effect &effect, std::vector<LocatedBatch> &batches);
	void Update(const Effect &effect, std::vector<LocatedBatch> &batches);
	void DeleteRows(ApplyTable &table, LocatedBatch &batch);
	void ReplaceRows(ApplyTable &table, LocatedBatch &batch, const duckdb::vector<duckdb::PhysicalIndex> &columns,
	                 duckdb::DataChunk &new_values);
	void Sequence(const Effect &effect);

	ApplySession &session;
	const DecodedEntry &entry;
	std::map<const Effect *, std::vector<LocatedBatch>> located;
	std::vector<SequenceMove> sequence_moves;
	uint64_t rows = 0;
};

//! Executes one DDL effect. Throws what DuckDB throws.
void ApplyDdl(ApplySession &session, const Effect &effect);

} // namespace catalog
} // namespace quack
