//! The serving side of snapshot transfers, without thread, clock or network: the open images of this node, by id.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "quack/node/engine_config.hpp"
#include "quack/node/snapshot_transfer.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! An image for peers is shared: whoever asks while a fresh enough one is open gets that one. It stays open until
//! nobody asked for a chunk for a while (RaftEngineConfig: snapshot_idle_timeout, and snapshot_resume_timeout while a
//! peer has not all of it), and is retained for the node's next life as long as a peer has not all of it. Until it is
//! closed the log behind it is kept, or a slow receiver would need the next image at once.
//!
//! Threads: Open from one thread, everything that reads or closes images from one other; HeldIndex, BytesDone,
//! BytesTotal, Transfers from any.
class SnapshotShelf {
public:
	//! The membership in force at the start of a group's log: that of an image whose state machine never saw a change.
	using MembershipSource = std::function<raft::Membership(raft::GroupId)>;
	//! Who a backup is, in place of a peer's name.
	static constexpr const char *BACKUP = "";

	SnapshotShelf(const RaftEngineConfig &config, StateMachine &state_machine, MembershipSource membership_source);

	//! Puts the retained images of the earlier life on the shelf. Before everything else.
	void Begin(MonotonicNs now);
	//! Answers a SnapshotOpenRequest with the image that the receiver has a part of, else with one that is open, else
	//! with a new one. A backup always gets its own, and no log is kept for it.
	wire::SnapshotOpenAnswer Open(ByteView body, const std::string &peer, MonotonicNs now);
	//! Answers a SnapshotChunkRequest with at most `bytes_max` bytes.
	wire::SnapshotChunkAnswer Chunk(ByteView body, const std::string &peer, MonotonicNs now,
	                                uint64_t bytes_max = UINT64_MAX);
	//! Nothing happens when it is not open.
	void Close(uint64_t image);
	void CloseIdle(MonotonicNs now);
	//! The end of this life: what a peer has not all of stays retained.
	void CloseAll();

	//! Lowest index of the group in an open image that keeps the log; UINT64_MAX = none is open.
	raft::LogIndex HeldIndex(raft::GroupId group) const;
	uint64_t BytesDone() const;
	uint64_t BytesTotal() const;
	std::vector<SnapshotTransfer> Transfers(MonotonicNs now) const;

private:
	struct Receiver {
		uint64_t bytes_done = 0;
		uint64_t bytes_moved = 0;
		uint64_t resumed_count = 0;
		MonotonicNs last_used = 0;
		TransferRate rate;
	};
	struct Image {
		std::unique_ptr<StateMachine::SnapshotImage> image;
		MonotonicNs opened = 0;
		MonotonicNs last_used = 0;
		bool keeps_log = true;
		bool is_retained = false;
		//! Of an earlier life, and nobody has asked for it yet.
		bool is_orphan = false;
		std::map<std::string, Receiver> receivers;

		//! A peer has not all of it.
		bool IsWanted() const;
	};
	using Images = std::map<uint64_t, Image>;

	//! Under the lock. Null = none would do.
	Image *FindForPeer(const wire::SnapshotOpenRequest &request, MonotonicNs now);
	//! Its image is 0 when none that is open would do.
	wire::SnapshotOpenAnswer OfferOpen(const wire::SnapshotOpenRequest &request, const std::string &peer,
	                                   MonotonicNs now);
	wire::SnapshotOpenAnswer OfferNew(const wire::SnapshotOpenRequest &request, const std::string &peer,
	                                  MonotonicNs now);
	wire::SnapshotOpenAnswer Offer(Image &image, const wire::SnapshotOpenRequest &request, const std::string &peer,
	                               MonotonicNs now);
	Status CheckIndex(const StateMachine::SnapshotImage &image, const wire::SnapshotOpenRequest &request) const;
	//! Under the lock: retained exactly as long as it is wanted.
	void UpdateRetention(Image &image);
	std::unique_ptr<StateMachine::SnapshotImage> TakeOut(Images::iterator entry);

	const RaftEngineConfig &config;
	StateMachine &state_machine;
	const MembershipSource membership_source;

	mutable std::mutex lock; //! guards images; one is read without it, by the one thread that closes them
	Images images;
};

} // namespace node
} // namespace quack
