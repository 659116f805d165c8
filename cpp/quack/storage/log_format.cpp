#include "quack/storage/log_format.hpp"

#include <cstring>

#include "quack/common/crc32c.hpp"
#include "quack/common/limits.hpp"

namespace quack {
namespace storage {

namespace {

constexpr char SEGMENT_MAGIC[] = "QUACKLOG";
constexpr size_t SEGMENT_CRC_OFFSET = 12;
//! Bodies from here on are written from where they lie.
constexpr size_t EXTERNAL_BODY_BYTES = 4096;

uint64_t PaddedSize(uint64_t size) {
	return (size + RECORD_ALIGNMENT - 1) / RECORD_ALIGNMENT * RECORD_ALIGNMENT;
}

void PutNodes(ByteWriter &writer, const std::vector<raft::NodeId> &nodes) {
	writer.PutVarint(nodes.size());
	for (auto node : nodes) {
		writer.PutU64(node);
	}
}

bool GetNodes(ByteReader &reader, std::vector<raft::NodeId> &nodes) {
	auto count = reader.GetVarint();
	if (reader.Failed() || count > reader.Remaining() / sizeof(uint64_t)) {
		return false;
	}
	nodes.clear();
	for (uint64_t i = 0; i < count; i++) {
		nodes.push_back(reader.GetU64());
	}
	return !reader.Failed();
}

void PutMembership(ByteWriter &writer, const raft::Membership &membership) {
	PutNodes(writer, membership.voters);
	PutNodes(writer, membership.outgoing);
	PutNodes(writer, membership.learners);
	PutNodes(writer, membership.learners_next);
	writer.PutU8(membership.auto_leave ? 1 : 0);
	// Always last in a body: no notes are no bytes.
	for (auto &note : membership.notes) {
		writer.PutU64(note.first);
		writer.PutBytes(note.second);
	}
}

bool GetMembership(ByteReader &reader, raft::Membership &membership) {
	if (!GetNodes(reader, membership.voters) || !GetNodes(reader, membership.outgoing) ||
	    !GetNodes(reader, membership.learners) || !GetNodes(reader, membership.learners_next)) {
		return false;
	}
	membership.auto_leave = reader.GetU8() != 0;
	while (!reader.Failed() && reader.Remaining() > 0) {
		auto node = reader.GetU64();
		membership.notes[node] = std::string(reader.GetBytes());
	}
	return !reader.Failed();
}

} // namespace

std::string EncodeSegmentHeader(SegmentHeader &header) {
	std::string bytes;
	ByteWriter writer(bytes);
	writer.PutRaw(ByteView(SEGMENT_MAGIC, 8));
	writer.PutU32(LOG_FORMAT_VERSION);
	writer.PutU32(0);
	writer.PutU64(header.store_id);
	writer.PutU64(header.sequence);
	writer.PutU64(header.capacity);
	writer.PutU64(header.head_end);
	writer.PutU64(header.previous_end);
	writer.PutU32(header.previous_crc);
	writer.PutU32(header.nonce);
	header.crc = Crc32c(bytes);
	std::string crc;
	ByteWriter(crc).PutU32(header.crc);
	bytes.replace(SEGMENT_CRC_OFFSET, crc.size(), crc);
	return bytes;
}

Result<SegmentHeader> DecodeSegmentHeader(ByteView bytes) {
	if (bytes.size() < SEGMENT_HEADER_BYTES) {
		return Status(ErrorCode::Corruption, "the segment header is cut: " + std::to_string(bytes.size()) + " of " +
		                                         std::to_string(SEGMENT_HEADER_BYTES) + " bytes");
	}
	ByteReader reader(bytes.substr(0, SEGMENT_HEADER_BYTES));
	if (reader.GetRaw(8) != ByteView(SEGMENT_MAGIC, 8)) {
		return Status(ErrorCode::Corruption, "the segment header does not start with QUACKLOG");
	}
	auto version = reader.GetU32();
	SegmentHeader header;
	header.crc = reader.GetU32();
	std::string copy(bytes.substr(0, SEGMENT_HEADER_BYTES));
	copy.replace(SEGMENT_CRC_OFFSET, 4, 4, '\0');
	if (Crc32c(copy) != header.crc) {
		return Status(ErrorCode::Corruption, "the segment header fails its checksum");
	}
	if (version != LOG_FORMAT_VERSION) {
		return Status(ErrorCode::Incompatible, "the segment has log format version " + std::to_string(version) +
		                                           ", this program reads version " +
		                                           std::to_string(LOG_FORMAT_VERSION) + "; use a matching program");
	}
	header.store_id = reader.GetU64();
	header.sequence = reader.GetU64();
	header.capacity = reader.GetU64();
	header.head_end = reader.GetU64();
	header.previous_end = reader.GetU64();
	header.previous_crc = reader.GetU32();
	header.nonce = reader.GetU32();
	return header;
}

const char *RecordTypeName(RecordType type) {
	switch (type) {
	case RecordType::GroupState:
		return "group_state";
	case RecordType::CreateGroup:
		return "create_group";
	case RecordType::HardState:
		return "hard_state";
	case RecordType::Entry:
		return "entry";
	case RecordType::TruncatePrefix:
		return "truncate_prefix";
	case RecordType::Reset:
		return "reset";
	case RecordType::RemoveGroup:
		return "remove_group";
	case RecordType::End:
		return "end";
	}
	return "unknown";
}

uint64_t RecordBytes(uint64_t body_size) {
	return RECORD_HEADER_BYTES + PaddedSize(body_size);
}

uint64_t RecordView::End() const {
	return offset + RecordBytes(body.size());
}

bool PeekRecord(ByteView segment, uint64_t offset, RecordFields &fields, uint64_t &body_size) {
	if (offset + RECORD_HEADER_BYTES > segment.size()) {
		return false;
	}
	ByteReader reader(segment.substr(offset, RECORD_HEADER_BYTES));
	auto has_magic = reader.GetU32() == RECORD_MAGIC;
	reader.GetU64();
	body_size = reader.GetU32();
	reader.GetU64();
	fields.type = static_cast<RecordType>(reader.GetU8());
	fields.entry_type = reader.GetU8();
	reader.GetU16();
	auto own_offset = static_cast<uint64_t>(reader.GetU32()) * RECORD_ALIGNMENT;
	fields.group = reader.GetU64();
	fields.term = reader.GetU64();
	fields.index = reader.GetU64();
	return has_magic || own_offset == offset;
}

bool ParseRecord(ByteView segment, uint64_t offset, const SegmentHeader &header, RecordView &record) {
	return ParseRecordAt(segment, offset, header, offset, record);
}

bool ParseRecordAt(ByteView bytes, uint64_t at, const SegmentHeader &header, uint64_t offset, RecordView &record) {
	uint64_t body_size = 0;
	if (!PeekRecord(bytes, at, record.fields, body_size) || ByteReader(bytes.substr(at)).GetU32() != RECORD_MAGIC) {
		return false;
	}
	if (body_size > bytes.size() - at - RECORD_HEADER_BYTES) {
		return false;
	}
	if (record.fields.type == RecordType::Entry && body_size > ENTRY_BYTES_MAX) {
		return false; // never appended
	}
	ByteReader reader(bytes.substr(at + 4, RECORD_HEADER_BYTES - 4));
	record.crc = reader.GetU32();
	record.previous_crc = reader.GetU32();
	reader.GetU32();
	auto sequence_low = reader.GetU32();
	record.synced = static_cast<uint64_t>(reader.GetU32()) * RECORD_ALIGNMENT;
	reader.GetU32();
	auto own_offset = static_cast<uint64_t>(reader.GetU32()) * RECORD_ALIGNMENT;
	if (sequence_low != static_cast<uint32_t>(header.sequence) || own_offset != offset) {
		return false;
	}
	auto covered = bytes.substr(at + 8, RECORD_HEADER_BYTES - 8 + body_size);
	if (!header.skips_checksum && Crc32c(covered, header.crc) != record.crc) {
		return false;
	}
	record.offset = offset;
	record.body = bytes.substr(at + RECORD_HEADER_BYTES, body_size);
	return true;
}

BatchEncoder::BatchEncoder(const SegmentHeader &segment, uint64_t offset, uint64_t synced_p, uint32_t previous_crc)
    : seed(segment.crc), segment_low(static_cast<uint32_t>(segment.sequence)), synced(synced_p), end_offset(offset),
      last_crc(previous_crc) {
	QUACK_CHECK(offset % RECORD_ALIGNMENT == 0 && synced % RECORD_ALIGNMENT == 0, "log offsets are aligned");
}

uint64_t BatchEncoder::Add(const PendingRecord &record) {
	auto offset = end_offset;
	last_crc = Encode(record, offset);
	end_offset += RecordBytes(record.body.size());
	return offset;
}

void BatchEncoder::AddEnd() {
	Encode(PendingRecord(), end_offset);
}

uint32_t BatchEncoder::Encode(const PendingRecord &record, uint64_t offset) {
	QUACK_CHECK(record.body.size() <= BATCH_BYTES_MAX, "a record body stays below the batch limit");
	auto begin = arena.size();
	ByteWriter writer(arena);
	writer.PutU32(RECORD_MAGIC);
	writer.PutU32(0);
	writer.PutU32(last_crc);
	writer.PutU32(static_cast<uint32_t>(record.body.size()));
	writer.PutU32(segment_low);
	writer.PutU32(static_cast<uint32_t>(synced / RECORD_ALIGNMENT));
	writer.PutU8(static_cast<uint8_t>(record.fields.type));
	writer.PutU8(record.fields.entry_type);
	writer.PutU16(0);
	writer.PutU32(static_cast<uint32_t>(offset / RECORD_ALIGNMENT));
	writer.PutU64(record.fields.group);
	writer.PutU64(record.fields.term);
	writer.PutU64(record.fields.index);
	auto crc = Crc32c(ByteView(arena).substr(begin + 8), seed);
	crc = Crc32c(record.body, crc);
	std::string crc_bytes;
	ByteWriter(crc_bytes).PutU32(crc);
	arena.replace(begin + 4, crc_bytes.size(), crc_bytes);
	auto padding = PaddedSize(record.body.size()) - record.body.size();
	if (record.body.size() < EXTERNAL_BODY_BYTES) {
		arena.append(record.body);
		arena.append(padding, '\0');
		pieces.push_back({begin, arena.size() - begin, ByteView()});
		return crc;
	}
	pieces.push_back({begin, arena.size() - begin, ByteView()});
	pieces.push_back({0, 0, record.body});
	begin = arena.size();
	arena.append(padding, '\0');
	pieces.push_back({begin, padding, ByteView()});
	return crc;
}

std::vector<ByteView> BatchEncoder::Pieces() const {
	std::vector<ByteView> result;
	size_t joined_end = 0; // arena pieces that touch become one
	for (auto &piece : pieces) {
		if (piece.size == 0) {
			if (!piece.external.empty()) {
				result.push_back(piece.external);
				joined_end = 0;
			}
			continue;
		}
		if (joined_end != 0 && joined_end == piece.begin) {
			result.back() = ByteView(result.back().data(), result.back().size() + piece.size);
		} else {
			result.push_back(ByteView(arena).substr(piece.begin, piece.size));
		}
		joined_end = piece.begin + piece.size;
	}
	return result;
}

std::string EncodeGroupHead(const GroupHead &head) {
	std::string body;
	ByteWriter writer(body);
	writer.PutU64(head.hard_state.term);
	writer.PutU64(head.hard_state.voted_for);
	writer.PutU64(head.hard_state.commit_index);
	writer.PutU64(head.snapshot.index);
	writer.PutU64(head.snapshot.term);
	writer.PutU64(head.last_index);
	PutMembership(writer, head.snapshot.membership);
	return body;
}

Result<GroupHead> DecodeGroupHead(ByteView body) {
	ByteReader reader(body);
	GroupHead head;
	head.hard_state.term = reader.GetU64();
	head.hard_state.voted_for = reader.GetU64();
	head.hard_state.commit_index = reader.GetU64();
	head.snapshot.index = reader.GetU64();
	head.snapshot.term = reader.GetU64();
	head.last_index = reader.GetU64();
	if (!GetMembership(reader, head.snapshot.membership) || !reader.Done() || head.last_index < head.snapshot.index) {
		return Status(ErrorCode::Corruption, "a group state record does not decode");
	}
	return head;
}

std::string EncodeMembership(const raft::Membership &membership) {
	std::string body;
	ByteWriter writer(body);
	PutMembership(writer, membership);
	return body;
}

Result<raft::Membership> DecodeMembership(ByteView body) {
	ByteReader reader(body);
	raft::Membership membership;
	if (!GetMembership(reader, membership) || !reader.Done()) {
		return Status(ErrorCode::Corruption, "a membership does not decode");
	}
	return membership;
}

std::string EncodeVote(raft::NodeId voted_for) {
	std::string body;
	ByteWriter(body).PutU64(voted_for);
	return body;
}

Result<raft::NodeId> DecodeVote(ByteView body) {
	ByteReader reader(body);
	auto vote = reader.GetU64();
	if (!reader.Done()) {
		return Status(ErrorCode::Corruption, "a hard state record does not decode");
	}
	return vote;
}

} // namespace storage
} // namespace quack
