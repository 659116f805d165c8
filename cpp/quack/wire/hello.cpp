#include "quack/wire/hello.hpp"

#include "quack/wire/fields.hpp"

namespace quack {
namespace wire {

namespace {

// Never reuse a number.
enum HelloField : uint32_t {
	HELLO_CLUSTER_ID = 1,
	HELLO_NODE_NAME = 2,
	HELLO_NODE = 3,
	HELLO_INCARNATION = 4,
	HELLO_DUCKDB_VERSION = 5,
	HELLO_STORAGE_VERSION = 6,
	HELLO_ENTRY_FORMAT_MIN = 7,
	HELLO_ENTRY_FORMAT_MAX = 8,
	HELLO_CAPABILITIES = 9,
	HELLO_HOST = 10,
	HELLO_PORT = 11,
	HELLO_MEMBERSHIP = 12,
	HELLO_MET = 13, //! repeated: name as length and bytes, incarnation as 8 bytes
	HELLO_RESTORED_FROM = 14,
	HELLO_REPLACES = 64, //! repeated: incarnation as 8 bytes; an older release may skip it
};

void DecodeMet(FieldReader &fields, Hello &hello) {
	ByteReader reader(fields.Bytes());
	auto name = std::string(reader.GetBytes());
	auto incarnation = reader.GetU64();
	if (!reader.Done() || !hello.met.emplace(name, incarnation).second) {
		fields.Fail("a node that was met does not decode or comes twice");
	}
}

void DecodeReplaces(FieldReader &fields, Hello &hello) {
	ByteReader reader(fields.Bytes());
	auto incarnation = reader.GetU64();
	if (!reader.Done() || incarnation == 0) {
		fields.Fail("a disk that is replaced does not decode");
	}
	hello.replaces.push_back(incarnation);
}

std::string FormatRange(const Hello &hello) {
	return std::to_string(hello.entry_format_min) + ".." + std::to_string(hello.entry_format_max);
}

Status Refusal(const std::string &what, const Hello &local, const std::string &local_value, const Hello &remote,
               const std::string &remote_value, const std::string &fix) {
	return Status(ErrorCode::Incompatible, what + " differs: node '" + local.node_name + "' has '" + local_value +
	                                           "', node '" + remote.node_name + "' has '" + remote_value + "'; " + fix);
}

void DecodeHelloField(FieldReader &fields, Hello &hello) {
	switch (fields.Number()) {
	case HELLO_CLUSTER_ID:
		hello.cluster_id = std::string(fields.Bytes());
		return;
	case HELLO_NODE_NAME:
		hello.node_name = std::string(fields.Bytes());
		return;
	case HELLO_NODE:
		hello.node = fields.Value();
		return;
	case HELLO_INCARNATION:
		hello.incarnation = fields.Value();
		return;
	case HELLO_DUCKDB_VERSION:
		hello.duckdb_version = std::string(fields.Bytes());
		return;
	case HELLO_STORAGE_VERSION:
		hello.storage_version = fields.Value();
		return;
	case HELLO_ENTRY_FORMAT_MIN:
		hello.entry_format_min = static_cast<uint32_t>(fields.ValueUpTo(UINT32_MAX));
		return;
	case HELLO_ENTRY_FORMAT_MAX:
		hello.entry_format_max = static_cast<uint32_t>(fields.ValueUpTo(UINT32_MAX));
		return;
	case HELLO_CAPABILITIES:
		hello.capabilities = fields.Value();
		return;
	case HELLO_HOST:
		hello.host = std::string(fields.Bytes());
		return;
	case HELLO_PORT:
		hello.port = static_cast<uint16_t>(fields.ValueUpTo(UINT16_MAX));
		return;
	case HELLO_MEMBERSHIP:
		hello.membership = std::string(fields.Bytes());
		return;
	case HELLO_MET:
		DecodeMet(fields, hello);
		return;
	case HELLO_RESTORED_FROM:
		hello.restored_from = std::string(fields.Bytes());
		return;
	case HELLO_REPLACES:
		DecodeReplaces(fields, hello);
		return;
	default:
		fields.Unknown();
	}
}

} // namespace

std::string EncodeHello(const Hello &hello) {
	std::string out;
	ByteWriter(out).PutU8(HELLO_VERSION);
	FieldWriter writer(out);
	writer.PutBytes(HELLO_CLUSTER_ID, hello.cluster_id);
	writer.PutBytes(HELLO_NODE_NAME, hello.node_name);
	writer.PutFixed64(HELLO_NODE, hello.node);
	writer.PutFixed64(HELLO_INCARNATION, hello.incarnation);
	writer.PutBytes(HELLO_DUCKDB_VERSION, hello.duckdb_version);
	writer.PutVarint(HELLO_STORAGE_VERSION, hello.storage_version);
	writer.PutVarint(HELLO_ENTRY_FORMAT_MIN, hello.entry_format_min);
	writer.PutVarint(HELLO_ENTRY_FORMAT_MAX, hello.entry_format_max);
	writer.PutVarint(HELLO_CAPABILITIES, hello.capabilities);
	writer.PutBytes(HELLO_HOST, hello.host);
	writer.PutVarint(HELLO_PORT, hello.port);
	writer.PutBytes(HELLO_MEMBERSHIP, hello.membership);
	for (auto &node : hello.met) {
		std::string body;
		ByteWriter met(body);
		met.PutBytes(node.first);
		met.PutU64(node.second);
		writer.PutElement(HELLO_MET, body);
	}
	if (!hello.restored_from.empty()) {
		writer.PutBytes(HELLO_RESTORED_FROM, hello.restored_from);
	}
	for (auto incarnation : hello.replaces) {
		std::string body;
		ByteWriter(body).PutU64(incarnation);
		writer.PutElement(HELLO_REPLACES, body);
	}
	return out;
}

Result<Hello> DecodeHello(ByteView bytes) {
	ByteReader head(bytes);
	auto version = head.GetU8();
	if (head.Failed()) {
		return Status(ErrorCode::Corruption, "hello: empty");
	}
	if (version != HELLO_VERSION) {
		return Status(ErrorCode::Incompatible, "hello: the peer speaks version " + std::to_string(version) +
		                                           ", this node speaks " + std::to_string(HELLO_VERSION) +
		                                           "; run the same release on both nodes");
	}
	Hello hello;
	hello.entry_format_min = 0;
	hello.entry_format_max = 0;
	FieldReader fields(bytes.substr(1), "hello");
	while (fields.Next()) {
		DecodeHelloField(fields, hello);
	}
	if (!fields.Finish().IsOk()) {
		return fields.Finish();
	}
	return hello;
}

Status CheckCompatible(const Hello &local, const Hello &remote) {
	if (local.cluster_id != remote.cluster_id) {
		return Refusal("cluster id", local, local.cluster_id, remote, remote.cluster_id,
		               "one of them is configured with the peers of another cluster: correct cp_metadata_peers, or "
		               "give "
		               "the node an empty data directory if it shall move");
	}
	if (local.duckdb_version != remote.duckdb_version) {
		return Refusal("DuckDB version", local, local.duckdb_version, remote, remote.duckdb_version,
		               "install the same DuckDB version on both nodes");
	}
	if (local.storage_version != remote.storage_version) {
		return Refusal("DuckDB storage version", local, std::to_string(local.storage_version), remote,
		               std::to_string(remote.storage_version), "set the same storage version on both nodes");
	}
	if (local.entry_format_max < remote.entry_format_min || remote.entry_format_max < local.entry_format_min) {
		return Refusal("log entry format", local, FormatRange(local), remote, FormatRange(remote),
		               "upgrade the older node to a release that reads the other's format");
	}
	return Status::Ok();
}

} // namespace wire
} // namespace quack
