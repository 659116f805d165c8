//! Messages of the Quack protocol, versions 1 and 3, both directions: structs, encoders, decoders. No sockets, no HTTP.
//! A message on the wire is a header object, then a body object; chunk-carrying version 3 messages continue with a blob
//! of DataChunk objects. Decoders never read out of bounds and never allocate by a length they have not checked.
//! Malformed bytes throw duckdb::SerializationException. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/common/error_data.hpp"
#include "duckdb/common/optional_idx.hpp"
#include "quack/catalog/coded_error.hpp"
#include "quack/common/bytes.hpp"

namespace quack {
namespace sql {

//! Numbers on the wire. 9 is APPEND_REQUEST in version 1 and SEND_DATA_REQUEST in version 3.
enum class MessageType : uint8_t {
	Invalid = 0,
	ConnectionRequest = 1,
	ConnectionResponse = 2,
	PrepareRequest = 3,
	PrepareResponse = 4,
	FetchRequest = 7,
	FetchResponse = 8,
	SendDataRequest = 9,
	SuccessResponse = 10,
	Disconnect = 11,
	CancelRequest = 12,
	SendDataResponse = 14,
	Acknowledgement = 15,
	HeartbeatRequest = 16,
	ErrorResponse = 100,
};

//! "PREPARE_REQUEST" and so on; "type 42" for an unknown number.
std::string MessageTypeName(MessageType type);

enum class QuackVersion : uint8_t { V1 = 1, V3 = 3 };

//! HTTP side of the protocol. Own needs travel in headers only; a stock peer ignores them. See DESIGN.md.
constexpr const char *QUACK_HTTP_PATH = "/quack";
constexpr uint16_t QUACK_DEFAULT_PORT = 9494;
constexpr const char *QUACK_REQUEST_CONTENT_TYPE = "application/octet-stream";
constexpr const char *QUACK_RESPONSE_CONTENT_TYPE = "application/vnd.duckdb";
//! Request: 32 hex digits; a PREPARE repeated with the same id returns the first outcome instead of a second commit.
constexpr const char *HEADER_REQUEST_ID = "X-Quack-Request-Id";
//! Request: eventual, session or linearizable.
constexpr const char *HEADER_CONSISTENCY = "X-Quack-Consistency";
//! Request: milliseconds left for the whole statement, retries included.
constexpr const char *HEADER_DEADLINE_MS = "X-Quack-Deadline-Ms";
//! Request: the caller has seen these positions (catalog/position_text.hpp); a 'session' read waits for them. Carries a
//! session across nodes.
constexpr const char *HEADER_MIN_POSITIONS = "X-Quack-Min-Positions";
//! Responses: version of the catalog, positions that the answer reflects (after a write: includes it), the base of a
//! request id that is made now (catalog::RequestId), "host:port" of the leader, and "node_id=host:port,..." of all
//! voters.
constexpr const char *HEADER_CATALOG_VERSION = "X-Quack-Catalog-Version";
constexpr const char *HEADER_POSITIONS = "X-Quack-Positions";
constexpr const char *HEADER_REQUEST_BASE = "X-Quack-Request-Base";
constexpr const char *HEADER_LEADER = "X-Quack-Leader";
constexpr const char *HEADER_VOTERS = "X-Quack-Voters";
constexpr const char *HEADER_CLUSTER_ID = "X-Quack-Cluster-Id";
constexpr const char *HEADER_NODE_ID = "X-Quack-Node-Id";

using catalog::EXTRA_INFO_CODE;
//! Transaction token that goes with code "outcome_unknown".
constexpr const char *EXTRA_INFO_TOKEN = "quack_transaction_token";
//! With the code `overloaded`: milliseconds after which the request may be worth sending again.
constexpr const char *EXTRA_INFO_RETRY_AFTER_MS = "quack_retry_after_ms";

//! Limits of a decoder, checked before allocation.
constexpr uint64_t CHUNK_ROWS_MAX = 1024 * 1024;
constexpr uint64_t CHUNK_COUNT_MAX = 1024 * 1024;

struct MessageHeader {
	MessageType type = MessageType::Invalid;
	//! Empty in CONNECTION_REQUEST; in responses only CONNECTION_RESPONSE has it.
	std::string connection_id;
	duckdb::optional_idx client_query_id;
};

struct ConnectionRequest {
	std::string auth_string;
	std::string client_duckdb_version; //! "v2.0.1"
	std::string client_platform;       //! "linux_amd64"
	uint64_t min_version = 3;
	uint64_t max_version = 3;
	std::string client_id;                    //! version 3, optional
	duckdb::optional_idx heartbeat_timeout_s; //! version 3; absent from a version 1 request
};

struct ConnectionResponse {
	std::string server_duckdb_version;
	std::string server_platform;
	uint64_t quack_version = 3;
	uint64_t heartbeat_timeout_s = 0; //! version 3 only: the accepted lease
};

struct PrepareRequest {
	std::string sql;
	duckdb::hugeint_t query_uuid = 0; //! version 3: chosen by the client, 0 for catalog traffic
	duckdb::optional_idx inline_rows; //! version 3: rows wanted in the answer; 0 = answer before any row
};

struct PrepareResponse {
	duckdb::vector<duckdb::LogicalType> types;
	duckdb::vector<std::string> names;
	bool needs_more_fetch = false;
	//! Encode: objects made by EncodeChunk. Decode: filled into `chunks` instead.
	std::vector<std::string> encoded_chunks;
	std::vector<duckdb::unique_ptr<duckdb::DataChunk>> chunks;
	duckdb::hugeint_t query_uuid = 0;
};

struct FetchRequest {
	duckdb::hugeint_t query_uuid = 0;
	uint64_t batch_index = 0; //! version 3: dense from 1
	uint64_t ack_index = 0;   //! version 3: batches 1..ack_index arrived
};

//! Chunks that travel behind a version 3 body, or inside a version 1 list.
struct ChunkBatch {
	uint64_t chunk_count = 0;
	//! `chunk_count` chunk objects of EncodeChunk, one after the other.
	std::string encoded;
};

struct FetchResponse {
	duckdb::optional_idx total_batches; //! version 3, only in the terminal answer (which has no chunks)
	duckdb::optional_idx batch_index;   //! version 1: unset = end
	std::vector<duckdb::unique_ptr<duckdb::DataChunk>> chunks; //! filled by the decoder
};

//! Version 1 only.
struct AppendRequest {
	std::string schema;
	std::string table;
	duckdb::unique_ptr<duckdb::DataChunk> chunk; //! may be null
};

struct SendDataRequest {
	std::string stream_id;
	duckdb::optional_idx total_batches;                        //! only in the terminal message
	duckdb::optional_idx batch_index;                          //! dense from 1
	std::vector<duckdb::unique_ptr<duckdb::DataChunk>> chunks; //! filled by the decoder
};

struct SendDataResponse {
	duckdb::optional_idx accept_budget;
};

//! CANCEL_REQUEST and ACKNOWLEDGEMENT. A zero uuid in CANCEL means whatever runs.
struct QueryReference {
	duckdb::hugeint_t query_uuid = 0;
};

struct ErrorResponse {
	std::string message;        //! without the type prefix
	std::string exception_type; //! version 3; "Catalog", "Binder", ...; empty or unknown = Invalid Input
	std::vector<std::pair<std::string, std::string>> extra_info; //! version 3
	bool must_invalidate = false;                                //! version 3; never set by us
};

//! Encodes one chunk object (ended by FF FF) with the vector encodings that `version` allows. The chunk has at least
//! one column; its vectors may be flattened or compacted by the call.
void EncodeChunk(duckdb::DataChunk &chunk, QuackVersion version, std::string &out);

//! Encoders: whole messages, header included. `header.type` is set by the function.
std::string EncodeConnectionRequest(MessageHeader header, const ConnectionRequest &body);
std::string EncodeConnectionResponse(MessageHeader header, const ConnectionResponse &body);
std::string EncodePrepareRequest(MessageHeader header, const PrepareRequest &body, QuackVersion version);
std::string EncodePrepareResponse(MessageHeader header, const PrepareResponse &body);
std::string EncodeFetchRequest(MessageHeader header, const FetchRequest &body, QuackVersion version);
//! Version 3: `batch` follows as a blob.
std::string EncodeFetchResponse(MessageHeader header, const FetchResponse &body, const ChunkBatch &batch);
//! Version 1: a list of wrapped chunks.
std::string EncodeFetchResponseV1(MessageHeader header, const FetchResponse &body,
                                  const std::vector<std::string> &encoded_chunks);
//! `encoded_chunk` is one object of EncodeChunk.
std::string EncodeAppendRequest(MessageHeader header, const std::string &schema, const std::string &table,
                                const std::string &encoded_chunk);
std::string EncodeSendDataRequest(MessageHeader header, const SendDataRequest &body, const ChunkBatch &batch);
std::string EncodeSendDataResponse(MessageHeader header, const SendDataResponse &body);
std::string EncodeCancelRequest(MessageHeader header, const QueryReference &body);
std::string EncodeAcknowledgement(MessageHeader header, const QueryReference &body);
//! Field 1 alone for version 1 and before a version is known.
std::string EncodeErrorResponse(MessageHeader header, const ErrorResponse &body, QuackVersion version);
//! Messages without body: SUCCESS_RESPONSE, DISCONNECT, HEARTBEAT_REQUEST.
std::string EncodeEmpty(MessageHeader header, MessageType type);

//! Reads one message. Construction decodes the header; then exactly one Read function that fits Header().type.
//! `bytes` outlives the decoder. Trailing bytes are tolerated, as the stock client does.
class MessageDecoder {
public:
	explicit MessageDecoder(ByteView bytes);

