#include "quack/catalog/private_access.hpp"

#include "duckdb/execution/index/art/art_key.hpp"
#include "duckdb/main/active_query_context.hpp"
#include "duckdb/main/client_context.hpp"

namespace quack {
namespace catalog {
namespace {

template <class Tag, typename Tag::type MEMBER>
struct Expose {
	friend typename Tag::type Get(Tag) {
		return MEMBER;
	}
};

struct UndoBufferOf {
	using type = duckdb::UndoBuffer duckdb::DuckTransaction::*;
	friend type Get(UndoBufferOf);
};
template struct Expose<UndoBufferOf, &duckdb::DuckTransaction::undo_buffer>;

struct AllocatorOf {
	using type = duckdb::UndoBufferAllocator duckdb::UndoBuffer::*;
	friend type Get(AllocatorOf);
};
template struct Expose<AllocatorOf, &duckdb::UndoBuffer::allocator>;

struct TableManagerOf {
	using type = duckdb::LocalTableManager duckdb::LocalStorage::*;
	friend type Get(TableManagerOf);
};
template struct Expose<TableManagerOf, &duckdb::LocalStorage::table_manager>;

struct SearchEqualOf {
	using type = bool (duckdb::ART::*)(const duckdb::ARTKey &, duckdb::idx_t, duckdb::set<duckdb::row_t> &) const;
	friend type Get(SearchEqualOf);
};
template struct Expose<SearchEqualOf, &duckdb::ART::SearchEqual>;

struct StateOf {
	using type = duckdb::shared_ptr<duckdb::SequenceState> duckdb::SequenceCatalogEntry::*;
	friend type Get(StateOf);
};
template struct Expose<StateOf, &duckdb::SequenceCatalogEntry::state>;

struct ActiveQueryOf {
	using type = duckdb::unique_ptr<duckdb::ActiveQueryContext> duckdb::ClientContext::*;
	friend type Get(ActiveQueryOf);
};
template struct Expose<ActiveQueryOf, &duckdb::ClientContext::active_query>;

struct SessionLock {
	using type = duckdb::mutex duckdb::ClientContext::*;
	friend type Get(SessionLock);
};
template struct Expose<SessionLock, &duckdb::ClientContext::context_lock>;

struct FreeListOf {
	using type = duckdb::set<duckdb::block_id_t> duckdb::SingleFileBlockManager::*;
	friend type Get(FreeListOf);
};
template struct Expose<FreeListOf, &duckdb::SingleFileBlockManager::free_list>;

} // namespace

duckdb::UndoBufferAllocator &UndoRecordsOf(duckdb::DuckTransaction &transaction) {
	return (transaction.*Get(UndoBufferOf())).*Get(AllocatorOf());
}

duckdb::LocalTableManager &LocalTablesOf(duckdb::LocalStorage &storage) {
	return storage.*Get(TableManagerOf());
}

bool SearchIndex(const duckdb::ART &index, const duckdb::ARTKey &key, duckdb::idx_t max_count,
                 std::set<duckdb::row_t> &row_ids) {
	return (index.*Get(SearchEqualOf()))(key, max_count, row_ids);
}

duckdb::shared_ptr<duckdb::SequenceState> SequenceStateOf(duckdb::SequenceCatalogEntry &sequence) {
	return sequence.*Get(StateOf());
}

duckdb::mutex &SessionLockOf(duckdb::ClientContext &context) {
	return context.*Get(SessionLock());
}

bool HasActiveQuery(const duckdb::ClientContext &context) {
	return (context.*Get(ActiveQueryOf())) != nullptr;
}

const duckdb::set<duckdb::block_id_t> &FreeBlocksOf(const duckdb::SingleFileBlockManager &blocks) {
	return blocks.*Get(FreeListOf());
}

} // namespace catalog
} // namespace quack
