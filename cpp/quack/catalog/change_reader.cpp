#include "quack/catalog/change_reader.hpp"

#include <algorithm>

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/common/vector_operations/vector_operations.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "quack/catalog/chunk_codec.hpp"
#include "quack/catalog/coded_error.hpp"
#include "quack/catalog/meta_store.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::idx_t;
using duckdb::LogicalType;

//! All rows of a table of `__quack`, in the order in which they were appended.
class MetaScan {
public:
	//! False when the table is not in the snapshot.
	bool Open(duckdb::ClientContext &context, const std::string &name) {
		auto qualified = duckdb::QualifiedName(duckdb::Identifier(CATALOG_NAME), duckdb::Identifier(META_SCHEMA),
		                                       duckdb::Identifier(name));
		auto entry = duckdb::Catalog::GetEntry<duckdb::TableCatalogEntry>(context, qualified,
		                                                                  duckdb::OnEntryNotFound::RETURN_NULL);
		if (!entry) {
			return false;
		}
		auto &table = entry->Cast<duckdb::DuckTableEntry>();
		storage = &table.GetStorage();
		transaction = &duckdb::DuckTransaction::Get(context, table.catalog);
		auto types = storage->GetTypes();
		duckdb::vector<duckdb::StorageIndex> columns;
		for (idx_t i = 0; i < types.size(); i++) {
			columns.emplace_back(i);
		}
		state = std::make_unique<duckdb::TableScanState>();
		storage->InitializeScan(context, *transaction, *state, columns);
		chunk.Initialize(duckdb::Allocator::DefaultAllocator(), types);
		return true;
	}

	//! Null = the end. Valid until the next call.
	duckdb::DataChunk *Next() {
		chunk.Reset();
		storage->Scan(*transaction, chunk, *state);
		return chunk.size() == 0 ? nullptr : &chunk;
	}

private:
	duckdb::DataTable *storage = nullptr;
	duckdb::DuckTransaction *transaction = nullptr;
	std::unique_ptr<duckdb::TableScanState> state;
	duckdb::DataChunk chunk;
};

//! The feed as the snapshot has it.
ChangeFeed LoadFeed(duckdb::ClientContext &context) {
	ChangeFeed feed;
	MetaScan scan;
	if (!scan.Open(context, "state")) {
		return feed;
	}
	while (auto *rows = scan.Next()) {
		rows->Flatten(); // nearly all rows are about something else
		auto *kinds = duckdb::FlatVector::GetData<uint8_t>(rows->data[1]);
		for (idx_t i = 0; i < rows->size(); i++) {
			auto kind = StateKind(kinds[i]);
			if (kind >= StateKind::ChangeSetting) {
				LoadChangeRow(kind, rows->GetValue(0, i).GetValue<uint64_t>(),
				              duckdb::StringValue::Get(rows->GetValue(2, i)),
				              duckdb::StringValue::Get(rows->GetValue(3, i)), feed);
			}
		}
	}
	return feed;
}

const char *NameOf(ChangeKind kind, bool is_new) {
	switch (kind) {
	case ChangeKind::Insert:
		return "insert";
	case ChangeKind::Delete:
		return "delete";
	default:
		return is_new ? "update_postimage" : "update_preimage";
	}
}

template <class T>
void Put(duckdb::DataChunk &output, idx_t column, idx_t row, T value) {
	duckdb::FlatVector::GetDataMutable<T>(output.data[column])[row] = value;
}

void PutText(duckdb::DataChunk &output, idx_t column, idx_t row, const std::string &text) {
	auto &vector = output.data[column];
	Put(output, column, row, duckdb::StringVector::AddString(vector, text));
}

} // namespace

const char *const CHANGE_OWN_NAMES[] = {"change", "commit_group", "commit_index", "commit_order", "request_id"};

LogicalType ChangeOwnType(idx_t column) {
	return column == 0 || column == 4 ? LogicalType::VARCHAR : LogicalType::UBIGINT;
}

