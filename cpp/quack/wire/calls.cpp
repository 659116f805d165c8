#include "quack/wire/calls.hpp"

#include "quack/common/crc32c.hpp"
#include "quack/common/limits.hpp"
#include "quack/raft/raft.hpp"
#include "quack/wire/fields.hpp"

namespace quack {
namespace wire {

namespace {

// Field numbers, per body; never reuse one.
enum StatusField : uint32_t { STATUS_CODE = 1, STATUS_MESSAGE = 2 };
enum ProposeField : uint32_t { PROPOSE_GROUP = 1, PROPOSE_ITEM = 2 }; // item: varint timeout, payload
enum ProposeAnswerField : uint32_t { PROPOSED_ITEM = 1 };             // item: fields below
enum OutcomeField : uint32_t { OUTCOME_STATUS = 1, OUTCOME_INDEX = 2 };
enum TransferField : uint32_t { TRANSFER_GROUP = 1, TRANSFER_TARGET = 2, TRANSFER_TIMEOUT = 3 };
enum MemberField : uint32_t {
	MEMBER_GROUP = 1,
	MEMBER_ACTION = 2,
	MEMBER_NAME = 3,
	MEMBER_INCARNATION = 4,
	MEMBER_HOST = 5,
	MEMBER_PORT = 6,
	MEMBER_TIMEOUT = 7,
};
enum AnswerField : uint32_t { ANSWER_STATUS = 1, ANSWER_TEXT = 2 };
enum StatusAnswerField : uint32_t { STATUS_GROUP = 1 }; // fields below
enum GroupStatusField : uint32_t {
	GROUP_ID = 1,
	GROUP_APPLIED = 2,
	GROUP_QUEUE_COUNT = 3,
	GROUP_QUEUE_BYTES = 4,
	GROUP_REASON = 5,
};
enum OpenField : uint32_t {
	OPEN_CLUSTER_ID = 1,
	OPEN_GROUP = 2,
	OPEN_INDEX_MIN = 3,
	OPEN_RESUME_IMAGE = FIRST_OPTIONAL_FIELD,
	OPEN_RESUME_ONLY,
	OPEN_APPLIED,
};
enum OpenAnswerField : uint32_t {
	OPENED_STATUS = 1,
	OPENED_CLUSTER_ID = 2,
	OPENED_IMAGE = 3,
	OPENED_BYTES = 4,
	OPENED_POSITION = 5,
	OPENED_PREPARING = FIRST_OPTIONAL_FIELD,
};
enum PositionField : uint32_t { POSITION_GROUP = 1, POSITION_INDEX = 2, POSITION_TERM = 3, POSITION_MEMBERSHIP = 4 };
enum ChunkField : uint32_t { CHUNK_IMAGE = 1, CHUNK_OFFSET = 2, CHUNK_SIZE = 3 };
enum ChunkAnswerField : uint32_t { CHUNKED_STATUS = 1, CHUNKED_OFFSET = 2, CHUNKED_CRC = 3, CHUNKED_DATA = 4 };

constexpr size_t STATUS_MESSAGE_BYTES_MAX = 16 * 1024;
constexpr uint64_t TIMEOUT_MAX = static_cast<uint64_t>(INT64_MAX);

std::string Begin() {
	return std::string(1, static_cast<char>(CALL_VERSION));
}

std::string EncodeStatus(const Status &status) {
	std::string out;
	FieldWriter writer(out);
	writer.PutVarint(STATUS_CODE, static_cast<uint64_t>(status.Code()));
	writer.PutBytes(STATUS_MESSAGE, ByteView(status.Message()).substr(0, STATUS_MESSAGE_BYTES_MAX));
	return out;
}

uint64_t TimeoutBits(MonotonicNs timeout) {
	return timeout < 0 ? 0 : static_cast<uint64_t>(timeout);
}

//! Runs `on_field` over all fields after the version byte.
template <class OnField>
Status DecodeBody(ByteView bytes, const char *what, OnField on_field) {
	if (bytes.empty()) {
		return Status(ErrorCode::Corruption, std::string(what) + ": empty");
	}
	auto version = static_cast<uint8_t>(bytes[0]);
	if (version != CALL_VERSION) {
		return Status(ErrorCode::Incompatible, std::string(what) + ": version " + std::to_string(version) +
		                                           ", expected " + std::to_string(CALL_VERSION) +
		                                           "; run the same release on both nodes");
	}
	FieldReader fields(bytes.substr(1), what);
	while (fields.Next()) {
		on_field(fields);
	}
	return fields.Finish();
}

template <class OnField>
void DecodeNested(FieldReader &outer, const char *what, OnField on_field) {
	FieldReader fields(outer.Bytes(), what);
	while (fields.Next()) {
		on_field(fields);
	}
	if (!fields.Finish().IsOk()) {
		outer.Fail(fields.Finish().Message());
	}
}

Status DecodeStatus(FieldReader &outer) {
	uint64_t code = 0;
	std::string message;
	DecodeNested(outer, "status", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case STATUS_CODE:
			code = fields.ValueUpTo(UINT8_MAX);
			break;
		case STATUS_MESSAGE:
			message = std::string(fields.Bytes());
			break;
		default:
			fields.Unknown();
		}
	});
	if (code > static_cast<uint64_t>(ErrorCode::Internal)) {
		return Status(ErrorCode::Internal, "error code " + std::to_string(code) + " of a newer release: " + message);
	}
	return Status(static_cast<ErrorCode>(code), std::move(message));
}

ProposeAnswer::Item DecodeOutcome(FieldReader &outer) {
	ProposeAnswer::Item item;
	DecodeNested(outer, "proposal outcome", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case OUTCOME_STATUS:
			item.status = DecodeStatus(fields);
			break;
		case OUTCOME_INDEX:
			item.index = fields.Value();
			break;
		default:
			fields.Unknown();
		}
	});
	return item;
}

