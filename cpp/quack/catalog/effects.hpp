//! The payload of a log entry: what one transaction did, as typed changes in execution order. Format version 3:
//!
//!   u16 format version | u8 flags (1 = body is zstd, 2 = has DDL) | 16 bytes request id | u64 incarnation
//!   | u64 planned version | u64 snapshot index | u64 base index | varint effect count | varint plain body size | body
//!
//! An entry carries the lowest version that knows all its effects: Checksum came with 2; Fragment, FragmentsEnd and
//! StreamDrop with 3; Placement and Setting with 4; the setting changes_retention with 6 (5 is
//! node/transaction_entry.hpp).
//!
//! Body, per effect: u8 kind | object name | kind-specific part. Little-endian throughout (common/bytes.hpp). Rows are
//! DuckDB vectors in its binary serialization (chunk_codec.hpp), without types: these follow from the table's
//! definition at the planned version.
//!
//! The effects of a transaction that is too large for one entry are a stream of frames, each a body of its own, whose
//! bytes travel in Fragment entries (fragments.hpp):
//!
//!   u8 flags (1 = zstd) | u32 effect count | u64 plain size | u64 stored size | body
//!
//! The entry that ends the stream holds FragmentsEnd, then for each object what kinds of changes the frames make to it
//! (effects without rows and definitions, for the checks before anything is executed), then sequences and reads.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "quack/catalog/fragments.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! The newest; all older ones are read. An entry carries the lowest version that knows all its effects.
constexpr uint16_t ENTRY_FORMAT_VERSION = 6;

//! Names of settings. The first: "on" or "off"; the second: u64, ChangeFeed::retention.
constexpr const char *SETTING_MULTIRAFT_SQL = "multiraft_sql";
constexpr const char *SETTING_CHANGES_RETENTION = "changes_retention";

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
	Checksum = 7,
	Fragment = 8,     //! the only effect of its entry, which has no outcome; content: fragments.hpp
	FragmentsEnd = 9, //! the first effect of its entry; content: fragments.hpp
	StreamDrop = 10,  //! the only effect of its entry; content: the id of a stream that nobody will end
	Placement = 16,   //! where a table lives from now on; content: Encode(PlacementChange)
	Setting = 17      //! object.name: of the setting; content: its value
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
	//! Checksum, Fragment, FragmentsEnd, StreamDrop.
	ByteView content;
};

struct EntryHeader {
	RequestId request_id {};
	//! One life of the executing node's database; decides whether a sequence use is its own (DESIGN.md, Sequences).
	uint64_t incarnation = 0;
	//! Catalog version of the executing transaction's snapshot.
	uint64_t planned_version = 0;
	//! Index of the entry's group applied on the executing node before that snapshot was taken.
	uint64_t snapshot_index = 0;
	//! See RequestId: of the request, or later.
	uint64_t base_index = 0;
	bool has_ddl = false;
};

struct DecodedEntry {
	EntryHeader header;
	std::vector<Effect> effects; //! views into body
	std::string body;

	bool EndsStream() const {
		return !effects.empty() && effects.front().kind == EffectKind::FragmentsEnd;
	}
};

//! Takes frames as they are cut. Throws what stops the writer.
using FrameSink = std::function<void(ByteView frame)>;

//! Builds the body. Usage: BeginRows, AddBatch..., EndRows; or one of the others.
class EffectWriter {
public:
	//! Never splits.
	EffectWriter() = default;
	//! As soon as rows and DDL take more than `split_bytes`, they go to the sink, in frames of about that size.
	EffectWriter(size_t split_bytes_p, FrameSink sink_p) : split_bytes(split_bytes_p), sink(std::move(sink_p)) {
	}

	void BeginRows(EffectKind kind, const ObjectName &table, const std::vector<uint32_t> &columns);
	void AddBatch(const std::vector<int64_t> &row_ids, ByteView old_rows, ByteView new_rows);
	void EndRows();
	//! Takes the parts of `effect` that belong to a DDL action.
	void AddDdl(const Effect &effect);
	//! Sequences and reads come after all rows and DDL.
	void AddSequence(const ObjectName &sequence, const SequenceUse &use);
	void AddRead(const ObjectName &table);
	void AddChecksum(ByteView content);
	void AddFragment(const Fragment &fragment);
	void AddStreamDrop(const StreamId &stream);
	//! Counts as DDL of the table.
	void AddPlacement(const ObjectName &table, ByteView change);
	void AddSetting(const std::string &name, ByteView value);
	//! Counts as DDL: it begins a new version of the catalog.
	void AddChangesRetention(uint64_t bytes);

	uint32_t Count() const {
		return rows.count + rest.count + summary.count;
	}
	//! It is too large for one entry: FinishFrames comes before Finish, which needs the end of the stream.
	bool IsSplit() const {
		return is_split || rows.bytes.size() > split_bytes;
	}
	//! Of all frames, before compression.
	uint64_t FramedBytes() const {
		return framed_bytes;
	}
	//! Cuts the last frame.
	void FinishFrames();
	//! The finished payload; compressed above 4 KiB when that saves at least an eighth.
	std::string Finish(const EntryHeader &header) const;
	//! Of a writer that split.
	std::string Finish(const EntryHeader &header, const FragmentsEnd &end) const;

private:
	struct Body {
		std::string bytes;
		uint32_t count = 0;
	};
	void PutRowsHead(Body &body) const;
	void AddContent(EffectKind kind, ByteView content, uint16_t needs_version, const ObjectName &object = ObjectName());
	void Summarize(EffectKind kind, const ObjectName &object);
	void CutFrame();
	std::string Assemble(const EntryHeader &header, const Body &body) const;

	const size_t split_bytes = SIZE_MAX;
	const FrameSink sink;
	Body rows; //! rows and DDL that are in no frame yet
	Body rest;
	Body summary; //! what rows and DDL change, without their content
	std::set<std::pair<EffectKind, std::string>> summarized;
	//! The effect whose batches are being added.
	EffectKind open_kind = EffectKind::InsertRows;
	ObjectName open_table;
	std::vector<uint32_t> open_columns;
	uint64_t framed_bytes = 0;
	bool is_split = false;
	bool has_ddl = false;
	bool is_compressed = false;
	uint16_t version = 1;
};

//! Corruption or Incompatible. The views of the result point into its own body.
Result<std::unique_ptr<DecodedEntry>> DecodeEntry(ByteView payload);

//! Reads the frames of a stream.
class FrameReader {
public:
	//! The bytes that follow, in pieces; empty = the end. Throws what stops the reader.
	using NextPiece = std::function<std::string()>;
	explicit FrameReader(NextPiece next_p) : next(std::move(next_p)) {
	}

	//! Its header is not set; null = the end of the stream. Corruption. Holds one frame and one piece in memory.
	Result<std::unique_ptr<DecodedEntry>> Next();

private:
	//! False when the stream ends before `size` bytes are there.
	bool Fill(size_t size);

	NextPiece next;
	std::string buffer;
	size_t offset = 0;
};

//! The planned version in the header of an entry, without decoding it; 0 when it is cut short.
raft::LogIndex PlannedVersionOf(ByteView payload);

//! The row ids of a batch.
std::vector<int64_t> DecodeRowIds(ByteView bytes);

} // namespace catalog
} // namespace quack