//===----------------------------------------------------------------------===//
// One group
//===----------------------------------------------------------------------===//

//! The kept batches of one table in one group, in the order of the group's log.
class ChangeScan::Cursor {
public:
	Cursor(duckdb::ClientContext &context_p, raft::GroupId group, const ChangeGroup &known, raft::LogIndex from_p,
	       raft::LogIndex to_p, std::string table_id_p)
	    : context(context_p), from(from_p), to(to_p), table_id(std::move(table_id_p)) {
		change.group = group;
		for (auto &segment : known.segments) {
			if (segment.second.last > from) {
				segments.push_back(segment.first);
			}
		}
		Advance();
	}

	bool IsDone() const {
		return is_done;
	}
	const StoredChange &Get() const {
		return change;
	}

	void Advance() {
		while (!is_done) {
			if (rows == nullptr && !NextRows()) {
				is_done = true;
			} else if (row == rows->size()) {
				rows = nullptr;
			} else if (Take(row++)) {
				return;
			}
		}
	}

private:
	bool NextRows() {
		for (;;) {
			rows = scan ? scan->Next() : nullptr;
			row = 0;
			if (rows != nullptr) {
				return true;
			}
			context.InterruptCheck();
			if (next_segment == segments.size()) {
				return false;
			}
			auto name = ChangeTableName(change.group, segments[next_segment++]);
			scan = std::make_unique<MetaScan>();
			if (!scan->Open(context, name)) {
				throw duckdb::InternalException("table __quack.%s of the change feed is missing", name);
			}
			definitions.clear();
		}
	}

	uint64_t Number(idx_t column, idx_t at) const {
		return rows->GetValue(column, at).GetValue<uint64_t>();
	}
	std::string Bytes(idx_t column, idx_t at) const {
		return duckdb::StringValue::Get(rows->GetValue(column, at));
	}

	//! True when it is one to hand out.
	bool Take(idx_t at) {
		auto kind = ChangeKind(Number(CHANGE_KIND, at));
		if (kind == ChangeKind::Definition) {
			definitions[Bytes(CHANGE_DEFINITION, at)] =
			    std::make_shared<const ChangeDefinition>(DecodeDefinition(Bytes(CHANGE_NEW_ROWS, at)));
			return false;
		}
		auto index = Number(CHANGE_INDEX, at);
		if (index > to) {
			is_done = true;
			return false;
		}
		if (index <= from || Bytes(CHANGE_TABLE, at) != table_id) {
			return false;
		}
		change.index = index;
		change.sequence = Number(CHANGE_SEQUENCE, at);
		change.kind = kind;
		change.row_count = Number(CHANGE_ROW_COUNT, at);
		change.bytes = Number(CHANGE_BYTES, at);
		change.request = Bytes(CHANGE_REQUEST, at);
		change.updated = Bytes(CHANGE_UPDATED, at);
		change.old_rows = Bytes(CHANGE_OLD_ROWS, at);
		change.new_rows = Bytes(CHANGE_NEW_ROWS, at);
		change.definition = definitions[Bytes(CHANGE_DEFINITION, at)];
		if (!change.definition) {
			throw duckdb::InternalException("the change feed lacks the definition of the rows of %llu:%llu",
			                                change.group, index);
		}
		return true;
	}

	duckdb::ClientContext &context;
	const raft::LogIndex from;
	const raft::LogIndex to;
	const std::string table_id;
	std::vector<uint64_t> segments;
	size_t next_segment = 0;
	std::unique_ptr<MetaScan> scan;
	duckdb::DataChunk *rows = nullptr; //! null = the next ones must be read
	idx_t row = 0;
	std::map<std::string, std::shared_ptr<const ChangeDefinition>> definitions;
	StoredChange change;
	bool is_done = false;
};

//===----------------------------------------------------------------------===//
// All groups
//===----------------------------------------------------------------------===//