SnapshotPosition DecodePosition(FieldReader &outer) {
	SnapshotPosition position;
	DecodeNested(outer, "snapshot position", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case POSITION_GROUP:
			position.group = fields.Value();
			break;
		case POSITION_INDEX:
			position.meta.index = fields.Value();
			break;
		case POSITION_TERM:
			position.meta.term = fields.Value();
			break;
		case POSITION_MEMBERSHIP: {
			auto membership = raft::DecodeMembership(fields.Bytes());
			if (membership.IsOk()) {
				position.meta.membership = std::move(membership.Value());
			} else {
				fields.Fail(membership.GetStatus().Message());
			}
			break;
		}
		default:
			fields.Unknown();
		}
	});
	return position;
}

} // namespace

std::string Encode(const ProposeRequest &request) {
	auto out = Begin();
	size_t size = 64;
	for (auto &item : request.items) {
		size += item.payload->size() + 32;
	}
	out.reserve(size);
	FieldWriter writer(out);
	ByteWriter raw(out);
	writer.PutVarint(PROPOSE_GROUP, request.group);
	for (auto &item : request.items) {
		writer.PutHeader(PROPOSE_ITEM, VarintSize(TimeoutBits(item.timeout)) + item.payload->size());
		raw.PutVarint(TimeoutBits(item.timeout));
		raw.PutRaw(*item.payload);
	}
	return out;
}

std::string Encode(const ProposeAnswer &answer) {
	auto out = Begin();
	FieldWriter writer(out);
	for (auto &item : answer.items) {
		std::string inner;
		FieldWriter inner_writer(inner);
		if (!item.status.IsOk()) {
			inner_writer.PutBytes(OUTCOME_STATUS, EncodeStatus(item.status));
		}
		inner_writer.PutVarint(OUTCOME_INDEX, item.index);
		writer.PutElement(PROPOSED_ITEM, inner);
	}
	return out;
}

std::string Encode(const TransferRequest &request) {
	auto out = Begin();
	FieldWriter writer(out);
	writer.PutVarint(TRANSFER_GROUP, request.group);
	writer.PutFixed64(TRANSFER_TARGET, request.target);
	writer.PutVarint(TRANSFER_TIMEOUT, TimeoutBits(request.timeout));
	return out;
}

