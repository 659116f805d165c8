#include "quack/catalog/fragments.hpp"

#include <algorithm>

#include "quack/common/crc32c.hpp"

namespace quack {
namespace catalog {
namespace {

using Id = std::array<uint8_t, 16>;

void PutId(ByteWriter &writer, const Id &id) {
	writer.PutRaw(ByteView(reinterpret_cast<const char *>(id.data()), id.size()));
}

Id GetId(ByteReader &reader) {
	Id id {};
	auto bytes = reader.GetRaw(id.size());
	std::copy(bytes.begin(), bytes.end(), id.begin());
	return id;
}

Status Damaged(const char *what) {
	return Status(ErrorCode::Corruption, std::string("log entry holds a ") + what + " that does not decode");
}

} // namespace

std::string EncodeFragment(const Fragment &fragment) {
	std::string content;
	content.reserve(fragment.bytes.size() + 32);
	ByteWriter writer(content);
	PutId(writer, fragment.stream);
	writer.PutU32(fragment.sequence);
	writer.PutRaw(fragment.bytes);
	return content;
}

Result<Fragment> DecodeFragment(ByteView content) {
	ByteReader reader(content);
	Fragment fragment;
	fragment.stream = GetId(reader);
	fragment.sequence = reader.GetU32();
	fragment.bytes = reader.GetRaw(reader.Remaining());
	if (!reader.Done() || fragment.bytes.empty()) {
		return Damaged("fragment");
	}
	return fragment;
}

std::string EncodeFragmentsEnd(const FragmentsEnd &end) {
	std::string content;
	ByteWriter writer(content);
	PutId(writer, end.stream);
	writer.PutU32(end.count);
	writer.PutU64(end.bytes);
	writer.PutU32(end.crc);
	writer.PutU64(end.plain_bytes);
	return content;
}

Result<FragmentsEnd> DecodeFragmentsEnd(ByteView content) {
	ByteReader reader(content);
	FragmentsEnd end;
	end.stream = GetId(reader);
	end.count = reader.GetU32();
	end.bytes = reader.GetU64();
	end.crc = reader.GetU32();
	end.plain_bytes = reader.GetU64();
	if (!reader.Done()) {
		return Damaged("stream end");
	}
	return end;
}

std::string EncodeStreamId(const StreamId &id) {
	std::string content;
	ByteWriter writer(content);
	PutId(writer, id);
	return content;
}

Result<StreamId> DecodeStreamId(ByteView content) {
	ByteReader reader(content);
	auto id = GetId(reader);
	if (!reader.Done()) {
		return Damaged("stream id");
	}
	return id;
}

bool OpenStream::Take(const Fragment &fragment, raft::LogIndex index) {
	if (fragment.stream != stream || fragment.sequence != count) {
		return false;
	}
	if (tables == 0 || last_table_bytes >= FRAGMENT_TABLE_BYTES) {
		tables++;
		last_table_bytes = 0;
	}
	first_index = count == 0 ? index : first_index;
	last_index = index;
	count++;
	bytes += fragment.bytes.size();
	last_table_bytes += fragment.bytes.size();
	crc = Crc32c(fragment.bytes, crc);
	return true;
}

Status OpenStream::Check(const FragmentsEnd &end) const {
	if (end.stream == stream && end.count == count && end.bytes == bytes && end.crc == crc) {
		return Status::Ok();
	}
	return Status(ErrorCode::Conflict, "the transaction reached the log as " + std::to_string(count) +
	                                       " fragments of " + std::to_string(bytes) + " bytes instead of " +
	                                       std::to_string(end.count) + " of " + std::to_string(end.bytes) +
	                                       "; nothing of it was committed, retry");
}

Status StreamIsGone() {
	return Status(ErrorCode::Conflict, "the fragments of the transaction were given up before it ended, because no "
	                                   "further one came for a while; nothing of it was committed, retry");
}

std::string EncodeOpenStream(const OpenStream &open) {
	std::string value;
	ByteWriter writer(value);
	writer.PutU64(open.group);
	PutId(writer, open.stream);
	PutId(writer, open.request_id);
	writer.PutU64(open.first_index);
	writer.PutU64(open.last_index);
	writer.PutU32(open.count);
	writer.PutU64(open.bytes);
	writer.PutU32(open.crc);
	writer.PutU32(open.tables);
	writer.PutU64(open.last_table_bytes);
	return value;
}

Result<OpenStream> DecodeOpenStream(ByteView value) {
	ByteReader reader(value);
	OpenStream open;
	open.group = reader.GetU64();
	open.stream = GetId(reader);
	open.request_id = GetId(reader);
	open.first_index = reader.GetU64();
	open.last_index = reader.GetU64();
	open.count = reader.GetU32();
	open.bytes = reader.GetU64();
	open.crc = reader.GetU32();
	open.tables = reader.GetU32();
	open.last_table_bytes = reader.GetU64();
	if (!reader.Done()) {
		return Damaged("state of an open stream");
	}
	return open;
}

} // namespace catalog
} // namespace quack