ChangeScan::ChangeScan(duckdb::ClientContext &context, ReplicatedCatalog &catalog, const ObjectName &table,
                       std::optional<AppliedVector> from, std::optional<AppliedVector> to) {
	auto &core = *catalog.Core();
	auto applied = core.transactions.SnapshotOf(duckdb::DuckTransaction::Get(context, catalog));
	auto feed = LoadFeed(context);
	if (!feed.IsOn()) {
		ThrowCoded(
		    Status(ErrorCode::NotSupported,
			       "this cluster keeps no changes; SELECT quack_changes_set_retention('512MB') makes every group "
			       "keep that much from then on"));
	}
	range.from = from ? *from : feed.Floors();
	range.to = to ? *to : *applied;
	for (auto *vector : {&range.from, &range.to}) {
		for (auto &position : *vector) {
			if (position.second > IndexIn(*applied, position.first)) {
				ThrowCoded(Status(ErrorCode::Unavailable,
				                  "position " + std::to_string(position.first) + ":" + std::to_string(position.second) +
				                      " is ahead of what this transaction sees on node " + core.options.node_id + " (" +
				                      PositionsToText(*applied) +
				                      "); ask again, or another node, when the entry is applied there"));
			}
		}
	}
	auto kept = feed.CheckKept(range.from);
	if (!kept.IsOk()) {
		ThrowCoded(kept);
	}
	for (auto &position : range.from) {
		if (position.second > IndexIn(range.to, position.first)) {
			ThrowCoded(Status(ErrorCode::InvalidArgument,
			                  "the changes end before they begin: from '" + PositionsToText(range.from) + "' to '" +
			                      PositionsToText(range.to) + "' (group " + std::to_string(position.first) + ")"));
		}
	}
	for (auto &group : feed.groups) {
		auto begin = IndexIn(range.from, group.first);
		auto end = IndexIn(range.to, group.first);
		if (begin < end) {
			cursors.push_back(
			    std::make_unique<Cursor>(context, group.first, group.second, begin, end, feed.TableId(table.Key())));
		}
	}
}

ChangeScan::~ChangeScan() = default;

