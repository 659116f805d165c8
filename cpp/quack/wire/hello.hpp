//! What a node says first on every session, and the words in which a mismatch is refused. No IO, no clock, no thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace wire {

//! The first byte of a hello; the fields after it are numbered (hello.cpp).
constexpr uint8_t HELLO_VERSION = 1;

//! Bits of Hello::capabilities. A node must not use what a peer lacks.
enum Capability : uint64_t {
	CAPABILITY_SNAPSHOT_TRANSFER = 1,
	CAPABILITY_PROPOSAL_FORWARDING = 2,
};

struct Hello {
	std::string cluster_id;
	std::string node_name;
	raft::NodeId node = raft::NO_NODE; //! identity of this incarnation (node/member_id.hpp)
	//! Random, drawn when the data directory was made: tells a disk from its successor under the same name.
	uint64_t incarnation = 0;
	//! Where other members reach the node.
	std::string host;
	uint16_t port = 0;
	//! A node that belongs to a formed cluster: the newest membership it knows to be committed
	//! (raft::EncodeMembership). Empty while the node has no log yet.
	std::string membership;
	//! A node whose cluster is being formed: the incarnation under which each other node came first.
	std::map<std::string, uint64_t> met;
	//! Incarnations that the node's name had before and that never come back: their logs were damaged, and this disk
	//! takes their place. Empty for a disk that replaces none.
	std::vector<uint64_t> replaces;
	//! A node whose cluster is being formed and that holds the state of a backup: which one. Empty otherwise.
	std::string restored_from;
	//! Effects are applied by DuckDB itself: only equal versions surely apply alike.
	std::string duckdb_version;
	uint64_t storage_version = 0;
	//! Entry formats that this node can both write and read: two nodes that share none may not be in one cluster.
	uint32_t entry_format_min = 1;
	uint32_t entry_format_max = 1;
	uint64_t capabilities = 0;
};

std::string EncodeHello(const Hello &hello);
//! Corruption when the bytes are not a hello, Incompatible for another hello version.
Result<Hello> DecodeHello(ByteView bytes);

//! The fence. Incompatible with both values and the fix when the two may not talk: cluster id, DuckDB version, storage
//! version, entry formats. Symmetric: both sides refuse.
Status CheckCompatible(const Hello &local, const Hello &remote);

} // namespace wire
} // namespace quack
