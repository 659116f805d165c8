#include "quack/catalog/change_feed.hpp"

#include "duckdb/catalog/catalog_entry/table_catalog_entry.hpp"
#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/binary_serializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"
#include "quack/catalog/chunk_codec.hpp"
#include "quack/catalog/position_text.hpp"

namespace quack {
namespace catalog {

uint64_t ChangeGroup::Bytes() const {
	uint64_t bytes = 0;
	for (auto &segment : segments) {
		bytes += segment.second.bytes;
	}
	return bytes;
}

std::string ChangeFeed::TableId(const std::string &key) const {
	auto found = tables.find(key);
	return found == tables.end() ? "0:" + key : found->second;
}

Status ChangeFeed::CheckKept(const AppliedVector &from) const {
	for (auto &group : groups) {
		auto index = IndexIn(from, group.first);
		if (index < group.second.floor) {
			return Status(ErrorCode::NotFound,
			              "the changes after " + std::to_string(group.first) + ":" + std::to_string(index) +
			                  " are not all kept any more: those up to " + std::to_string(group.first) + ":" +
			                  std::to_string(group.second.floor) + " were dropped. Copy the table and go on from '" +
			                  PositionsToText(Floors()) + "' or later; quack_changes_set_retention() keeps more");
		}
	}
	return Status::Ok();
}

AppliedVector ChangeFeed::Floors() const {
	AppliedVector floors;
	for (auto &group : groups) {
		floors[group.first] = group.second.floor;
	}
	return floors;
}

std::string ChangeTableName(raft::GroupId group, uint64_t segment) {
	return "changes_" + std::to_string(group) + "_" + std::to_string(segment);
}

std::string EncodeChangeSetting(uint64_t retention, raft::LogIndex since) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(retention);
	writer.PutU64(since);
	return out;
}

std::string ChangeSegmentName(raft::GroupId group, uint64_t number) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(group);
	writer.PutU64(number);
	return out;
}

std::string EncodeChangeSegment(const ChangeSegment &segment) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU64(segment.last);
	writer.PutU64(segment.bytes);
	return out;
}

void LoadChangeSetting(const std::string &value, ChangeFeed &feed) {
	ByteReader reader(value);
	feed.retention = reader.GetU64();
	feed.since = reader.GetU64();
}

void LoadChangeFloor(const std::string &name, const std::string &value, ChangeFeed &feed) {
	auto group = ByteReader(name).GetU64();
	if (value.empty()) {
		feed.groups.erase(group);
	} else {
		feed.groups[group].floor = ByteReader(value).GetU64();
	}
}

void LoadChangeSegment(const std::string &name, const std::string &value, ChangeFeed &feed) {
	ByteReader names(name);
	auto group = names.GetU64();
	auto number = names.GetU64();
	if (value.empty()) {
		auto found = feed.groups.find(group);
		if (found != feed.groups.end()) {
			found->second.segments.erase(number);
		}
		return;
	}
	ByteReader reader(value);
	auto &segment = feed.groups[group].segments[number];
	segment.last = reader.GetU64();
	segment.bytes = reader.GetU64();
}

void LoadChangeTable(const std::string &name, const std::string &value, ChangeFeed &feed) {
	if (value.empty()) {
		feed.tables.erase(name);
	} else {
		feed.tables[name] = value;
	}
}

ChangeDefinition DefinitionOf(const duckdb::TableCatalogEntry &table) {
	ChangeDefinition definition;
	for (auto &column : table.GetColumns().Physical()) {
		definition.names.push_back(column.Name().GetIdentifierName());
		definition.types.push_back(column.Type());
	}
	return definition;
}

std::string EncodeDefinition(const ChangeDefinition &definition) {
	duckdb::MemoryStream stream;
	duckdb::BinarySerializer serializer(stream, PinnedSerialization());
	serializer.Begin();
	serializer.WriteProperty(100, "names",
	                         duckdb::vector<duckdb::string>(definition.names.begin(), definition.names.end()));
	serializer.WriteProperty(101, "types", definition.types);
	serializer.End();
	return std::string(reinterpret_cast<const char *>(stream.GetData()), stream.GetPosition());
}

ChangeDefinition DecodeDefinition(ByteView bytes) {
	duckdb::MemoryStream stream(reinterpret_cast<duckdb::data_ptr_t>(const_cast<char *>(bytes.data())), bytes.size());
	duckdb::BinaryDeserializer deserializer(stream);
	deserializer.Begin();
	ChangeDefinition definition;
	auto names = deserializer.ReadProperty<duckdb::vector<duckdb::string>>(100, "names");
	definition.names.assign(names.begin(), names.end());
	definition.types = deserializer.ReadProperty<duckdb::vector<duckdb::LogicalType>>(101, "types");
	deserializer.End();
	return definition;
}

} // namespace catalog
} // namespace quack
