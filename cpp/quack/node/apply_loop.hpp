//! The thread that feeds the state machine.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <thread>

#include "quack/node/apply_order.hpp"
#include "quack/node/degraded_latch.hpp"
#include "quack/node/disk_watch.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/node/loop_event.hpp"

namespace quack {
namespace node {

//! Coalesces committed entries of all groups, in the order that ApplyOrder allows, into one StateMachine::Apply;
//! installs received snapshots between two Apply calls; checkpoints by log bytes and by time, when nothing can be
//! applied or the threshold is far passed. A failed Apply latches the node, and so do entries that can never be
//! applied.
class ApplyLoop {
public:
	ApplyLoop(const RaftEngineConfig &config, StateMachine &state_machine, const Clock &clock, const DiskWatch &disk,
	          LoopMailbox &loop, DegradedLatch &latch);
	~ApplyLoop();

	//! Reads the applied vector of the state machine, then starts the thread.
	void Start();
	//! Applies what is queued, then one last checkpoint when asked (a degraded node makes none), then joins.
	//! Idempotent.
	void Stop(bool final_checkpoint);
	//! Joins after the Apply call under way, as a crash would.
	void Abort();

	//! Loop thread only. The loop bounds it: it takes in no entries while QueueBytes() is above apply_queue_bytes_max.
	void Push(raft::GroupId group, std::vector<raft::Entry> entries);
	//! Any thread. `path` is consumed. Installed before everything that is queued: what waits may need it, and what it
	//! covers is skipped.
	void PushInstall(raft::GroupId group, std::string path, std::vector<wire::SnapshotPosition> positions);

	//! As ConsensusEngine::WaitApplied.
	Status WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout);
	raft::LogIndex AppliedIndex(raft::GroupId group) const;
	raft::LogIndex CheckpointIndex(raft::GroupId group) const;
	//! Handed in and not yet applied.
	size_t QueueBytes() const {
		return queue_bytes.load(std::memory_order_relaxed);
	}
	size_t QueueCount() const {
		return queue_count.load(std::memory_order_relaxed);
	}
	//! One group's part of the queue, and what its first entry waits for (empty = nothing).
	struct GroupQueue {
		size_t bytes = 0;
		size_t count = 0;
		std::string waiting_for;
		raft::GroupId needed_group = 0;
	};
	GroupQueue QueueOf(raft::GroupId group) const;
	//! Loop thread only. While paused nothing is applied, but images are installed.
	void SetPaused(bool is_paused);
	//! Of every group ever heard of.
	std::vector<Position> AppliedPositions() const;
	//! Any thread. A checkpoint as soon as the work in hand is applied, if anything changed since the last one.
	void RequestCheckpoint();
	//! Last checkpoint or install that failed and will be tried again; empty = none.
	std::string Alarm() const;
	//! Wakes the thread and everybody in WaitApplied, to look at the latch.
	void WakeAll();

private:
	//! Entries of one commit.
	struct Commit {
		raft::GroupId group = raft::ROOT_GROUP;
		std::vector<raft::Entry> entries;
	};
	struct ImageFile {
		raft::GroupId group = raft::ROOT_GROUP;
		std::string path;
		std::vector<wire::SnapshotPosition> positions;
	};
	//! What the thread took over from the others.
	struct Orders {
		std::deque<Commit> commits;
		std::deque<ImageFile> images;
		bool is_checkpoint_wanted = false;
		bool is_stopping = false;
		bool is_paused = false;
	};

	void Run();
	bool RunOnce();
	Orders WaitForOrders();
	//! False when the thread shall end before the batch is applied.
	bool Apply(const ApplyOrder::Batch &batch);
	bool AwaitSpace(const Status &failure);
	void ReportApplied(const ApplyOrder::Batch &batch);
	void PublishQueues();
	void PublishGroups();
	void TakeGroups();
	void Install(const ImageFile &image);
	bool CheckpointDue(bool is_idle) const;
	bool PutsOffForDisk();
	void Checkpoint();
	void PublishDurable();
	MonotonicNs WaitTime() const;
	bool ShouldQuit() const;
	void SetAlarm(const std::string &message);

	const RaftEngineConfig &config;
	StateMachine &state_machine;
	const Clock &clock;
	const DiskWatch &disk;
	LoopMailbox &loop;
	DegradedLatch &latch;

	//! Guards everything up to the flags; never held across the state machine.
	mutable std::mutex lock;
	std::condition_variable orders_changed;
	std::condition_variable applied_changed;
	Orders orders;
	std::map<raft::GroupId, raft::LogIndex> applied;
	std::map<raft::GroupId, raft::LogIndex> durable;
	std::map<raft::GroupId, GroupQueue> queues; //! without what is in `orders`
	std::string alarm;
	bool is_resumed = false;
	bool is_aborting = false;
	bool wants_final_checkpoint = false;

	std::atomic<size_t> queue_bytes {0};
	std::atomic<size_t> queue_count {0};
	//! Apply thread only.
	ApplyOrder order;
	uint64_t groups_version = 0;
	bool may_have_more = false; //! the last batch was bounded, perhaps
	size_t counted_bytes = 0;   //! the part of queue_bytes and queue_count that was taken over
	size_t counted_count = 0;
	size_t bytes_since_checkpoint = 0;
	uint64_t entries_since_checkpoint = 0;
	MonotonicNs dirty_since = 0; //! 0 = nothing applied since the last checkpoint
	MonotonicNs last_applied = 0;
	MonotonicNs retry_after = 0;
	MonotonicNs retry_pause = 0; //! 0 = the last checkpoint did not fail
	std::thread thread;
};

} // namespace node
} // namespace quack