std::string Encode(const MemberRequest &request) {
	auto out = Begin();
	FieldWriter writer(out);
	writer.PutVarint(MEMBER_GROUP, request.group);
	writer.PutVarint(MEMBER_ACTION, request.action);
	writer.PutBytes(MEMBER_NAME, request.name);
	writer.PutFixed64(MEMBER_INCARNATION, request.incarnation);
	writer.PutBytes(MEMBER_HOST, request.host);
	writer.PutVarint(MEMBER_PORT, request.port);
	writer.PutVarint(MEMBER_TIMEOUT, TimeoutBits(request.timeout));
	return out;
}

std::string Encode(const TextAnswer &answer) {
	auto out = Begin();
	FieldWriter writer(out);
	writer.PutBytes(ANSWER_STATUS, EncodeStatus(answer.status));
	writer.PutBytes(ANSWER_TEXT, answer.text);
	return out;
}

std::string Encode(const StatusAnswer &answer) {
	auto out = Begin();
	FieldWriter writer(out);
	for (auto &group : answer.groups) {
		std::string inner;
		FieldWriter fields(inner);
		fields.PutVarint(GROUP_ID, group.group);
		fields.PutVarint(GROUP_APPLIED, group.applied_index);
		fields.PutVarint(GROUP_QUEUE_COUNT, group.queue_count);
		fields.PutVarint(GROUP_QUEUE_BYTES, group.queue_bytes);
		fields.PutBytes(GROUP_REASON, ByteView(group.reason).substr(0, STATUS_MESSAGE_BYTES_MAX));
		writer.PutElement(STATUS_GROUP, inner);
	}
	return out;
}

std::string Encode(const SnapshotOpenRequest &request) {
	auto out = Begin();
	FieldWriter writer(out);
	writer.PutBytes(OPEN_CLUSTER_ID, request.cluster_id);
	writer.PutVarint(OPEN_GROUP, request.group);
	writer.PutVarint(OPEN_INDEX_MIN, request.index_min);
	writer.PutFixed64(OPEN_RESUME_IMAGE, request.resume_image);
	writer.PutVarint(OPEN_RESUME_ONLY, request.resume_only ? 1 : 0);
	for (auto &position : request.applied) {
		std::string inner;
		FieldWriter inner_writer(inner);
		inner_writer.PutVarint(POSITION_GROUP, position.first);
		inner_writer.PutVarint(POSITION_INDEX, position.second);
		writer.PutElement(OPEN_APPLIED, inner);
	}
	return out;
}

std::string Encode(const SnapshotOpenAnswer &answer) {
	auto out = Begin();
	FieldWriter writer(out);
	writer.PutBytes(OPENED_STATUS, EncodeStatus(answer.status));
	writer.PutBytes(OPENED_CLUSTER_ID, answer.cluster_id);
	writer.PutFixed64(OPENED_IMAGE, answer.image);
	writer.PutVarint(OPENED_BYTES, answer.bytes);
	for (auto &position : answer.positions) {
		std::string inner;
		FieldWriter inner_writer(inner);
		inner_writer.PutVarint(POSITION_GROUP, position.group);
		inner_writer.PutVarint(POSITION_INDEX, position.meta.index);
		inner_writer.PutVarint(POSITION_TERM, position.meta.term);
		inner_writer.PutBytes(POSITION_MEMBERSHIP, raft::EncodeMembership(position.meta.membership));
		writer.PutElement(OPENED_POSITION, inner);
	}
	writer.PutVarint(OPENED_PREPARING, answer.is_preparing ? 1 : 0);
	return out;
}

std::string Encode(const SnapshotChunkRequest &request) {
	auto out = Begin();
	FieldWriter writer(out);
	writer.PutFixed64(CHUNK_IMAGE, request.image);
	writer.PutVarint(CHUNK_OFFSET, request.offset);
	writer.PutVarint(CHUNK_SIZE, request.size);
	return out;
}

std::string Encode(const SnapshotChunkAnswer &answer) {
	auto out = Begin();
	out.reserve(answer.data.size() + 64);
	FieldWriter writer(out);
	writer.PutBytes(CHUNKED_STATUS, EncodeStatus(answer.status));
	writer.PutVarint(CHUNKED_OFFSET, answer.offset);
	writer.PutVarint(CHUNKED_CRC, answer.crc32c);
	writer.PutBytes(CHUNKED_DATA, answer.data);
	return out;
}

