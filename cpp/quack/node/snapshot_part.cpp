#include "quack/node/snapshot_part.hpp"

#include "quack/common/crc32c.hpp"

namespace quack {
namespace node {

namespace {

constexpr uint32_t PART_MAGIC = 0x54504b51; // "QKPT"
constexpr uint8_t PART_VERSION = 1;

} // namespace

std::string Encode(const SnapshotPart &part) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU32(PART_MAGIC);
	writer.PutU8(PART_VERSION);
	writer.PutBytes(wire::Encode(part.image));
	writer.PutBytes(part.source);
	writer.PutVarint(part.chunk_bytes);
	writer.PutVarint(part.offset);
	writer.PutU32(part.crc32c);
	writer.PutVarint(part.resumed_count);
	SealRecord(out);
	return out;
}

Result<SnapshotPart> DecodeSnapshotPart(ByteView bytes) {
	Status damaged(ErrorCode::Corruption, "the record of a partial snapshot is damaged");
	auto body = UnsealRecord(bytes);
	if (!body) {
		return damaged;
	}
	ByteReader reader(*body);
	if (reader.GetU32() != PART_MAGIC) {
		return damaged;
	}
	auto version = reader.GetU8();
	if (version != PART_VERSION) {
		return Status(ErrorCode::Incompatible, "the record of a partial snapshot has version " +
		                                           std::to_string(version) + ", expected " +
		                                           std::to_string(PART_VERSION));
	}
	SnapshotPart part;
	auto image = wire::DecodeSnapshotOpenAnswer(reader.GetBytes());
	part.source = std::string(reader.GetBytes());
	part.chunk_bytes = reader.GetVarint();
	part.offset = reader.GetVarint();
	part.crc32c = reader.GetU32();
	part.resumed_count = reader.GetVarint();
	if (!image.IsOk()) {
		return image.GetStatus();
	}
	part.image = std::move(image.Value());
	if (!reader.Done() || part.image.image == 0 || part.offset > part.image.bytes) {
		return damaged;
	}
	return part;
}

} // namespace node
} // namespace quack
