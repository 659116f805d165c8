#include "quack/catalog/effects.hpp"

#include <cstring>

#include "duckdb/common/string_util.hpp"
#include "quack/common/limits.hpp"
#include "zstd.h"

namespace quack {
namespace catalog {
namespace {

constexpr uint8_t FLAG_ZSTD = 1;
constexpr uint8_t FLAG_DDL = 2;
constexpr size_t COMPRESS_ABOVE = 4096;

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

Status ReadBody(ByteReader &reader, uint8_t flags, DecodedEntry &entry) {
	auto plain_size = reader.GetVarint();
	auto stored = reader.GetRaw(reader.Remaining());
	if (reader.Failed() || plain_size > ENTRY_BODY_BYTES_MAX) {
		return Status(ErrorCode::Corruption, "log entry header is cut short");
	}
	if ((flags & FLAG_ZSTD) == 0) {
		entry.body = std::string(stored);
	} else {
		entry.body.resize(plain_size);
		auto size = duckdb_zstd::ZSTD_decompress(&entry.body[0], plain_size, stored.data(), stored.size());
		if (duckdb_zstd::ZSTD_isError(size) != 0 || size != plain_size) {
			return Status(ErrorCode::Corruption, "log entry body does not decompress to its announced size");
		}
	}
	if (entry.body.size() != plain_size) {
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

void EffectWriter::BeginRows(EffectKind kind, const ObjectName &table, const std::vector<uint32_t> &columns) {
	ByteWriter writer(body);
	writer.PutU8(uint8_t(kind));
	PutName(writer, table);
	writer.PutVarint(columns.size());
	for (auto column : columns) {
		writer.PutVarint(column);
	}
	count++;
}

void EffectWriter::AddBatch(const std::vector<int64_t> &row_ids, ByteView old_rows, ByteView new_rows) {
	ByteWriter writer(body);
	writer.PutU8(1);
	writer.PutVarint(row_ids.size() * 8);
	for (auto row_id : row_ids) {
		writer.PutU64(uint64_t(row_id));
	}
	writer.PutBytes(old_rows);
	writer.PutBytes(new_rows);
}

void EffectWriter::EndRows() {
	ByteWriter(body).PutU8(0);
}

void EffectWriter::AddDdl(const Effect &effect) {
	ByteWriter writer(body);
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
	writer.PutBytes(effect.definition);
	count++;
	has_ddl = true;
}

void EffectWriter::AddSequence(const ObjectName &sequence, const SequenceUse &use) {
	ByteWriter writer(body);
	writer.PutU8(uint8_t(EffectKind::SequenceState));
	PutName(writer, sequence);
	writer.PutU64(use.usage_count);
	writer.PutU64(uint64_t(use.counter));
	writer.PutU8(use.has_last_value ? 1 : 0);
	writer.PutU64(uint64_t(use.last_value));
	count++;
}

void EffectWriter::AddRead(const ObjectName &table) {
	ByteWriter writer(body);
	writer.PutU8(uint8_t(EffectKind::ReadTable));
	PutName(writer, table);
	count++;
}

void EffectWriter::AddChecksum(ByteView content) {
	ByteWriter writer(body);
	writer.PutU8(uint8_t(EffectKind::Checksum));
	PutName(writer, ObjectName());
	writer.PutBytes(content);
	count++;
	version = 2;
}

std::string EffectWriter::Finish(const EntryHeader &header) const {
	std::string compressed;
	bool use_compressed = false;
	if (body.size() > COMPRESS_ABOVE) {
		compressed.resize(duckdb_zstd::ZSTD_compressBound(body.size()));
		auto size = duckdb_zstd::ZSTD_compress(&compressed[0], compressed.size(), body.data(), body.size(), 1);
		use_compressed = duckdb_zstd::ZSTD_isError(size) == 0 && size < body.size() - body.size() / 8;
		compressed.resize(use_compressed ? size : 0);
	}
	std::string payload;
	payload.reserve(64 + (use_compressed ? compressed.size() : body.size()));
	ByteWriter writer(payload);
	writer.PutU16(version);
	writer.PutU8(uint8_t((use_compressed ? FLAG_ZSTD : 0) | (has_ddl ? FLAG_DDL : 0)));
	writer.PutRaw(ByteView(reinterpret_cast<const char *>(header.request_id.data()), header.request_id.size()));
	writer.PutU64(header.incarnation);
	writer.PutU64(header.planned_version);
	writer.PutU64(header.snapshot_index);
	writer.PutU64(header.base_index);
	writer.PutVarint(count);
	writer.PutVarint(body.size());
	writer.PutRaw(use_compressed ? ByteView(compressed) : ByteView(body));
	return payload;
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