Result<ProposeRequest> DecodeProposeRequest(ByteView bytes) {
	ProposeRequest request;
	request.group = 0;
	auto status = DecodeBody(bytes, "propose request", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case PROPOSE_GROUP:
			request.group = fields.Value();
			break;
		case PROPOSE_ITEM: {
			ByteReader reader(fields.Bytes());
			auto timeout = reader.GetVarint();
			if (reader.Failed() || timeout > TIMEOUT_MAX) {
				fields.Fail("malformed proposal");
				break;
			}
			auto size = CheckEntryBytes(reader.Remaining(), "proposal");
			if (!size.IsOk()) {
				fields.Fail(size.Message());
				break;
			}
			request.items.push_back(
			    {static_cast<MonotonicNs>(timeout), MakeSharedBytes(std::string(reader.GetRaw(reader.Remaining())))});
			break;
		}
		default:
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<ProposeRequest>(std::move(request)) : Result<ProposeRequest>(status);
}

Result<ProposeAnswer> DecodeProposeAnswer(ByteView bytes) {
	ProposeAnswer answer;
	auto status = DecodeBody(bytes, "propose answer", [&](FieldReader &fields) {
		if (fields.Number() == PROPOSED_ITEM) {
			answer.items.push_back(DecodeOutcome(fields));
		} else {
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<ProposeAnswer>(std::move(answer)) : Result<ProposeAnswer>(status);
}

Result<TransferRequest> DecodeTransferRequest(ByteView bytes) {
	TransferRequest request;
	request.group = 0;
	auto status = DecodeBody(bytes, "transfer request", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case TRANSFER_GROUP:
			request.group = fields.Value();
			break;
		case TRANSFER_TARGET:
			request.target = fields.Value();
			break;
		case TRANSFER_TIMEOUT:
			request.timeout = static_cast<MonotonicNs>(fields.ValueUpTo(TIMEOUT_MAX));
			break;
		default:
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<TransferRequest>(request) : Result<TransferRequest>(status);
}

Result<MemberRequest> DecodeMemberRequest(ByteView bytes) {
	MemberRequest request;
	request.group = 0;
	auto status = DecodeBody(bytes, "member request", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case MEMBER_GROUP:
			request.group = fields.Value();
			break;
		case MEMBER_ACTION:
			request.action = static_cast<uint32_t>(fields.ValueUpTo(UINT32_MAX));
			break;
		case MEMBER_NAME:
			request.name = std::string(fields.Bytes());
			break;
		case MEMBER_INCARNATION:
			request.incarnation = fields.Value();
			break;
		case MEMBER_HOST:
			request.host = std::string(fields.Bytes());
			break;
		case MEMBER_PORT:
			request.port = static_cast<uint16_t>(fields.ValueUpTo(UINT16_MAX));
			break;
		case MEMBER_TIMEOUT:
			request.timeout = static_cast<MonotonicNs>(fields.ValueUpTo(TIMEOUT_MAX));
			break;
		default:
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<MemberRequest>(std::move(request)) : Result<MemberRequest>(status);
}

Result<TextAnswer> DecodeTextAnswer(ByteView bytes) {
	TextAnswer answer;
	auto status = DecodeBody(bytes, "text answer", [&](FieldReader &fields) {
		if (fields.Number() == ANSWER_STATUS) {
			answer.status = DecodeStatus(fields);
		} else if (fields.Number() == ANSWER_TEXT) {
			answer.text = std::string(fields.Bytes());
		} else {
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<TextAnswer>(std::move(answer)) : Result<TextAnswer>(status);
}

Result<StatusAnswer> DecodeStatusAnswer(ByteView bytes) {
	StatusAnswer answer;
	auto decode_group = [&](FieldReader &fields) {
		auto &group = answer.groups.back();
		switch (fields.Number()) {
		case GROUP_ID:
			group.group = fields.Value();
			break;
		case GROUP_APPLIED:
			group.applied_index = fields.Value();
			break;
		case GROUP_QUEUE_COUNT:
			group.queue_count = fields.Value();
			break;
		case GROUP_QUEUE_BYTES:
			group.queue_bytes = fields.Value();
			break;
		case GROUP_REASON:
			group.reason = std::string(fields.Bytes());
			break;
		default:
			fields.Unknown();
		}
	};
	auto status = DecodeBody(bytes, "status answer", [&](FieldReader &fields) {
		if (fields.Number() == STATUS_GROUP) {
			answer.groups.emplace_back();
			answer.groups.back().group = 0;
			DecodeNested(fields, "status of a group", decode_group);
		} else {
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<StatusAnswer>(std::move(answer)) : Result<StatusAnswer>(status);
}

Result<SnapshotOpenRequest> DecodeSnapshotOpenRequest(ByteView bytes) {
	SnapshotOpenRequest request;
	request.group = 0;
	auto status = DecodeBody(bytes, "snapshot open request", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case OPEN_CLUSTER_ID:
			request.cluster_id = std::string(fields.Bytes());
			break;
		case OPEN_GROUP:
			request.group = fields.Value();
			break;
		case OPEN_INDEX_MIN:
			request.index_min = fields.Value();
			break;
		case OPEN_RESUME_IMAGE:
			request.resume_image = fields.Value();
			break;
		case OPEN_RESUME_ONLY:
			request.resume_only = fields.ValueUpTo(1) != 0;
			break;
		case OPEN_APPLIED: {
			auto position = DecodePosition(fields);
			request.applied.emplace_back(position.group, position.meta.index);
			break;
		}
		default:
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<SnapshotOpenRequest>(std::move(request)) : Result<SnapshotOpenRequest>(status);
}

Result<SnapshotOpenAnswer> DecodeSnapshotOpenAnswer(ByteView bytes) {
	SnapshotOpenAnswer answer;
	auto status = DecodeBody(bytes, "snapshot open answer", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case OPENED_STATUS:
			answer.status = DecodeStatus(fields);
			break;
		case OPENED_CLUSTER_ID:
			answer.cluster_id = std::string(fields.Bytes());
			break;
		case OPENED_IMAGE:
			answer.image = fields.Value();
			break;
		case OPENED_BYTES:
			answer.bytes = fields.Value();
			break;
		case OPENED_POSITION:
			answer.positions.push_back(DecodePosition(fields));
			break;
		case OPENED_PREPARING:
			answer.is_preparing = fields.ValueUpTo(1) != 0;
			break;
		default:
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<SnapshotOpenAnswer>(std::move(answer)) : Result<SnapshotOpenAnswer>(status);
}

Result<SnapshotChunkRequest> DecodeSnapshotChunkRequest(ByteView bytes) {
	SnapshotChunkRequest request;
	auto status = DecodeBody(bytes, "snapshot chunk request", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case CHUNK_IMAGE:
			request.image = fields.Value();
			break;
		case CHUNK_OFFSET:
			request.offset = fields.Value();
			break;
		case CHUNK_SIZE:
			request.size = fields.Value();
			break;
		default:
			fields.Unknown();
		}
	});
	return status.IsOk() ? Result<SnapshotChunkRequest>(request) : Result<SnapshotChunkRequest>(status);
}

Result<SnapshotChunkAnswer> DecodeSnapshotChunkAnswer(ByteView bytes) {
	SnapshotChunkAnswer answer;
	auto status = DecodeBody(bytes, "snapshot chunk answer", [&](FieldReader &fields) {
		switch (fields.Number()) {
		case CHUNKED_STATUS:
			answer.status = DecodeStatus(fields);
			break;
		case CHUNKED_OFFSET:
			answer.offset = fields.Value();
			break;
		case CHUNKED_CRC:
			answer.crc32c = static_cast<uint32_t>(fields.ValueUpTo(UINT32_MAX));
			break;
		case CHUNKED_DATA:
			answer.data = std::string(fields.Bytes());
			break;
		default:
			fields.Unknown();
		}
	});
	if (!status.IsOk()) {
		return status;
	}
	if (Crc32c(answer.data) != answer.crc32c) {
		return Status(ErrorCode::Corruption, "snapshot chunk at offset " + std::to_string(answer.offset) +
		                                         ": checksum differs; the chunk will be asked for again");
	}
	return answer;
}

} // namespace wire
} // namespace quack