const StoredChange *ChangeScan::Next() {
	if (current != nullptr) {
		current->Advance();
		current = nullptr;
	}
	for (auto &cursor : cursors) {
		if (!cursor->IsDone() && (current == nullptr || cursor->Get().sequence < current->Get().sequence)) {
			current = cursor.get();
		}
	}
	return current == nullptr ? nullptr : &current->Get();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

ChangeRows::ChangeRows(duckdb::ClientContext &context_p, std::unique_ptr<ChangeScan> scan_p, ChangeDefinition present_p,
                       std::string table_name_p)
    : context(context_p), scan(std::move(scan_p)), present(std::move(present_p)), table_name(std::move(table_name_p)) {
}

//! By name, as the table is now.
void ChangeRows::Map(const StoredChange &stored, duckdb::DataChunk &rows, duckdb::DataChunk &mapped) {
	auto &then = *stored.definition;
	auto count = rows.size();
	mapped.Destroy();
	mapped.Initialize(duckdb::Allocator::DefaultAllocator(), present.types,
	                  duckdb::MaxValue<idx_t>(count, STANDARD_VECTOR_SIZE));
	for (size_t i = 0; i < present.types.size(); i++) {
		auto &target = mapped.data[i];
		auto found = std::find_if(then.names.begin(), then.names.end(), [&](const std::string &name) {
			return duckdb::StringUtil::CIEquals(name, present.names[i]);
		});
		if (found == then.names.end()) {
			target.Reference(duckdb::Value(present.types[i]), duckdb::count_t(count));
			continue;
		}
		auto column = size_t(found - then.names.begin());
		if (then.types[column] == present.types[i]) {
			target.Reference(rows.data[column]);
			continue;
		}
		std::string error;
		if (!duckdb::VectorOperations::TryCast(context, rows.data[column], target, count, &error)) {
			ThrowCoded(Status(ErrorCode::InvalidArgument,
			                  "column \"" + present.names[i] + "\" of table \"" + table_name + "\" was " +
			                      then.types[column].ToString() + " when the change at " +
			                      std::to_string(stored.group) + ":" + std::to_string(stored.index) +
			                      " was made, and a value of it is no " + present.types[i].ToString() + " (" + error +
			                      "); read from a position behind it"));
		}
	}
	mapped.SetChildCardinality(count);
}

void ChangeRows::Load(const StoredChange &stored) {
	auto &types = stored.definition->types;
	emitted = 0;
	row_count = stored.row_count;
	duckdb::DataChunk before;
	duckdb::DataChunk after;
	if (stored.kind == ChangeKind::Insert) {
		DecodeChunk(stored.new_rows, types, after);
		Map(stored, after, new_rows);
		return;
	}
	DecodeChunk(stored.old_rows, types, before);
	Map(stored, before, old_rows);
	if (stored.kind == ChangeKind::Delete) {
		return;
	}
	row_count *= 2;
	duckdb::vector<LogicalType> updated_types;
	std::vector<uint32_t> updated;
	for (ByteReader reader(stored.updated); reader.Remaining() > 0;) {
		updated.push_back(reader.GetU32());
		updated_types.push_back(types.at(updated.back()));
	}
	duckdb::DataChunk values;
	DecodeChunk(stored.new_rows, updated_types, values);
	after.InitializeEmpty(types);
	after.Reference(before);
	for (size_t i = 0; i < updated.size(); i++) {
		after.data[updated[i]].Reference(values.data[i]);
	}
	Map(stored, after, new_rows);
}

//! As many rows of the batch as fit behind `filled`; how many.
idx_t ChangeRows::Emit(duckdb::DataChunk &output, idx_t filled) {
	auto is_update = change->kind == ChangeKind::Update;
	auto count = duckdb::MinValue<idx_t>(STANDARD_VECTOR_SIZE - filled, row_count - emitted);
	RequestId id {};
	std::copy_n(change->request.begin(), std::min(change->request.size(), id.size()), id.begin());
	auto request = RequestIdToString(id);
	for (idx_t i = 0; i < count; i++) {
		auto row = emitted + i;
		auto is_new = is_update ? row % 2 == 1 : change->kind == ChangeKind::Insert;
		auto &rows = is_new ? new_rows : old_rows;
		auto source = is_update ? row / 2 : row;
		PutText(output, 0, filled + i, NameOf(change->kind, is_new));
		Put<uint64_t>(output, 1, filled + i, change->group);
		Put<uint64_t>(output, 2, filled + i, change->index);
		Put<uint64_t>(output, 3, filled + i, order++);
		PutText(output, 4, filled + i, request);
		if (is_update) {
			for (idx_t c = 0; c < rows.ColumnCount(); c++) {
				duckdb::VectorOperations::Copy(rows.data[c], output.data[CHANGE_OWN_COLUMNS + c], source + 1, source,
				                               filled + i);
			}
		}
	}
	if (!is_update) {
		auto &rows = change->kind == ChangeKind::Insert ? new_rows : old_rows;
		for (idx_t c = 0; c < rows.ColumnCount(); c++) {
			duckdb::VectorOperations::Copy(rows.data[c], output.data[CHANGE_OWN_COLUMNS + c], emitted + count, emitted,
			                               filled);
		}
	}
	emitted += count;
	return count;
}

void ChangeRows::Read(duckdb::DataChunk &output) {
	idx_t filled = 0;
	while (filled < STANDARD_VECTOR_SIZE) {
		if (change == nullptr) {
			change = scan->Next();
			if (change == nullptr) {
				break;
			}
			if (entry != std::make_pair(change->group, change->index)) {
				entry = {change->group, change->index};
				order = 0;
			}
			Load(*change);
		}
		filled += Emit(output, filled);
		if (emitted == row_count) {
			change = nullptr;
		}
	}
	output.SetChildCardinality(filled);
}

} // namespace catalog
} // namespace quack
