#include "quack/node/member_record.hpp"

#include <cstdio>

namespace quack {
namespace node {

namespace {

constexpr uint8_t RECORD_FORMAT = 1;
constexpr uint8_t FLAG_REMOVED = 1;

} // namespace

std::string EncodeMemberRecord(const MemberRecord &record) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU8(RECORD_FORMAT);
	writer.PutBytes(record.name);
	writer.PutU64(record.incarnation);
	writer.PutBytes(record.host);
	writer.PutVarint(record.port);
	writer.PutU8(record.is_removed ? FLAG_REMOVED : 0);
	return out;
}

Result<MemberRecord> DecodeMemberRecord(ByteView bytes) {
	ByteReader reader(bytes);
	MemberRecord record;
	auto format = reader.GetU8();
	record.name = std::string(reader.GetBytes());
	record.incarnation = reader.GetU64();
	record.host = std::string(reader.GetBytes());
	auto port = reader.GetVarint();
	auto flags = reader.GetU8();
	if (format != RECORD_FORMAT || !reader.Done() || port > UINT16_MAX || flags > FLAG_REMOVED) {
		return Status(ErrorCode::Corruption, "malformed record of a member: " + std::to_string(bytes.size()) +
		                                         " bytes, format " + std::to_string(format) + " (expected format " +
		                                         std::to_string(RECORD_FORMAT) + ")");
	}
	record.port = static_cast<uint16_t>(port);
	record.is_removed = flags == FLAG_REMOVED;
	return record;
}

std::string FormatIncarnation(uint64_t incarnation) {
	char text[17];
	std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(incarnation));
	return text;
}

} // namespace node
} // namespace quack
