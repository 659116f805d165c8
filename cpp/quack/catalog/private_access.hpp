//! The members of DuckDB that capture, apply and eviction need and DuckDB 2.0.1 does not export. Reached by explicit
//! instantiation of a template, which C++ exempts from access checks ([temp.spec.general]/6): no patched DuckDB.
#pragma once

#include <set>

#include "duckdb.hpp"
#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include "duckdb/execution/index/art/art.hpp"
#include "duckdb/storage/single_file_block_manager.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/local_storage.hpp"
#include "duckdb/transaction/undo_buffer_allocator.hpp"

namespace quack {
namespace catalog {

duckdb::UndoBufferAllocator &UndoRecordsOf(duckdb::DuckTransaction &transaction);
duckdb::LocalTableManager &LocalTablesOf(duckdb::LocalStorage &storage);
//! Row ids under `key`; false when there are more than `max_count`.
bool SearchIndex(const duckdb::ART &index, const duckdb::ARTKey &key, duckdb::idx_t max_count,
                 std::set<duckdb::row_t> &row_ids);
//! Shared by all versions of the sequence; outlives its catalog entry.
duckdb::shared_ptr<duckdb::SequenceState> SequenceStateOf(duckdb::SequenceCatalogEntry &sequence);
//! The session's lock.
duckdb::mutex &SessionLockOf(duckdb::ClientContext &context);
//! Under the session's lock: a query has begun and was not ended yet. Until its end worker threads use the session's
//! transaction without the lock.
bool HasActiveQuery(const duckdb::ClientContext &context);

//! Blocks that the file of the last checkpoint does not use: they may hold anything.
const duckdb::set<duckdb::block_id_t> &FreeBlocksOf(const duckdb::SingleFileBlockManager &blocks);

} // namespace catalog
} // namespace quack
