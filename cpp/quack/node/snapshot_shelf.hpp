//! The serving side of snapshot transfers, without thread, clock or network: the open images of this node, by number.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "quack/node/engine_config.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! An image stays open until nobody asked for a chunk of it for snapshot_idle_timeout; until then the log behind it is
//! kept, or a slow receiver would need the next image at once.
//!
//! Threads: HeldIndex, BytesDone and BytesTotal from any; everything else from the one thread that serves.
class SnapshotShelf {
public:
	//! The membership in force at the start of a group's log: that of an image whose state machine never saw a change.
	using MembershipSource = std::function<raft::Membership(raft::GroupId)>;

	SnapshotShelf(const RaftEngineConfig &config, StateMachine &state_machine, MembershipSource membership_source);

	//! Numbers the images from here on, so that those of an earlier life name none of this one.
	void NumberFrom(uint64_t first_image) {
		next_image = first_image;
	}
	//! Answers a SnapshotOpenRequest. `keeps_log`: the receiver goes on with the log behind the image.
	wire::SnapshotOpenAnswer Open(ByteView body, bool keeps_log, MonotonicNs now);
	//! Answers a SnapshotChunkRequest.
	wire::SnapshotChunkAnswer Chunk(ByteView body, MonotonicNs now);
	//! Nothing happens when it is not open.
	void Close(uint64_t image);
	void CloseIdle(MonotonicNs now);
	void CloseAll();

	//! Lowest index of the group in an open image that keeps the log; UINT64_MAX = none is open.
	raft::LogIndex HeldIndex(raft::GroupId group) const;
	uint64_t BytesDone() const;
	uint64_t BytesTotal() const;

private:
	struct Image {
		std::unique_ptr<StateMachine::SnapshotImage> image;
		MonotonicNs last_used = 0;
		uint64_t bytes_served = 0;
		bool keeps_log = true;
	};

	const RaftEngineConfig &config;
	StateMachine &state_machine;
	const MembershipSource membership_source;

	mutable std::mutex lock; //! guards images; one is read without it, by the one thread that closes them
	std::map<uint64_t, Image> images;
	uint64_t next_image = 1;
};

} // namespace node
} // namespace quack