	const MessageHeader &Header() const {
		return header;
	}

	ConnectionRequest ReadConnectionRequest();
	ConnectionResponse ReadConnectionResponse();
	PrepareRequest ReadPrepareRequest();
	PrepareResponse ReadPrepareResponse();
	FetchRequest ReadFetchRequest();
	FetchResponse ReadFetchResponse(QuackVersion version);
	AppendRequest ReadAppendRequest();
	SendDataRequest ReadSendDataRequest();
	SendDataResponse ReadSendDataResponse();
	QueryReference ReadQueryReference();
	ErrorResponse ReadErrorResponse();
	//! SUCCESS_RESPONSE, DISCONNECT, HEARTBEAT_REQUEST.
	void ReadEmpty();

private:
	ByteView bytes;
	size_t body_offset = 0;
	MessageHeader header;
};

//! An error as the server sends it: type, message and extra info without the keys that never travel.
ErrorResponse MakeErrorResponse(const duckdb::ErrorData &error);
//! The same error for the client's user. INTERNAL and FATAL become Invalid Input, so that a server cannot invalidate
//! the client's database. Extra info is kept when the error is thrown with Throw().
[[noreturn]] void ThrowErrorResponse(const ErrorResponse &error);

//! 32 lower-case hex digits of a query uuid or request id; and back. Returns false for any other text.
std::string HugeintToHex(duckdb::hugeint_t value);
bool HugeintFromHex(const std::string &text, duckdb::hugeint_t &value);
//! The 8-4-4-4-12 form in which a stream id of scan_data_from_quack_client is written.
std::string HugeintToUuid(duckdb::hugeint_t value);

} // namespace sql
} // namespace quack
