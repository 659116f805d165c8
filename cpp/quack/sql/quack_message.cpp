#include "quack/sql/quack_message.hpp"

#include <algorithm>

#include "duckdb/common/exception.hpp"
#include "duckdb/common/serializer/binary_serializer.hpp"
#include "duckdb/common/types/uuid.hpp"
#include "duckdb/common/vector_operations/vector_operations.hpp"
#include "quack/sql/bounded_deserializer.hpp"

namespace quack {
namespace sql {

using duckdb::DataChunk;
using duckdb::hugeint_t;
using duckdb::LogicalType;
using duckdb::optional_idx;
using duckdb::SerializationException;

namespace {

constexpr uint16_t OBJECT_END = 0xFFFF;
constexpr uint16_t WRAPPED_CHUNK_FIELD = 300;

class StringWriteStream final : public duckdb::WriteStream {
public:
	explicit StringWriteStream(std::string &out_p) : out(out_p) {
	}
	void WriteData(duckdb::const_data_ptr_t buffer, duckdb::idx_t write_size) override {
		out.append(reinterpret_cast<const char *>(buffer), write_size);
	}

private:
	std::string &out;
};

duckdb::SerializationOptions OptionsFor(QuackVersion version) {
	duckdb::SerializationOptions options;
	// Version 1 speaks the encodings of DuckDB 1.5, version 3 those of 2.0; neither is negotiated.
	auto storage = version == QuackVersion::V1 ? duckdb::StorageVersion::V1_5_0 : duckdb::StorageVersion::V2_0_0;
	options.storage_compatibility = duckdb::StorageCompatibility::FromIndex(storage);
	return options;
}

//! Fields of one message in DuckDB's object format.
class MessageWriter {
public:
	explicit MessageWriter(const MessageHeader &header) {
		PutU64(1, static_cast<uint8_t>(header.type));
		if (!header.connection_id.empty()) {
			PutString(2, header.connection_id);
		}
		PutOptional(3, header.client_query_id);
		End();
	}
	void PutField(uint16_t id) {
		ByteWriter(out).PutU16(id);
	}
	void PutU64(uint16_t id, uint64_t value) {
		PutField(id);
		ByteWriter(out).PutVarint(value);
	}
	void PutBool(uint16_t id, bool value) {
		PutField(id);
		ByteWriter(out).PutU8(value ? 1 : 0);
	}
	//! Writes the all-ones form of an unset value.
	void PutOptional(uint16_t id, optional_idx value) {
		PutU64(id, value.IsValid() ? value.GetIndex() : duckdb::DConstants::INVALID_INDEX);
	}
	void PutString(uint16_t id, const std::string &value) {
		PutField(id);
		ByteWriter(out).PutBytes(value);
	}
	void PutHugeint(uint16_t id, hugeint_t value) {
		PutField(id);
		PutSignedVarint(value.upper);
		ByteWriter(out).PutVarint(value.lower);
	}
	void PutWrappedChunk(const std::string &encoded) {
		ByteWriter writer(out);
		writer.PutU8(1);
		writer.PutU16(WRAPPED_CHUNK_FIELD);
		writer.PutRaw(encoded);
		writer.PutU16(OBJECT_END);
	}
	void PutWrappedChunks(uint16_t id, const std::vector<std::string> &encoded) {
		if (encoded.empty()) {
			return;
		}
		PutU64(id, encoded.size());
		for (auto &chunk : encoded) {
			PutWrappedChunk(chunk);
		}
	}
	void End() {
		PutField(OBJECT_END);
	}
	std::string &Out() {
		return out;
	}
	std::string Finish() {
		End();
		return std::move(out);
	}

private:
	void PutSignedVarint(int64_t value) {
		ByteWriter writer(out);
		while (true) {
			auto byte = static_cast<uint8_t>(value & 0x7F);
			value >>= 7;
			bool last = (value == 0 && (byte & 0x40) == 0) || (value == -1 && (byte & 0x40) != 0);
			writer.PutU8(last ? byte : (byte | 0x80));
			if (last) {
				return;
			}
		}
	}

