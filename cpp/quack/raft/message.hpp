//! The closed set of messages between cores of one group. Plain data; `wire` encodes it.
#pragma once

#include <vector>

#include "quack/raft/types.hpp"

namespace quack {
namespace raft {

enum class MessageType : uint8_t {
	AppendRequest = 1,    //! term, log_index + log_term (previous entry), commit_index, entries, context (flow)
	AppendResponse = 2,   //! term, log_index (reject ? the refused previous index : highest matching index), reject ?
	                      //! hint_index + hint_term (fast back-off), context of the request
	VoteRequest = 3,      //! term, log_index + log_term (last entry), pre_vote, force
	VoteResponse = 4,     //! term, reject, pre_vote
	HeartbeatRequest = 5, //! term, commit_index (never above the follower's match), context (lease/ReadIndex round; 0 =
	                      //! only a commit notice: not answered)
	HeartbeatResponse = 6,  //! term, context, hint_index (the sender's election priority)
	SnapshotRequest = 7,    //! term, snapshot: tells the follower that it must fetch a snapshot from this leader
	SnapshotResponse = 8,   //! term, log_index (now installed up to), reject
	ReadIndexRequest = 9,   //! follower -> leader: term, context (the follower's own request number)
	ReadIndexResponse = 10, //! leader -> follower: term, context, log_index; reject = the leader cannot answer
	TimeoutNow = 11,        //! term; leadership transfer: campaign at once (dissertation §3.10)
};

struct Message {
	MessageType type = MessageType::HeartbeatRequest;
	GroupId group = ROOT_GROUP;
	NodeId from = NO_NODE;
	NodeId to = NO_NODE;
	Term term = 0;
	LogIndex log_index = 0;
	Term log_term = 0;
	LogIndex commit_index = 0;
	bool reject = false;
	LogIndex hint_index = 0;
	Term hint_term = 0;
	bool pre_vote = false;
	//! Vote although the receiver hears a leader: set only by a leadership transfer.
	bool force = false;
	uint64_t context = 0;
	//! HeartbeatRequest: the group goes quiet. HeartbeatResponse: the sender is quiet.
	bool quiet = false;
	std::vector<Entry> entries;
	SnapshotMeta snapshot;
};

} // namespace raft
} // namespace quack
