#include "quack/catalog/effects.hpp"

#include <algorithm>
#include <cstring>

#include "duckdb/common/string_util.hpp"
#include "quack/common/limits.hpp"
#include "quack/node/transaction_entry.hpp"
#include "zstd.h"

namespace quack {
namespace catalog {
namespace {

constexpr uint8_t FLAG_ZSTD = 1;
constexpr uint8_t FLAG_DDL = 2;
constexpr size_t COMPRESS_ABOVE = 4096;
constexpr size_t FRAME_HEADER_BYTES = 1 + 4 + 8 + 8;

void PutName(ByteWriter &writer, const ObjectName &object) {
	writer.PutVarint(object.schema.size());
	for (auto &part : object.schema) {
		writer.PutBytes(part);
	}
	writer.PutBytes(object.name);
}

ObjectName GetName(ByteReader &reader) {
	ObjectName object;
	auto parts = reader.GetVarint();
	for (uint64_t i = 0; i < parts && !reader.Failed(); i++) {
		object.schema.emplace_back(reader.GetBytes());
	}
	object.name = std::string(reader.GetBytes());
	return object;
}

void ReadRows(ByteReader &reader, Effect &effect) {
	auto columns = reader.GetVarint();
	for (uint64_t i = 0; i < columns && !reader.Failed(); i++) {
		effect.columns.push_back(uint32_t(reader.GetVarint()));
	}
	while (reader.GetU8() == 1 && !reader.Failed()) {
		RowBatch batch;
		batch.row_ids = reader.GetBytes();
		batch.old_rows = reader.GetBytes();
		batch.new_rows = reader.GetBytes();
		effect.batches.push_back(batch);
	}
}

void ReadDdl(ByteReader &reader, Effect &effect) {
	effect.action = DdlAction(reader.GetU8());
	effect.catalog_type = reader.GetU8();
	effect.builds_index = reader.GetU8() != 0;
	auto touched = reader.GetVarint();
	for (uint64_t i = 0; i < touched && !reader.Failed(); i++) {
		effect.touched.push_back(GetName(reader));
	}
	auto schemas = reader.GetVarint();
	for (uint64_t i = 0; i < schemas && !reader.Failed(); i++) {
		effect.search_path.push_back(GetName(reader).schema);
	}
	effect.definition = reader.GetBytes();
}

void ReadSequence(ByteReader &reader, Effect &effect) {
	effect.sequence.usage_count = reader.GetU64();
	effect.sequence.counter = int64_t(reader.GetU64());
	effect.sequence.has_last_value = reader.GetU8() != 0;
	effect.sequence.last_value = int64_t(reader.GetU64());
}

Status ReadEffects(uint64_t count, DecodedEntry &entry) {
	ByteReader reader(entry.body);
	for (uint64_t i = 0; i < count && !reader.Failed(); i++) {
		Effect effect;
		effect.kind = EffectKind(reader.GetU8());
		effect.object = GetName(reader);
		switch (effect.kind) {
		case EffectKind::InsertRows:
		case EffectKind::DeleteRows:
		case EffectKind::UpdateRows:
			ReadRows(reader, effect);
			break;
		case EffectKind::Ddl:
			ReadDdl(reader, effect);
			break;
		case EffectKind::SequenceState:
			ReadSequence(reader, effect);
			break;
		case EffectKind::ReadTable:
			break;
		case EffectKind::Checksum:
		case EffectKind::Fragment:
		case EffectKind::FragmentsEnd:
		case EffectKind::StreamDrop:
		case EffectKind::Placement:
		case EffectKind::Setting:
			effect.content = reader.GetBytes();
			break;
		default:
			return Status(ErrorCode::Corruption,
			              "log entry holds an effect of unknown kind " + std::to_string(unsigned(effect.kind)));
		}
		entry.effects.push_back(std::move(effect));
	}
	if (!reader.Done()) {
		return Status(ErrorCode::Corruption, "log entry body does not hold the number of effects that it announces");
	}
	return Status::Ok();
}

//! `stored` as it was compressed, or not. False when it is not what was announced.
bool Inflate(ByteView stored, bool is_zstd, uint64_t plain_size, std::string &plain) {
	if (plain_size > ENTRY_BODY_BYTES_MAX) {
		return false;
	}
	if (!is_zstd) {
		plain = std::string(stored);
		return plain.size() == plain_size;
	}
	plain.resize(plain_size);
	auto size = duckdb_zstd::ZSTD_decompress(&plain[0], plain_size, stored.data(), stored.size());
	return duckdb_zstd::ZSTD_isError(size) == 0 && size == plain_size;
}

//! Empty when compressing does not pay.
std::string Deflate(ByteView plain) {
	std::string compressed(duckdb_zstd::ZSTD_compressBound(plain.size()), '\0');
	auto size = duckdb_zstd::ZSTD_compress(&compressed[0], compressed.size(), plain.data(), plain.size(), 1);
	auto is_better = duckdb_zstd::ZSTD_isError(size) == 0 && size < plain.size() - plain.size() / 8;
	compressed.resize(is_better ? size : 0);
	return compressed;
}

Status ReadBody(ByteReader &reader, uint8_t flags, DecodedEntry &entry) {
	auto plain_size = reader.GetVarint();
	auto stored = reader.GetRaw(reader.Remaining());
	if (reader.Failed()) {
		return Status(ErrorCode::Corruption, "log entry header is cut short");
	}
	if (!Inflate(stored, (flags & FLAG_ZSTD) != 0, plain_size, entry.body)) {
		return Status(ErrorCode::Corruption, "log entry body has another size than announced");
	}
	return Status::Ok();
}

} // namespace

std::string ObjectName::Key() const {
	std::string key;
	for (auto &part : schema) {
		key += duckdb::StringUtil::Lower(part);
		key.push_back('\0');
	}
	key += duckdb::StringUtil::Lower(name);
	return key;
}

std::string ObjectName::ToString() const {
	std::string text;
	for (auto &part : schema) {
		text += part + ".";
	}
	return text + name;
}

void EffectWriter::PutRowsHead(Body &body) const {
	ByteWriter writer(body.bytes);
	writer.PutU8(uint8_t(open_kind));
	PutName(writer, open_table);
	writer.PutVarint(open_columns.size());
	for (auto column : open_columns) {
		writer.PutVarint(column);
	}
	body.count++;
}

//! Rows without a batch.
void EffectWriter::Summarize(EffectKind kind, const ObjectName &object) {
	if (!summarized.emplace(kind, object.Key()).second) {
		return;
	}
	ByteWriter writer(summary.bytes);
	writer.PutU8(uint8_t(kind));
	PutName(writer, object);
	writer.PutVarint(0);
	writer.PutU8(0);
	summary.count++;
}

void EffectWriter::BeginRows(EffectKind kind, const ObjectName &table, const std::vector<uint32_t> &columns) {
	open_kind = kind;
	open_table = table;
	open_columns = columns;
	Summarize(kind, table);
	PutRowsHead(rows);
}

void EffectWriter::AddBatch(const std::vector<int64_t> &row_ids, ByteView old_rows, ByteView new_rows) {
	if (rows.bytes.size() > split_bytes) {
		EndRows();
		CutFrame();
		PutRowsHead(rows);
	}
	ByteWriter writer(rows.bytes);
	writer.PutU8(1);
	writer.PutVarint(row_ids.size() * 8);
	for (auto row_id : row_ids) {
		writer.PutU64(uint64_t(row_id));
	}
	writer.PutBytes(old_rows);
	writer.PutBytes(new_rows);
}

void EffectWriter::EndRows() {
	ByteWriter(rows.bytes).PutU8(0);
}

namespace {

void PutDdl(std::string &out, const Effect &effect, ByteView definition) {
	ByteWriter writer(out);
	writer.PutU8(uint8_t(EffectKind::Ddl));
	PutName(writer, effect.object);
	writer.PutU8(uint8_t(effect.action));
	writer.PutU8(effect.catalog_type);
	writer.PutU8(effect.builds_index ? 1 : 0);
	writer.PutVarint(effect.touched.size());
	for (auto &name : effect.touched) {
		PutName(writer, name);
	}
	writer.PutVarint(effect.search_path.size());
	for (auto &schema : effect.search_path) {
		PutName(writer, ObjectName {schema, std::string()});
	}
	writer.PutBytes(definition);
}

} // namespace

void EffectWriter::AddDdl(const Effect &effect) {
	if (rows.bytes.size() > split_bytes) {
		CutFrame();
	}
	PutDdl(rows.bytes, effect, effect.definition);
	PutDdl(summary.bytes, effect, ByteView());
	rows.count++;
	summary.count++;
	has_ddl = true;
}

void EffectWriter::AddSequence(const ObjectName &sequence, const SequenceUse &use) {
	ByteWriter writer(rest.bytes);
	writer.PutU8(uint8_t(EffectKind::SequenceState));
	PutName(writer, sequence);
	writer.PutU64(use.usage_count);
	writer.PutU64(uint64_t(use.counter));
	writer.PutU8(use.has_last_value ? 1 : 0);
	writer.PutU64(uint64_t(use.last_value));
	rest.count++;
}

void EffectWriter::AddRead(const ObjectName &table) {
	ByteWriter writer(rest.bytes);
	writer.PutU8(uint8_t(EffectKind::ReadTable));
	PutName(writer, table);
	rest.count++;
}

void EffectWriter::AddContent(EffectKind kind, ByteView content, uint16_t needs_version, const ObjectName &object) {
	ByteWriter writer(rest.bytes);
	writer.PutU8(uint8_t(kind));
	PutName(writer, object);
	writer.PutBytes(content);
	rest.count++;
	version = std::max(version, needs_version);
}

void EffectWriter::AddChecksum(ByteView content) {
	AddContent(EffectKind::Checksum, content, 2);
}

void EffectWriter::AddFragment(const Fragment &fragment) {
	AddContent(EffectKind::Fragment, EncodeFragment(fragment), 3);
	is_compressed = true;
}

void EffectWriter::AddStreamDrop(const StreamId &stream) {
	AddContent(EffectKind::StreamDrop, EncodeStreamId(stream), 3);
}

void EffectWriter::AddPlacement(const ObjectName &table, ByteView change) {
	AddContent(EffectKind::Placement, change, 4, table);
	has_ddl = true;
}

void EffectWriter::AddSetting(const std::string &name, ByteView value) {
	AddContent(EffectKind::Setting, value, 4, ObjectName {{}, name});
}

void EffectWriter::AddChangesRetention(uint64_t bytes) {
	std::string value;
	ByteWriter(value).PutU64(bytes);
	AddContent(EffectKind::Setting, value, 6, ObjectName {{}, SETTING_CHANGES_RETENTION});
	has_ddl = true;
}

void EffectWriter::CutFrame() {
	auto compressed = Deflate(rows.bytes);
	auto &stored = compressed.empty() ? rows.bytes : compressed;
	std::string header;
	ByteWriter writer(header);
	writer.PutU8(compressed.empty() ? 0 : FLAG_ZSTD);
	writer.PutU32(rows.count);
	writer.PutU64(rows.bytes.size());
	writer.PutU64(stored.size());
	sink(header);
	sink(stored);
	framed_bytes += rows.bytes.size();
	rows = Body();
	is_split = true;
}

void EffectWriter::FinishFrames() {
	if (rows.count > 0) {
		CutFrame();
	}
}

std::string EffectWriter::Finish(const EntryHeader &header) const {
	QUACK_CHECK(!IsSplit(), "a stream ends with its FragmentsEnd");
	Body body = rows;
	body.bytes += rest.bytes;
	body.count += rest.count;
	return Assemble(header, body);
}

std::string EffectWriter::Finish(const EntryHeader &header, const FragmentsEnd &end) const {
	QUACK_CHECK(is_split && rows.count == 0, "all frames were cut");
	EffectWriter first;
	first.AddContent(EffectKind::FragmentsEnd, EncodeFragmentsEnd(end), 3);
	first.has_ddl = has_ddl;
	first.version = std::max(first.version, version);
	Body body = first.rest;
	body.bytes += summary.bytes + rest.bytes;
	body.count += summary.count + rest.count;
	return first.Assemble(header, body);
}

std::string EffectWriter::Assemble(const EntryHeader &header, const Body &body) const {
	std::string compressed;
	if (body.bytes.size() > COMPRESS_ABOVE && !is_compressed) {
		compressed = Deflate(body.bytes);
	}
	auto &stored = compressed.empty() ? body.bytes : compressed;
	std::string payload;
	payload.reserve(80 + stored.size());
	ByteWriter writer(payload);
	writer.PutU16(version);
	writer.PutU8(uint8_t((compressed.empty() ? 0 : FLAG_ZSTD) | (has_ddl ? FLAG_DDL : 0)));
	writer.PutRaw(ByteView(reinterpret_cast<const char *>(header.request_id.data()), header.request_id.size()));
	writer.PutU64(header.incarnation);
	writer.PutU64(header.planned_version);
	writer.PutU64(header.snapshot_index);
	writer.PutU64(header.base_index);
	writer.PutVarint(body.count);
	writer.PutVarint(body.bytes.size());
	writer.PutRaw(stored);
	return payload;
}

bool FrameReader::Fill(size_t size) {
	while (buffer.size() - offset < size) {
		auto piece = next();
		if (piece.empty()) {
			return false;
		}
		buffer.erase(0, offset);
		offset = 0;
		buffer += piece;
	}
	return true;
}

Result<std::unique_ptr<DecodedEntry>> FrameReader::Next() {
	if (!Fill(1)) {
		return std::unique_ptr<DecodedEntry>();
	}
	const Status damaged(ErrorCode::Corruption, "a frame of a large transaction does not decode");
	if (!Fill(FRAME_HEADER_BYTES)) {
		return damaged;
	}
	ByteReader reader(ByteView(buffer).substr(offset, FRAME_HEADER_BYTES));
	auto flags = reader.GetU8();
	auto count = reader.GetU32();
	auto plain_size = reader.GetU64();
	auto stored_size = reader.GetU64();
	if (flags > FLAG_ZSTD || plain_size > ENTRY_BODY_BYTES_MAX || stored_size > plain_size) {
		return damaged;
	}
	offset += FRAME_HEADER_BYTES;
	if (!Fill(stored_size)) {
		return damaged;
	}
	auto entry = std::make_unique<DecodedEntry>();
	if (!Inflate(ByteView(buffer).substr(offset, stored_size), flags == FLAG_ZSTD, plain_size, entry->body)) {
		return damaged;
	}
	offset += stored_size;
	auto status = ReadEffects(count, *entry);
	if (!status.IsOk()) {
		return status;
	}
	return entry;
}

Result<std::unique_ptr<DecodedEntry>> DecodeEntry(ByteView payload) {
	ByteReader reader(payload);
	auto version = reader.GetU16();
	if (!reader.Failed() && (version == 0 || version > ENTRY_FORMAT_VERSION)) {
		return Status(ErrorCode::Incompatible, "log entry has format version " + std::to_string(version) +
		                                           ", this node understands versions 1 to " +
		                                           std::to_string(ENTRY_FORMAT_VERSION) + "; upgrade the node");
	}
	auto entry = std::make_unique<DecodedEntry>();
	auto flags = reader.GetU8();
	auto id = reader.GetRaw(entry->header.request_id.size());
	if (!reader.Failed()) {
		memcpy(entry->header.request_id.data(), id.data(), id.size());
	}
	entry->header.incarnation = reader.GetU64();
	entry->header.planned_version = reader.GetU64();
	entry->header.snapshot_index = reader.GetU64();
	entry->header.base_index = reader.GetU64();
	entry->header.has_ddl = (flags & FLAG_DDL) != 0;
	auto count = reader.GetVarint();
	auto status = ReadBody(reader, flags, *entry);
	if (status.IsOk()) {
		status = ReadEffects(count, *entry);
	}
	if (!status.IsOk()) {
		return status;
	}
	return entry;
}

raft::LogIndex PlannedVersionOf(ByteView payload) {
	ByteReader reader(payload);
	reader.GetU16();
	reader.GetU8();
	reader.GetRaw(sizeof(RequestId));
	reader.GetU64();
	return reader.GetU64();
}

std::vector<int64_t> DecodeRowIds(ByteView bytes) {
	std::vector<int64_t> row_ids;
	row_ids.reserve(bytes.size() / 8);
	ByteReader reader(bytes);
	while (reader.Remaining() >= 8) {
		row_ids.push_back(int64_t(reader.GetU64()));
	}
	return row_ids;
}

} // namespace catalog
} // namespace quack
