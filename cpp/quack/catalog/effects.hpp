//! The payload of a log entry: what one transaction did, as typed changes in execution order. Format version 2:
//!
//!   u16 format version | u8 flags (1 = body is zstd, 2 = has DDL) | 16 bytes request id | u64 incarnation
//!   | u64 planned version | u64 snapshot index | u64 base index | varint effect count | varint plain body size | body
//!
//! An entry without a Checksum effect, which version 1 does not know, carries version 1.
//!
//! Body, per effect: u8 kind | object name | kind-specific part. Little-endian throughout (common/bytes.hpp). Rows are
//! DuckDB vectors in its binary serialization (chunk_codec.hpp), without types: these follow from the table's
//! definition at the planned version.
#pragma once

#include <string>
#include <vector>

#include "quack/catalog/replicated_database.hpp"
#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! The newest; all older ones are read. An entry carries the lowest version that knows all its effects.
constexpr uint16_t ENTRY_FORMAT_VERSION = 2;

//! ReadTable changes nothing: the entry must be rejected when the table was changed after the transaction's snapshot;
//! an empty name means any table. Checksum changes nothing either: without content it marks the place in the log at
//! which every node hashes its state, else the content is a node's ChecksumReport. It is the only effect of its entry.
enum class EffectKind : uint8_t {
	InsertRows = 1,
	DeleteRows = 2,
	UpdateRows = 3,
	Ddl = 4,
	SequenceState = 5,
	ReadTable = 6,
	Checksum = 7
};
enum class DdlAction : uint8_t { Create = 1, Alter = 2, Drop = 3 };

//! A catalog object: its (possibly nested) schema path without the catalog, and its name.
struct ObjectName {
	std::vector<std::string> schema;
	std::string name;

	//! Equal for names that DuckDB treats as equal (case-insensitive).
	std::string Key() const;
	//! For messages: a.b.c
	std::string ToString() const;
};

//! Some rows of one effect. row_ids: u64 each, a hint where the executing node saw the rows, deletes and updates only.
//! new_rows of an update holds the changed columns only.
struct RowBatch {
	ByteView row_ids;
	ByteView old_rows;
	ByteView new_rows;
};

struct SequenceUse {
	uint64_t usage_count = 0;
	int64_t counter = 0;
	bool has_last_value = false;
	int64_t last_value = 0;
};

struct Effect {
	EffectKind kind = EffectKind::InsertRows;
	ObjectName object;
	//! UpdateRows: physical indexes of the changed columns.
	std::vector<uint32_t> columns;
	std::vector<RowBatch> batches;
	//! Ddl.
	DdlAction action = DdlAction::Create;
	uint8_t catalog_type = 0;
	ByteView definition;
	//! Names whose meaning the DDL changes (the object, its old name, its table).
	std::vector<ObjectName> touched;
	//! Ddl: an index is built over the rows of a table.
	bool builds_index = false;
	//! Schemas that unqualified names in the definition were looked up in, in order.
	std::vector<std::vector<std::string>> search_path;
	SequenceUse sequence;
	//! Checksum.
	ByteView content;
};

struct EntryHeader {
	RequestId request_id {};
	//! One life of the executing node's database; decides whether a sequence use is its own (DESIGN.md, Sequences).
	uint64_t incarnation = 0;
	//! Catalog version of the executing transaction's snapshot.
	uint64_t planned_version = 0;
	//! Root index applied on the executing node before that snapshot was taken.
	uint64_t snapshot_index = 0;
	//! Root index applied on the executing node when the entry was first proposed.
	uint64_t base_index = 0;
	bool has_ddl = false;
};

struct DecodedEntry {
	EntryHeader header;
	std::vector<Effect> effects; //! views into body
	std::string body;
};

//! Builds the body. Usage: BeginRows, AddBatch..., EndRows; or one of the other two.
class EffectWriter {
public:
	void BeginRows(EffectKind kind, const ObjectName &table, const std::vector<uint32_t> &columns);
	void AddBatch(const std::vector<int64_t> &row_ids, ByteView old_rows, ByteView new_rows);
	void EndRows();
	//! Takes the parts of `effect` that belong to a DDL action.
	void AddDdl(const Effect &effect);
	void AddSequence(const ObjectName &sequence, const SequenceUse &use);
	void AddRead(const ObjectName &table);
	void AddChecksum(ByteView content);

	uint32_t Count() const {
		return count;
	}
	bool HasDdl() const {
		return has_ddl;
	}
	//! Bytes so far.
	size_t Size() const {
		return body.size();
	}
	//! The finished payload; compressed above 4 KiB when that saves at least an eighth.
	std::string Finish(const EntryHeader &header) const;

private:
	std::string body;
	uint32_t count = 0;
	bool has_ddl = false;
	uint16_t version = 1;
};

//! Corruption or Incompatible. The views of the result point into its own body.
Result<std::unique_ptr<DecodedEntry>> DecodeEntry(ByteView payload);

//! The row ids of a batch.
std::vector<int64_t> DecodeRowIds(ByteView bytes);

} // namespace catalog
} // namespace quack
