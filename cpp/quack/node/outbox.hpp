//! Raft messages on their way out, one envelope per peer.
#pragma once

#include <map>

#include "quack/node/member_directory.hpp"
#include "quack/node/node_beats.hpp"
#include "quack/wire/raft_codec.hpp"

namespace quack {
namespace node {

//! One thread. Messages of all groups to one peer leave together at Flush(), or earlier when an envelope grows large:
//! those with entries in one envelope, the others in one on the urgent lane, so that no heartbeat waits behind bulk.
class Outbox {
public:
	Outbox(const MemberDirectory &directory_p, transport::Transport &transport_p)
	    : directory(directory_p), transport(transport_p) {
	}
	//! A message to this node itself is kept for TakeSelf().
	void Add(raft::Message message);
	//! A sign of life for whom one is due and nothing else leaves.
	void AddBeats(NodeBeats &beats, MonotonicNs now);
	void Flush();
	//! Forgets everything (a degraded node says nothing).
	void Clear();
	std::vector<raft::Message> TakeSelf();

private:
	struct Lanes {
		wire::EnvelopeWriter urgent;
		wire::EnvelopeWriter bulk;
		bool is_beat = false; //! send an envelope even when there is nothing in it
	};

	void Send(raft::NodeId peer, wire::EnvelopeWriter &envelope, bool is_urgent);

	const MemberDirectory &directory;
	transport::Transport &transport;
	std::map<raft::NodeId, Lanes> peers;
	std::vector<raft::Message> self_messages;
};

} // namespace node
} // namespace quack
