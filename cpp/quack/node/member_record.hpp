//! What the cluster knows of one member besides its vote: replicated as a note of the membership.
#pragma once

#include <string>

#include "quack/common/status.hpp"
#include "quack/node/member_id.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace node {

struct MemberRecord {
	std::string name; //! as in the certificate
	uint64_t incarnation = 0;
	std::string host; //! where the others dial it
	uint16_t port = 0;
	//! It left, or its disk was replaced: counts once the node is in no list of the membership any more.
	bool is_removed = false;

	raft::NodeId Node() const {
		return MakeNodeId(name, incarnation);
	}
	transport::PeerAddress Address() const {
		return {name, host, port};
	}
	bool operator==(const MemberRecord &other) const {
		return name == other.name && incarnation == other.incarnation && host == other.host && port == other.port &&
		       is_removed == other.is_removed;
	}
};

//! Stable encoding of a note.
std::string EncodeMemberRecord(const MemberRecord &record);
//! Corruption when the bytes are not one.
Result<MemberRecord> DecodeMemberRecord(ByteView bytes);

//! 16 hex digits, as shown to operators.
std::string FormatIncarnation(uint64_t incarnation);

} // namespace node
} // namespace quack
