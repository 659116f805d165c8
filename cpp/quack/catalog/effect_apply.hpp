//! Executes the effects of one entry inside an ApplySession.
#pragma once

#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include <deque>
#include <optional>

#include "quack/catalog/apply_session.hpp"
#include "quack/catalog/row_locator.hpp"

namespace quack {
namespace catalog {

//! A sequence that must move to `use` once the transaction is committed: sequences do not roll back.
struct SequenceMove {
	const Effect *effect;
	duckdb::shared_ptr<duckdb::SequenceState> state;
	SequenceUse use;
};

//! The locators of a transaction whose effects come in several frames: a row that one frame used is not another's.
class SharedLocators {
public:
	explicit SharedLocators(ApplySession &session_p) : session(session_p) {
	}
	RowLocator &For(const Effect &effect);
	//! After DDL: tables are other objects.
	void Clear() {
		locators.clear();
	}

private:
	struct Named {
		Named(ApplySession &session, const ObjectName &name_p)
		    : name(name_p), locator(session, session.Table(name_p), name) {
		}
		const ObjectName name;
		RowLocator locator;
	};
	ApplySession &session;
	std::map<std::pair<EffectKind, std::string>, std::unique_ptr<Named>> locators;
};

//! Row ids of batches in the order in which they are executed.
using RowIdQueue = std::deque<std::vector<int64_t>>;

class ChangeTee;

class EffectApplier {
public:
	//! With `locators` the entry is one of several frames. With `changes` they are told what was executed.
	EffectApplier(ApplySession &session_p, const DecodedEntry &entry_p, ChangeTee *changes_p = nullptr,
	              SharedLocators *locators_p = nullptr)
	    : session(session_p), entry(entry_p), changes(changes_p), locators(locators_p) {
	}

	//! Finds all rows that the entry deletes or updates, changing nothing. Throws Rejected (Conflict). Not for entries
	//! with DDL: their rows may depend on it.
	void Locate();
	//! As Locate, but only remembers where the rows are.
	void Locate(RowIdQueue &row_ids);
	//! Throws Rejected, or what DuckDB throws.
	void Execute();
	//! Takes the rows of deletes and updates from the front of `row_ids`.
	void Execute(RowIdQueue &row_ids);
	//! Sequences only.
	void ExecuteSequences();

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
	std::vector<LocatedBatch> TakeLocated(const Effect &effect);
	void TellRows(const Effect &effect);
	void Insert(const Effect &effect);
	void Delete(const Effect &effect, std::vector<LocatedBatch> &batches);
	void Update(const Effect &effect, std::vector<LocatedBatch> &batches);
	void DeleteRows(ApplyTable &table, LocatedBatch &batch);
	void ReplaceRows(ApplyTable &table, LocatedBatch &batch, const duckdb::vector<duckdb::PhysicalIndex> &columns,
	                 duckdb::DataChunk &new_values);
	void Sequence(const Effect &effect);

	ApplySession &session;
	const DecodedEntry &entry;
	ChangeTee *const changes;
	SharedLocators *const locators;
	RowIdQueue *known_row_ids = nullptr;
	std::map<const Effect *, std::vector<LocatedBatch>> located;
	std::vector<SequenceMove> sequence_moves;
	uint64_t rows = 0;
};

//! Executes one DDL effect of an entry that was planned at `planned_version`. Throws Rejected (SchemaChanged) when what
//! it depends on changed since; else what DuckDB throws, also for a drop on which something depends that is not
//! dropped.
void ApplyDdl(ApplySession &session, const Effect &effect, raft::LogIndex planned_version);

//! The new name when the effect renames its table.
std::optional<std::string> RenamedTo(duckdb::ClientContext &context, const Effect &effect);

} // namespace catalog
} // namespace quack
