#include "quack/catalog/effect_apply.hpp"

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/delete_state.hpp"
#include "duckdb/storage/table/update_state.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/local_storage.hpp"
#include "quack/catalog/change_tee.hpp"
#include "quack/catalog/chunk_codec.hpp"
#include "quack/catalog/private_access.hpp"

namespace quack {
namespace catalog {
namespace {

duckdb::Vector RowIdVector(const std::vector<int64_t> &row_ids) {
	duckdb::Vector ids(duckdb::LogicalType::ROW_TYPE, row_ids.size());
	for (size_t i = 0; i < row_ids.size(); i++) {
		duckdb::FlatVector::GetDataMutable<duckdb::row_t>(ids)[i] = row_ids[i];
	}
	duckdb::FlatVector::SetSize(ids, duckdb::count_t(row_ids.size()));
	return ids;
}

duckdb::QualifiedName QualifiedNameOf(const ObjectName &name) {
	duckdb::vector<duckdb::Identifier> path;
	for (auto &part : name.schema) {
		path.emplace_back(part);
	}
	return duckdb::QualifiedName::FromCatalogSchema(duckdb::Identifier(CATALOG_NAME), std::move(path),
	                                                duckdb::Identifier(name.name));
}

} // namespace

RowLocator &SharedLocators::For(const Effect &effect) {
	auto &named = locators[{effect.kind, effect.object.Key()}];
	if (!named) {
		named = std::make_unique<Named>(session, effect.object);
	}
	return named->locator;
}

void EffectApplier::Locate(RowIdQueue &row_ids) {
	for (auto &effect : entry.effects) {
		if (effect.kind == EffectKind::DeleteRows || effect.kind == EffectKind::UpdateRows) {
			for (auto &batch : LocateEffect(effect)) {
				row_ids.push_back(std::move(batch.row_ids));
			}
		}
	}
}

void EffectApplier::Locate() {
	for (auto &effect : entry.effects) {
		if (effect.kind == EffectKind::DeleteRows || effect.kind == EffectKind::UpdateRows) {
			located[&effect] = LocateEffect(effect);
		}
	}
}

std::vector<EffectApplier::LocatedBatch> EffectApplier::LocateEffect(const Effect &effect) {
	auto &table = session.Table(effect.object);
	std::optional<RowLocator> own;
	auto &locator = locators != nullptr ? locators->For(effect) : own.emplace(session, table, effect.object);
	std::vector<LocatedBatch> batches;
	for (auto &batch : effect.batches) {
		LocatedBatch found;
		found.old_rows = std::make_unique<duckdb::DataChunk>();
		DecodeChunk(batch.old_rows, table.types, *found.old_rows);
		found.row_ids = locator.Locate(*found.old_rows, DecodeRowIds(batch.row_ids));
		batches.push_back(std::move(found));
	}
	return batches;
}

std::vector<EffectApplier::LocatedBatch> EffectApplier::TakeLocated(const Effect &effect) {
	auto &table = session.Table(effect.object);
	std::vector<LocatedBatch> batches;
	for (auto &batch : effect.batches) {
		LocatedBatch found;
		found.old_rows = std::make_unique<duckdb::DataChunk>();
		DecodeChunk(batch.old_rows, table.types, *found.old_rows);
		if (known_row_ids->empty() || known_row_ids->front().size() != found.old_rows->size()) {
			throw duckdb::InternalException("apply: a large transaction was not read alike twice");
		}
		found.row_ids = std::move(known_row_ids->front());
		known_row_ids->pop_front();
		batches.push_back(std::move(found));
	}
	return batches;
}

void EffectApplier::Execute(RowIdQueue &row_ids) {
	known_row_ids = &row_ids;
	Execute();
}

void EffectApplier::ExecuteSequences() {
	for (auto &effect : entry.effects) {
		if (effect.kind == EffectKind::SequenceState) {
			Sequence(effect);
		}
	}
}

void EffectApplier::Execute() {
	for (auto &effect : entry.effects) {
		switch (effect.kind) {
		case EffectKind::InsertRows:
			Insert(effect);
			TellRows(effect);
			break;
		case EffectKind::DeleteRows:
		case EffectKind::UpdateRows: {
			session.FinishAppends();
			auto found = located.find(&effect);
			auto batches = found != located.end()     ? std::move(found->second)
			               : known_row_ids != nullptr ? TakeLocated(effect)
			                                          : LocateEffect(effect);
			if (effect.kind == EffectKind::DeleteRows) {
				Delete(effect, batches);
			} else {
				Update(effect, batches);
			}
			TellRows(effect);
			break;
		}
		case EffectKind::Ddl:
			if (locators != nullptr) {
				locators->Clear();
			}
			session.ForgetTables();
			ApplyDdl(session, effect, entry.header.planned_version);
			if (changes != nullptr) {
				changes->AddDdl(session, effect);
			}
			break;
		case EffectKind::SequenceState:
			Sequence(effect);
			break;
		case EffectKind::ReadTable:
		case EffectKind::Checksum:
		case EffectKind::Fragment:
		case EffectKind::FragmentsEnd:
		case EffectKind::StreamDrop:
		case EffectKind::Placement:
		case EffectKind::Setting:
			break;
		}
	}
}

void EffectApplier::TellRows(const Effect &effect) {
	if (changes != nullptr) {
		changes->AddRows(session, effect);
	}
}

void EffectApplier::Insert(const Effect &effect) {
	auto &table = session.Table(effect.object);
	for (auto &batch : effect.batches) {
		duckdb::DataChunk chunk;
		DecodeChunk(batch.new_rows, table.types, chunk);
		session.Append(table, chunk);
		rows += chunk.size();
	}
}

void EffectApplier::Delete(const Effect &effect, std::vector<LocatedBatch> &batches) {
	auto &table = session.Table(effect.object);
	for (auto &batch : batches) {
		DeleteRows(table, batch);
		rows += batch.row_ids.size();
	}
}

void EffectApplier::DeleteRows(ApplyTable &table, LocatedBatch &batch) {
	auto row_ids = RowIdVector(batch.row_ids);
	if (table.has_unique_index) {
		// So that the same key can be inserted again in this transaction.
		duckdb::LocalAppendState append;
		table.storage->InitializeLocalStorage(append, *table.entry, session.Context(), table.foreign_keys);
		append.storage->AppendToDeleteIndexes(row_ids, *batch.old_rows);
	}
	auto state = table.storage->InitializeDelete(*table.entry, session.Context(), table.foreign_keys);
	auto deleted = table.storage->Delete(*state, session.Context(), *table.entry, row_ids, batch.row_ids.size());
	if (deleted != batch.row_ids.size()) {
		throw duckdb::InternalException("apply: %llu of %llu located rows could be deleted", deleted,
		                                duckdb::idx_t(batch.row_ids.size()));
	}
}

void EffectApplier::Update(const Effect &effect, std::vector<LocatedBatch> &batches) {
	auto &table = session.Table(effect.object);
	duckdb::vector<duckdb::LogicalType> new_types;
	duckdb::vector<duckdb::PhysicalIndex> columns;
	bool is_indexed = false;
	for (auto column : effect.columns) {
		if (column >= table.types.size()) {
			throw duckdb::SerializationException("log entry updates a column that its table does not have");
		}
		is_indexed = is_indexed || table.indexed_columns.count(column) != 0;
		new_types.push_back(table.types[column]);
		columns.emplace_back(column);
	}
	for (size_t i = 0; i < batches.size(); i++) {
		duckdb::DataChunk new_rows;
		DecodeChunk(effect.batches[i].new_rows, new_types, new_rows);
		rows += new_rows.size();
		if (is_indexed) {
			ReplaceRows(table, batches[i], columns, new_rows);
			continue;
		}
		auto row_ids = RowIdVector(batches[i].row_ids);
		auto state = table.storage->InitializeUpdate(*table.entry, session.Context(), {});
		table.storage->Update(*state, session.Context(), *table.entry, row_ids, columns, new_rows);
	}
}

//! Update as delete and insert. DataTable::Update would leave an index on the columns stale, without a word. The
//! executing node plans such updates this way too, except in the transaction that declares the index.
void EffectApplier::ReplaceRows(ApplyTable &table, LocatedBatch &batch,
                                const duckdb::vector<duckdb::PhysicalIndex> &columns, duckdb::DataChunk &new_values) {
	DeleteRows(table, batch);
	duckdb::DataChunk replaced;
	replaced.InitializeEmpty(table.types);
	replaced.Reference(*batch.old_rows);
	for (size_t i = 0; i < columns.size(); i++) {
		replaced.data[columns[i].index].Reference(new_values.data[i]);
	}
	session.Append(table, replaced);
	session.FinishAppends();
}

void EffectApplier::Sequence(const Effect &effect) {
	auto sequence =
	    duckdb::Catalog::GetEntry<duckdb::SequenceCatalogEntry>(session.Context(), QualifiedNameOf(effect.object),
		                                                        duckdb::OnEntryNotFound::RETURN_NULL);
	if (!sequence) {
		throw Rejected {
		    Status(ErrorCode::SchemaChanged, "sequence \"" + effect.object.ToString() + "\" no longer exists")};
	}
	sequence_moves.push_back({&effect, SequenceStateOf(*sequence), effect.sequence});
}

} // namespace catalog
} // namespace quack
