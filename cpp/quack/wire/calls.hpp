//! Bodies of the calls between nodes: forwarded proposals, leadership transfer, changes of members, snapshot transfer.
//! Every body starts with one version byte. No IO, no clock, no thread. Freshness of reads needs no call: the cores ask
//! each other by ReadIndex messages (raft_codec.hpp).
#pragma once

#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace wire {

constexpr uint8_t CALL_VERSION = 1;

constexpr const char *METHOD_PROPOSE = "propose";
constexpr const char *METHOD_TRANSFER = "transfer";
//! Body: a TransferRequest, of which only the timeout counts. Moves the groups that the receiver leads.
constexpr const char *METHOD_REBALANCE = "rebalance";
constexpr const char *METHOD_SNAPSHOT_OPEN = "snapshot_open";
constexpr const char *METHOD_SNAPSHOT_CHUNK = "snapshot_chunk";
//! Without a body. The answer is a StatusAnswer.
constexpr const char *METHOD_STATUS = "status";
constexpr const char *METHOD_MEMBER = "member";
//! Body and answer are hellos (hello.hpp): what was said at the start of the session has changed.
constexpr const char *METHOD_HELLO = "hello";

//! Proposals for one group that the sender believes the receiver leads.
struct ProposeRequest {
	struct Item {
		MonotonicNs timeout = 0; //! what is left of the caller's deadline; a duration, so clocks need not agree
		SharedBytes payload;
	};
	raft::GroupId group = raft::ROOT_GROUP;
	std::vector<Item> items;
};

//! One outcome per item, in order.
struct ProposeAnswer {
	struct Item {
		Status status; //! as node::ProposeOutcome::status
		raft::LogIndex index = 0;
	};
	std::vector<Item> items;
};

struct TransferRequest {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::NodeId target = raft::NO_NODE; //! NO_NODE = best caught-up voter
	MonotonicNs timeout = 0;
};

//! What an operator wants done with one member; executed by the leader.
struct MemberRequest {
	raft::GroupId group = raft::ROOT_GROUP;
	uint32_t action = 0; //! node::MemberAction
	std::string name;
	//! What the sender knows of a node that asks to join; 0 and empty = nothing.
	uint64_t incarnation = 0;
	std::string host;
	uint16_t port = 0;
	MonotonicNs timeout = 0;
};

//! An outcome and, when it is good, a word about it.
struct TextAnswer {
	Status status;
	std::string text;
};

//! What the answering node says of its groups; those that it does not run are missing.
struct StatusAnswer {
	struct Group {
		raft::GroupId group = raft::ROOT_GROUP;
		raft::LogIndex applied_index = 0;
		uint64_t queue_count = 0; //! committed and not applied
		uint64_t queue_bytes = 0;
		std::string reason; //! as node::GroupStatus::reason
	};
	std::vector<Group> groups;
};

//! One group's place in a snapshot image.
struct SnapshotPosition {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::SnapshotMeta meta;
};

struct SnapshotOpenRequest {
	std::string cluster_id;
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index_min = 0; //! an older image would not help
	uint64_t resume_image = 0;    //! the receiver holds a part of this one; 0 = of none
	bool resume_only = false;     //! no other image would do: NotFound when it is not there
	//! Where the receiver's state stands, by group: an image that is older in one of those that it holds is of no use.
	std::vector<std::pair<raft::GroupId, raft::LogIndex>> applied = {};
};

struct SnapshotOpenAnswer {
	Status status;
	std::string cluster_id;
	uint64_t image = 0; //! names these bytes, also after a restart of the serving node; never 0
	uint64_t bytes = 0;
	std::vector<SnapshotPosition> positions;
	//! There is no image yet, but one is being made: ask again.
	bool is_preparing = false;
};

struct SnapshotChunkRequest {
	uint64_t image = 0;
	uint64_t offset = 0;
	uint64_t size = 0; //! at most; a server with a rate limit answers less
};

struct SnapshotChunkAnswer {
	Status status;
	uint64_t offset = 0;
	uint32_t crc32c = 0; //! of data
	std::string data;
};

std::string Encode(const ProposeRequest &request);
std::string Encode(const ProposeAnswer &answer);
std::string Encode(const TransferRequest &request);
std::string Encode(const MemberRequest &request);
std::string Encode(const TextAnswer &answer);
std::string Encode(const StatusAnswer &answer);
std::string Encode(const SnapshotOpenRequest &request);
std::string Encode(const SnapshotOpenAnswer &answer);
std::string Encode(const SnapshotChunkRequest &request);
std::string Encode(const SnapshotChunkAnswer &answer);

//! Corruption or Incompatible when the bytes are not one; no partial result.
Result<ProposeRequest> DecodeProposeRequest(ByteView bytes);
Result<ProposeAnswer> DecodeProposeAnswer(ByteView bytes);
Result<TransferRequest> DecodeTransferRequest(ByteView bytes);
Result<MemberRequest> DecodeMemberRequest(ByteView bytes);
Result<TextAnswer> DecodeTextAnswer(ByteView bytes);
Result<StatusAnswer> DecodeStatusAnswer(ByteView bytes);
Result<SnapshotOpenRequest> DecodeSnapshotOpenRequest(ByteView bytes);
Result<SnapshotOpenAnswer> DecodeSnapshotOpenAnswer(ByteView bytes);
Result<SnapshotChunkRequest> DecodeSnapshotChunkRequest(ByteView bytes);
//! Corruption as well when the checksum does not match.
Result<SnapshotChunkAnswer> DecodeSnapshotChunkAnswer(ByteView bytes);

} // namespace wire
} // namespace quack