	std::string out;
};

MessageWriter Start(MessageHeader &header, MessageType type) {
	header.type = type;
	return MessageWriter(header);
}

duckdb::unique_ptr<DataChunk> ReadChunkObject(duckdb::Deserializer &in) {
	auto chunk = duckdb::make_uniq<DataChunk>();
	chunk->Deserialize(in);
	if (chunk->ColumnCount() == 0) {
		throw SerializationException("Malformed Quack message: a chunk without columns");
	}
	return chunk;
}

//! A pointer to a wrapper object {300: chunk}. Shaped so that Deserializer can read lists of it.
struct WrappedChunk {
	duckdb::unique_ptr<DataChunk> chunk;

	static duckdb::unique_ptr<WrappedChunk> Deserialize(duckdb::Deserializer &in) {
		auto result = duckdb::make_uniq<WrappedChunk>();
		in.ReadObject(WRAPPED_CHUNK_FIELD, "chunk",
		              [&](duckdb::Deserializer &object) { result->chunk = ReadChunkObject(object); });
		return result;
	}
};

using ChunkList = std::vector<duckdb::unique_ptr<DataChunk>>;

ChunkList ReadWrappedChunks(BoundedDeserializer &in, duckdb::field_id_t id) {
	ChunkList result;
	in.ReadOptionalList(id, "results", [&](duckdb::Deserializer::List &list, duckdb::idx_t) {
		auto wrapped = list.ReadElement<duckdb::unique_ptr<WrappedChunk>>();
		if (wrapped && wrapped->chunk) {
			result.push_back(std::move(wrapped->chunk));
		}
	});
	return result;
}

ChunkList ReadChunkBlob(BoundedDeserializer &in, uint64_t count) {
	if (count > CHUNK_COUNT_MAX) {
		throw SerializationException("Malformed Quack message: %llu chunks, at most %llu are taken", count,
		                             CHUNK_COUNT_MAX);
	}
	ChunkList result;
	for (uint64_t i = 0; i < count; i++) {
		in.Begin();
		result.push_back(ReadChunkObject(in));
		in.End();
	}
	return result;
}

//! A count or index that may be absent or unset; both read as unset.
optional_idx ReadOptionalIndex(BoundedDeserializer &in, duckdb::field_id_t id, const char *tag) {
	return in.ReadPropertyWithExplicitDefault<optional_idx>(id, tag, optional_idx());
}

uint64_t ReadCount(BoundedDeserializer &in, duckdb::field_id_t id, const char *tag) {
	auto value = ReadOptionalIndex(in, id, tag);
	return value.IsValid() ? value.GetIndex() : 0;
}

bool TravelsInExtraInfo(const std::string &key) {
	return key != "exception_type" && key != "exception_message" && key != "position" && key != "stack_trace" &&
	       key != "stack_trace_pointers";
}

} // namespace

std::string MessageTypeName(MessageType type) {
	switch (type) {
	case MessageType::ConnectionRequest:
		return "CONNECTION_REQUEST";
	case MessageType::ConnectionResponse:
		return "CONNECTION_RESPONSE";
	case MessageType::PrepareRequest:
		return "PREPARE_REQUEST";
	case MessageType::PrepareResponse:
		return "PREPARE_RESPONSE";
	case MessageType::FetchRequest:
		return "FETCH_REQUEST";
	case MessageType::FetchResponse:
		return "FETCH_RESPONSE";
	case MessageType::SendDataRequest:
		return "SEND_DATA_REQUEST";
	case MessageType::SuccessResponse:
		return "SUCCESS_RESPONSE";
	case MessageType::Disconnect:
		return "DISCONNECT";
	case MessageType::CancelRequest:
		return "CANCEL_REQUEST";
	case MessageType::SendDataResponse:
		return "SEND_DATA_RESPONSE";
	case MessageType::Acknowledgement:
		return "ACKNOWLEDGEMENT";
	case MessageType::HeartbeatRequest:
		return "HEARTBEAT_REQUEST";
	case MessageType::ErrorResponse:
		return "ERROR_RESPONSE";
	default:
		return "type " + std::to_string(static_cast<uint32_t>(type));
	}
}

void EncodeChunk(DataChunk &chunk, QuackVersion version, std::string &out) {
	StringWriteStream stream(out);
	duckdb::BinarySerializer serializer(stream, OptionsFor(version));
	serializer.Begin();
	chunk.Serialize(serializer);
	serializer.End();
}

std::string EncodeConnectionRequest(MessageHeader header, const ConnectionRequest &body) {
	auto writer = Start(header, MessageType::ConnectionRequest);
	writer.PutString(1, body.auth_string);
	writer.PutString(2, body.client_duckdb_version);
	writer.PutString(3, body.client_platform);
	writer.PutU64(4, body.min_version);
	writer.PutU64(5, body.max_version);
	if (!body.client_id.empty()) {
		writer.PutString(6, body.client_id);
	}
	if (body.heartbeat_timeout_s.IsValid()) {
		writer.PutU64(7, body.heartbeat_timeout_s.GetIndex());
	}
	return writer.Finish();
}

std::string EncodeConnectionResponse(MessageHeader header, const ConnectionResponse &body) {
	auto writer = Start(header, MessageType::ConnectionResponse);
	writer.PutString(1, body.server_duckdb_version);
	writer.PutString(2, body.server_platform);
	writer.PutU64(3, body.quack_version);
	if (body.quack_version >= 3) {
		writer.PutU64(4, body.heartbeat_timeout_s);
	}
	return writer.Finish();
}

std::string EncodePrepareRequest(MessageHeader header, const PrepareRequest &body, QuackVersion version) {
	auto writer = Start(header, MessageType::PrepareRequest);
	writer.PutString(1, body.sql);
	if (version == QuackVersion::V3) {
		writer.PutHugeint(2, body.query_uuid);
		if (body.inline_rows.IsValid()) {
			writer.PutOptional(3, body.inline_rows);
		}
	}
	return writer.Finish();
}

std::string EncodePrepareResponse(MessageHeader header, const PrepareResponse &body) {
	auto writer = Start(header, MessageType::PrepareResponse);
	writer.PutU64(1, body.types.size());
	StringWriteStream stream(writer.Out());
	// The types inside the chunks follow the same rule, so the version does not matter for plain types.
	for (auto &type : body.types) {
		duckdb::BinarySerializer::Serialize(type, stream, OptionsFor(QuackVersion::V1));
	}
	writer.PutU64(2, body.names.size());
	for (auto &name : body.names) {
		ByteWriter(writer.Out()).PutBytes(name);
	}
	if (body.needs_more_fetch) {
		writer.PutBool(3, true);
	}
	writer.PutWrappedChunks(4, body.encoded_chunks);
	writer.PutHugeint(5, body.query_uuid);
	return writer.Finish();
}

std::string EncodeFetchRequest(MessageHeader header, const FetchRequest &body, QuackVersion version) {
	auto writer = Start(header, MessageType::FetchRequest);
	writer.PutHugeint(1, body.query_uuid);
	if (version == QuackVersion::V3) {
		writer.PutU64(2, body.batch_index);
		writer.PutU64(3, body.ack_index);
	}
	return writer.Finish();
}

std::string EncodeFetchResponse(MessageHeader header, const FetchResponse &body, const ChunkBatch &batch) {
	auto writer = Start(header, MessageType::FetchResponse);
	if (batch.chunk_count != 0) {
		writer.PutU64(1, batch.chunk_count);
	}
	if (body.total_batches.IsValid()) {
		writer.PutOptional(2, body.total_batches);
	}
	if (body.batch_index.IsValid()) {
		writer.PutOptional(3, body.batch_index);
	}
	writer.End();
	auto result = std::move(writer.Out());
	result += batch.encoded;
	return result;
}

std::string EncodeFetchResponseV1(MessageHeader header, const FetchResponse &body,
                                  const std::vector<std::string> &encoded_chunks) {
	auto writer = Start(header, MessageType::FetchResponse);
	writer.PutWrappedChunks(1, encoded_chunks);
	writer.PutOptional(2, body.batch_index);
	return writer.Finish();
}

std::string EncodeAppendRequest(MessageHeader header, const std::string &schema, const std::string &table,
                                const std::string &encoded_chunk) {
	auto writer = Start(header, MessageType::SendDataRequest);
	writer.PutString(1, schema);
	writer.PutString(2, table);
	writer.PutField(3);
	writer.PutWrappedChunk(encoded_chunk);
	return writer.Finish();
}

std::string EncodeSendDataRequest(MessageHeader header, const SendDataRequest &body, const ChunkBatch &batch) {
	auto writer = Start(header, MessageType::SendDataRequest);
	writer.PutString(1, body.stream_id);
	if (batch.chunk_count != 0) {
		writer.PutU64(2, batch.chunk_count);
	}
	if (body.total_batches.IsValid()) {
		writer.PutOptional(3, body.total_batches);
	}
	if (body.batch_index.IsValid()) {
		writer.PutOptional(4, body.batch_index);
	}
	writer.End();
	auto result = std::move(writer.Out());
	result += batch.encoded;
	return result;
}

std::string EncodeSendDataResponse(MessageHeader header, const SendDataResponse &body) {
	auto writer = Start(header, MessageType::SendDataResponse);
	if (body.accept_budget.IsValid()) {
		writer.PutOptional(1, body.accept_budget);
	}
	return writer.Finish();
}

std::string EncodeCancelRequest(MessageHeader header, const QueryReference &body) {
	auto writer = Start(header, MessageType::CancelRequest);
	writer.PutHugeint(1, body.query_uuid);
	return writer.Finish();
}

std::string EncodeAcknowledgement(MessageHeader header, const QueryReference &body) {
	auto writer = Start(header, MessageType::Acknowledgement);
	writer.PutHugeint(1, body.query_uuid);
	return writer.Finish();
}

std::string EncodeErrorResponse(MessageHeader header, const ErrorResponse &body, QuackVersion version) {
	auto writer = Start(header, MessageType::ErrorResponse);
	writer.PutString(1, body.message);
	if (version == QuackVersion::V3) {
		if (!body.exception_type.empty()) {
			writer.PutString(2, body.exception_type);
		}
		if (!body.extra_info.empty()) {
			writer.PutU64(3, body.extra_info.size());
			for (auto &entry : body.extra_info) {
				writer.PutString(0, entry.first);
				writer.PutString(1, entry.second);
				writer.End();
			}
		}
		if (body.must_invalidate) {
			writer.PutBool(4, true);
		}
	}
	return writer.Finish();
}

std::string EncodeEmpty(MessageHeader header, MessageType type) {
	return Start(header, type).Finish();
}

MessageDecoder::MessageDecoder(ByteView bytes_p) : bytes(bytes_p) {
	BoundedDeserializer in(bytes);
	in.Begin();
	header.type = static_cast<MessageType>(in.ReadProperty<uint8_t>(1, "type"));
	header.connection_id = in.ReadPropertyWithDefault<std::string>(2, "connection_id");
	header.client_query_id = ReadOptionalIndex(in, 3, "client_query_id");
	in.End();
	body_offset = in.Offset();
}

ConnectionRequest MessageDecoder::ReadConnectionRequest() {
	BoundedDeserializer in(bytes, body_offset);
	ConnectionRequest body;
	in.Begin();
	body.auth_string = in.ReadPropertyWithDefault<std::string>(1, "auth_string");
	body.client_duckdb_version = in.ReadPropertyWithDefault<std::string>(2, "client_duckdb_version");
	body.client_platform = in.ReadPropertyWithDefault<std::string>(3, "client_platform");
	body.min_version = in.ReadPropertyWithDefault<uint64_t>(4, "min_supported_quack_version");
	body.max_version = in.ReadPropertyWithDefault<uint64_t>(5, "max_supported_quack_version");
	body.client_id = in.ReadPropertyWithDefault<std::string>(6, "client_id");
	body.heartbeat_timeout_s = ReadOptionalIndex(in, 7, "heartbeat_timeout");
	in.End();
	return body;
}

ConnectionResponse MessageDecoder::ReadConnectionResponse() {
	BoundedDeserializer in(bytes, body_offset);
	ConnectionResponse body;
	in.Begin();
	body.server_duckdb_version = in.ReadPropertyWithDefault<std::string>(1, "server_duckdb_version");
	body.server_platform = in.ReadPropertyWithDefault<std::string>(2, "server_platform");
	body.quack_version = in.ReadPropertyWithDefault<uint64_t>(3, "quack_version");
	body.heartbeat_timeout_s = ReadCount(in, 4, "heartbeat_timeout");
	in.End();
	return body;
}

PrepareRequest MessageDecoder::ReadPrepareRequest() {
	BoundedDeserializer in(bytes, body_offset);
	PrepareRequest body;
	in.Begin();
	body.sql = in.ReadPropertyWithDefault<std::string>(1, "sql");
	body.query_uuid = in.ReadPropertyWithExplicitDefault<hugeint_t>(2, "query_uuid", hugeint_t(0));
	body.inline_rows = ReadOptionalIndex(in, 3, "inline_rows");
	in.End();
	return body;
}

PrepareResponse MessageDecoder::ReadPrepareResponse() {
	BoundedDeserializer in(bytes, body_offset);
	PrepareResponse body;
	in.Begin();
	in.ReadOptionalList(1, "types", [&](duckdb::Deserializer::List &list, duckdb::idx_t) {
		body.types.push_back(list.ReadElement<LogicalType>());
	});
	in.ReadOptionalList(2, "names", [&](duckdb::Deserializer::List &list, duckdb::idx_t) {
		body.names.push_back(list.ReadElement<std::string>());
	});
	body.needs_more_fetch = in.ReadPropertyWithExplicitDefault<bool>(3, "needs_more_fetch", false);
	body.chunks = ReadWrappedChunks(in, 4);
	body.query_uuid = in.ReadProperty<hugeint_t>(5, "result_uuid");
	in.End();
	if (body.types.size() != body.names.size()) {
		throw SerializationException("Malformed Quack message: %llu types but %llu names",
		                             static_cast<uint64_t>(body.types.size()),
		                             static_cast<uint64_t>(body.names.size()));
	}
	return body;
}

FetchRequest MessageDecoder::ReadFetchRequest() {
	BoundedDeserializer in(bytes, body_offset);
	FetchRequest body;
	in.Begin();
	body.query_uuid = in.ReadPropertyWithExplicitDefault<hugeint_t>(1, "uuid", hugeint_t(0));
	body.batch_index = ReadCount(in, 2, "batch_index");
	body.ack_index = ReadCount(in, 3, "ack_index");
	in.End();
	return body;
}

FetchResponse MessageDecoder::ReadFetchResponse(QuackVersion version) {
	BoundedDeserializer in(bytes, body_offset);
	FetchResponse body;
	in.Begin();
	if (version == QuackVersion::V1) {
		body.chunks = ReadWrappedChunks(in, 1);
		body.batch_index = ReadOptionalIndex(in, 2, "batch_index");
		in.End();
		return body;
	}
	auto chunk_count = ReadCount(in, 1, "chunk_count");
	body.total_batches = ReadOptionalIndex(in, 2, "total_batches");
	body.batch_index = ReadOptionalIndex(in, 3, "batch_index");
	in.End();
	body.chunks = ReadChunkBlob(in, chunk_count);
	return body;
}

AppendRequest MessageDecoder::ReadAppendRequest() {
	BoundedDeserializer in(bytes, body_offset);
	AppendRequest body;
	in.Begin();
	body.schema = in.ReadPropertyWithDefault<std::string>(1, "schema");
	body.table = in.ReadPropertyWithDefault<std::string>(2, "table");
	auto wrapped = in.ReadPropertyWithDefault<duckdb::unique_ptr<WrappedChunk>>(3, "append_chunk");
	in.End();
	if (wrapped) {
		body.chunk = std::move(wrapped->chunk);
	}
	return body;
}

SendDataRequest MessageDecoder::ReadSendDataRequest() {
	BoundedDeserializer in(bytes, body_offset);
	SendDataRequest body;
	in.Begin();
	body.stream_id = in.ReadPropertyWithDefault<std::string>(1, "stream_id");
	auto chunk_count = ReadCount(in, 2, "chunk_count");
	body.total_batches = ReadOptionalIndex(in, 3, "total_batches");
	body.batch_index = ReadOptionalIndex(in, 4, "batch_index");
	in.End();
	body.chunks = ReadChunkBlob(in, chunk_count);
	return body;
}

SendDataResponse MessageDecoder::ReadSendDataResponse() {
	BoundedDeserializer in(bytes, body_offset);
	SendDataResponse body;
	in.Begin();
	body.accept_budget = ReadOptionalIndex(in, 1, "accept_budget");
	in.End();
	return body;
}

QueryReference MessageDecoder::ReadQueryReference() {
	BoundedDeserializer in(bytes, body_offset);
	QueryReference body;
	in.Begin();
	body.query_uuid = in.ReadPropertyWithExplicitDefault<hugeint_t>(1, "query_uuid", hugeint_t(0));
	in.End();
	return body;
}

ErrorResponse MessageDecoder::ReadErrorResponse() {
	BoundedDeserializer in(bytes, body_offset);
	ErrorResponse body;
	in.Begin();
	body.message = in.ReadPropertyWithDefault<std::string>(1, "message");
	body.exception_type = in.ReadPropertyWithDefault<std::string>(2, "exception_type");
	in.ReadOptionalList(3, "extra_info", [&](duckdb::Deserializer::List &list, duckdb::idx_t) {
		list.ReadObject([&](duckdb::Deserializer &object) {
			auto key = object.ReadPropertyWithDefault<std::string>(0, "first");
			auto value = object.ReadPropertyWithDefault<std::string>(1, "second");
			body.extra_info.emplace_back(std::move(key), std::move(value));
		});
	});
	body.must_invalidate = in.ReadPropertyWithExplicitDefault<bool>(4, "must_invalidate", false);
	in.End();
	return body;
}

void MessageDecoder::ReadEmpty() {
	BoundedDeserializer in(bytes, body_offset);
	in.Begin();
	in.End();
}

ErrorResponse MakeErrorResponse(const duckdb::ErrorData &error) {
	ErrorResponse response;
	response.message = error.RawMessage();
	response.exception_type = duckdb::Exception::ExceptionTypeToString(error.Type());
	for (auto &entry : error.ExtraInfo()) {
		if (TravelsInExtraInfo(entry.first)) {
			response.extra_info.emplace_back(entry.first, entry.second);
		}
	}
	std::sort(response.extra_info.begin(), response.extra_info.end());
	return response;
}

void ThrowErrorResponse(const ErrorResponse &error) {
	auto type = duckdb::Exception::StringToExceptionType(error.exception_type);
	auto message = error.message;
	if (duckdb::Exception::InvalidatesDatabase(type)) {
		message = error.exception_type + " Error on the Quack server: " + message;
		type = duckdb::ExceptionType::INVALID_INPUT;
	} else if (type == duckdb::ExceptionType::INVALID) {
		type = duckdb::ExceptionType::INVALID_INPUT;
	}
	duckdb::unordered_map<std::string, std::string> extra_info;
	for (auto &entry : error.extra_info) {
		if (TravelsInExtraInfo(entry.first)) {
			extra_info[entry.first] = entry.second;
		}
	}
	throw duckdb::Exception(extra_info, type, message);
}

std::string HugeintToHex(hugeint_t value) {
	static const char DIGITS[] = "0123456789abcdef";
	std::string text(32, '0');
	uint64_t halves[2] = {static_cast<uint64_t>(value.upper), value.lower};
	for (size_t i = 0; i < 32; i++) {
		text[i] = DIGITS[(halves[i / 16] >> (60 - 4 * (i % 16))) & 0xF];
	}
	return text;
}

bool HugeintFromHex(const std::string &text, hugeint_t &value) {
	if (text.size() != 32) {
		return false;
	}
	uint64_t halves[2] = {0, 0};
	for (size_t i = 0; i < 32; i++) {
		auto c = text[i];
		uint64_t digit;
		if (c >= '0' && c <= '9') {
			digit = static_cast<uint64_t>(c - '0');
		} else if (c >= 'a' && c <= 'f') {
			digit = static_cast<uint64_t>(c - 'a') + 10;
		} else if (c >= 'A' && c <= 'F') {
			digit = static_cast<uint64_t>(c - 'A') + 10;
		} else {
			return false;
		}
		halves[i / 16] = (halves[i / 16] << 4) | digit;
	}
	value = hugeint_t(static_cast<int64_t>(halves[0]), halves[1]);
	return true;
}

std::string HugeintToUuid(hugeint_t value) {
	auto hex = HugeintToHex(value);
	return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" + hex.substr(16, 4) + "-" +
	       hex.substr(20);
}

} // namespace sql
} // namespace quack
