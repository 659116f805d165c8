#include "quack/wire/raft_codec.hpp"

#include <algorithm>

#include "quack/common/limits.hpp"
#include "quack/raft/raft.hpp"
#include "quack/wire/fields.hpp"

namespace quack {
namespace wire {

namespace {

// Field numbers of a message; never reuse one.
enum MessageField : uint32_t {
	MESSAGE_TYPE = 1,
	MESSAGE_GROUP = 2,
	MESSAGE_FROM = 3,
	MESSAGE_TO = 4,
	MESSAGE_TERM = 5,
	MESSAGE_LOG_INDEX = 6,
	MESSAGE_LOG_TERM = 7,
	MESSAGE_COMMIT_INDEX = 8,
	MESSAGE_FLAGS = 9, // bit 0 reject, bit 1 pre_vote, bit 2 force
	MESSAGE_HINT_INDEX = 10,
	MESSAGE_HINT_TERM = 11,
	MESSAGE_CONTEXT = 12,
	MESSAGE_ENTRY = 13, // repeated: varint term, varint index, 1 byte type, payload to the end
	MESSAGE_SNAPSHOT = 14,
	MESSAGE_QUIET = 64, // a node that does not know it never says that it is quiet, so the group stays awake
};

enum SnapshotField : uint32_t { SNAPSHOT_INDEX = 1, SNAPSHOT_TERM = 2, SNAPSHOT_MEMBERSHIP = 3 };

constexpr uint64_t FLAG_REJECT = 1;
constexpr uint64_t FLAG_PRE_VOTE = 2;
constexpr uint64_t FLAG_FORCE = 4;

uint64_t MessageFlags(const raft::Message &message) {
	return (message.reject ? FLAG_REJECT : 0) | (message.pre_vote ? FLAG_PRE_VOTE : 0) |
	       (message.force ? FLAG_FORCE : 0);
}

size_t EntrySize(const raft::Entry &entry) {
	return VarintSize(entry.term) + VarintSize(entry.index) + 1 + entry.payload->size();
}

std::string EncodeSnapshotMeta(const raft::SnapshotMeta &snapshot) {
	if (snapshot.index == 0) {
		return std::string();
	}
	std::string out;
	FieldWriter writer(out);
	writer.PutVarint(SNAPSHOT_INDEX, snapshot.index);
	writer.PutVarint(SNAPSHOT_TERM, snapshot.term);
	writer.PutBytes(SNAPSHOT_MEMBERSHIP, raft::EncodeMembership(snapshot.membership));
	return out;
}

size_t ScalarFieldsSize(const raft::Message &message) {
	return VarintFieldSize(MESSAGE_TYPE, static_cast<uint64_t>(message.type)) +
	       VarintFieldSize(MESSAGE_GROUP, message.group) + Fixed64FieldSize(MESSAGE_FROM, message.from) +
	       Fixed64FieldSize(MESSAGE_TO, message.to) + VarintFieldSize(MESSAGE_TERM, message.term) +
	       VarintFieldSize(MESSAGE_LOG_INDEX, message.log_index) + VarintFieldSize(MESSAGE_LOG_TERM, message.log_term) +
	       VarintFieldSize(MESSAGE_COMMIT_INDEX, message.commit_index) +
	       VarintFieldSize(MESSAGE_FLAGS, MessageFlags(message)) +
	       VarintFieldSize(MESSAGE_HINT_INDEX, message.hint_index) +
	       VarintFieldSize(MESSAGE_HINT_TERM, message.hint_term) + VarintFieldSize(MESSAGE_CONTEXT, message.context) +
	       VarintFieldSize(MESSAGE_QUIET, message.quiet ? 1 : 0);
}

void EncodeMessage(std::string &out, const raft::Message &message) {
	FieldWriter fields(out);
	ByteWriter raw(out);
	fields.PutVarint(MESSAGE_TYPE, static_cast<uint64_t>(message.type));
	fields.PutVarint(MESSAGE_GROUP, message.group);
	fields.PutFixed64(MESSAGE_FROM, message.from);
	fields.PutFixed64(MESSAGE_TO, message.to);
	fields.PutVarint(MESSAGE_TERM, message.term);
	fields.PutVarint(MESSAGE_LOG_INDEX, message.log_index);
	fields.PutVarint(MESSAGE_LOG_TERM, message.log_term);
	fields.PutVarint(MESSAGE_COMMIT_INDEX, message.commit_index);
	fields.PutVarint(MESSAGE_FLAGS, MessageFlags(message));
	fields.PutVarint(MESSAGE_HINT_INDEX, message.hint_index);
	fields.PutVarint(MESSAGE_HINT_TERM, message.hint_term);
	fields.PutVarint(MESSAGE_CONTEXT, message.context);
	fields.PutVarint(MESSAGE_QUIET, message.quiet ? 1 : 0);
	for (auto &entry : message.entries) {
		fields.PutHeader(MESSAGE_ENTRY, EntrySize(entry));
		raw.PutVarint(entry.term);
		raw.PutVarint(entry.index);
		raw.PutU8(static_cast<uint8_t>(entry.type));
		raw.PutRaw(*entry.payload);
	}
	fields.PutBytes(MESSAGE_SNAPSHOT, EncodeSnapshotMeta(message.snapshot));
}

void DecodeEntry(FieldReader &fields, raft::Message &message) {
	ByteReader reader(fields.Bytes());
	raft::Entry entry;
	entry.term = reader.GetVarint();
	entry.index = reader.GetVarint();
	auto type = reader.GetU8();
	if (reader.Failed() || type > static_cast<uint8_t>(raft::EntryType::Membership)) {
		fields.Fail("malformed entry");
		return;
	}
	auto size = CheckEntryBytes(reader.Remaining());
	if (!size.IsOk()) {
		fields.Fail(size.Message());
		return;
	}
	entry.type = static_cast<raft::EntryType>(type);
	entry.payload = MakeSharedBytes(std::string(reader.GetRaw(reader.Remaining())));
	message.entries.push_back(std::move(entry));
}

void DecodeSnapshotMeta(FieldReader &fields, raft::SnapshotMeta &snapshot) {
	FieldReader inner(fields.Bytes(), "snapshot position");
	while (inner.Next()) {
		switch (inner.Number()) {
		case SNAPSHOT_INDEX:
			snapshot.index = inner.Value();
			break;
		case SNAPSHOT_TERM:
			snapshot.term = inner.Value();
			break;
		case SNAPSHOT_MEMBERSHIP: {
			auto membership = raft::DecodeMembership(inner.Bytes());
			if (membership.IsOk()) {
				snapshot.membership = std::move(membership.Value());
			} else {
				inner.Fail(membership.GetStatus().Message());
			}
			break;
		}
		default:
			inner.Unknown();
		}
	}
	if (!inner.Finish().IsOk()) {
		fields.Fail(inner.Finish().Message());
	}
}

void DecodeFlags(FieldReader &fields, raft::Message &message) {
	auto flags = fields.ValueUpTo(FLAG_REJECT | FLAG_PRE_VOTE | FLAG_FORCE);
	message.reject = (flags & FLAG_REJECT) != 0;
	message.pre_vote = (flags & FLAG_PRE_VOTE) != 0;
	message.force = (flags & FLAG_FORCE) != 0;
}

void DecodeMessageField(FieldReader &fields, raft::Message &message) {
	switch (fields.Number()) {
	case MESSAGE_TYPE:
		message.type =
		    static_cast<raft::MessageType>(fields.ValueUpTo(static_cast<uint64_t>(raft::MessageType::TimeoutNow)));
		return;
	case MESSAGE_GROUP:
		message.group = fields.Value();
		return;
	case MESSAGE_FROM:
		message.from = fields.Value();
		return;
	case MESSAGE_TO:
		message.to = fields.Value();
		return;
	case MESSAGE_TERM:
		message.term = fields.Value();
		return;
	case MESSAGE_LOG_INDEX:
		message.log_index = fields.Value();
		return;
	case MESSAGE_LOG_TERM:
		message.log_term = fields.Value();
		return;
	case MESSAGE_COMMIT_INDEX:
		message.commit_index = fields.Value();
		return;
	case MESSAGE_FLAGS:
		DecodeFlags(fields, message);
		return;
	case MESSAGE_HINT_INDEX:
		message.hint_index = fields.Value();
		return;
	case MESSAGE_HINT_TERM:
		message.hint_term = fields.Value();
		return;
	case MESSAGE_CONTEXT:
		message.context = fields.Value();
		return;
	case MESSAGE_QUIET:
		message.quiet = fields.ValueUpTo(1) != 0;
		return;
	case MESSAGE_ENTRY:
		DecodeEntry(fields, message);
		return;
	case MESSAGE_SNAPSHOT:
		DecodeSnapshotMeta(fields, message.snapshot);
		return;
	default:
		fields.Unknown();
	}
}

Status DecodeMessage(ByteView bytes, raft::Message &message) {
	FieldReader fields(bytes, "raft message");
	bool has_type = false;
	message.group = 0;
	while (fields.Next()) {
		has_type = has_type || fields.Number() == MESSAGE_TYPE;
		DecodeMessageField(fields, message);
	}
	if (fields.Finish().IsOk() && (!has_type || static_cast<uint8_t>(message.type) == 0)) {
		fields.Fail("the message type is missing");
	}
	return fields.Finish();
}

} // namespace

size_t MessageSize(const raft::Message &message) {
	auto size = ScalarFieldsSize(message);
	for (auto &entry : message.entries) {
		size += BytesFieldSize(MESSAGE_ENTRY, EntrySize(entry));
	}
	auto snapshot = EncodeSnapshotMeta(message.snapshot);
	if (!snapshot.empty()) {
		size += BytesFieldSize(MESSAGE_SNAPSHOT, snapshot.size());
	}
	return size;
}

void EnvelopeWriter::Add(const raft::Message &message) {
	auto size = MessageSize(message);
	auto wanted = bytes.size() + size + 16;
	if (wanted > bytes.capacity()) {
		bytes.reserve(std::max(wanted, bytes.capacity() * 2));
	}
	ByteWriter writer(bytes);
	if (bytes.empty()) {
		writer.PutU8(ENVELOPE_VERSION);
	}
	writer.PutVarint(size);
	auto start = bytes.size();
	EncodeMessage(bytes, message);
	QUACK_CHECK(bytes.size() - start == size, "MessageSize must agree with EncodeMessage");
	count++;
}

std::string EnvelopeWriter::Take() {
	if (bytes.empty()) {
		ByteWriter(bytes).PutU8(ENVELOPE_VERSION);
	}
	auto result = std::move(bytes);
	bytes.clear();
	count = 0;
	return result;
}

Result<std::vector<raft::Message>> DecodeEnvelope(ByteView bytes) {
	ByteReader reader(bytes);
	auto version = reader.GetU8();
	if (reader.Failed() || version != ENVELOPE_VERSION) {
		return Status(ErrorCode::Incompatible, "raft envelope: version " + std::to_string(version) + ", expected " +
		                                           std::to_string(ENVELOPE_VERSION) +
		                                           "; run the same release on both nodes");
	}
	std::vector<raft::Message> messages;
	while (reader.Remaining() > 0) {
		auto encoded = reader.GetBytes();
		if (reader.Failed()) {
			return Status(ErrorCode::Corruption, "raft envelope: a message is cut short");
		}
		if (messages.size() == ENVELOPE_MESSAGES_MAX) {
			return Status(ErrorCode::Corruption,
			              "raft envelope: more than " + std::to_string(ENVELOPE_MESSAGES_MAX) + " messages");
		}
		messages.emplace_back();
		auto status = DecodeMessage(encoded, messages.back());
		if (!status.IsOk()) {
			return status;
		}
	}
	return messages;
}

} // namespace wire
} // namespace quack
