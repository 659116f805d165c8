//! One simulated process around one Raft core: obeys every ordering duty of Ready, on a disk that can lose unsynced
//! bytes and a clock that drifts.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "quack/node/node_beats.hpp"
#include "sim/disk.hpp"
#include "sim/register_machine.hpp"
#include "sim/snapshot_peer.hpp"
#include "sim/world.hpp"

namespace quack {
namespace sim {

//! Request numbers from here on belong to membership changes, below to the workload's operations.
constexpr uint64_t MEMBERSHIP_REQUESTS = 1ULL << 40;

class SimNode;

//! What a node tells the rest of the simulation.
class NodeListener {
public:
	virtual ~NodeListener() = default;
	//! A leader of `term` moved its commit index to commit_index, higher than anyone before. The configuration that
	//! decided was in force before or after the step.
	virtual void OnFirstCommit(SimNode &node, raft::Term term, raft::LogIndex commit_index,
	                           const raft::Membership &before) = 0;
	//! What is known to be committed, by any leader ever.
	virtual raft::LogIndex GlobalCommitIndex() const = 0;
	virtual void OnCall(SnapshotCall call) = 0;
	//! The power went off inside a call to the disk; the node crashed.
	virtual void OnPowerLost(SimNode &node) = 0;
	//! The proposal was refused or its entry replaced: it will never be applied.
	virtual void OnWriteRefused(SimNode &node, uint32_t op, const Status &status) = 0;
	virtual void OnWriteApplied(SimNode &node, uint32_t op, const CommandOutcome &outcome) = 0;
	virtual void OnReadRefused(SimNode &node, uint32_t op, const Status &status) = 0;
	//! The read may be served from the node's machine now.
	virtual void OnReadReady(SimNode &node, uint32_t op) = 0;
	//! Log of a living or dead node, by identity; null when its disk is gone.
	virtual const LogImage *SyncedLog(raft::NodeId node) = 0;
};

class SimNode final : private SnapshotOwner {
public:
	SimNode(World &world, NodeListener &listener, uint32_t slot, const raft::Membership &initial);

	//! Recovers from disk and starts a core in a new life.
	void Start();
	void Crash(CrashKind kind, BitFlip flip);
	//! The machine comes back empty, under a new identity (unless sabotaged). Only while crashed.
	void ReplaceIdentity();
	//! A bit of its log flips. False when there is nothing to flip yet.
	bool Rot();
	//! No power cut that was begun comes any more.
	void KeepPower() {
		disk->CutPowerAfter(0);
	}
	void PauseUntil(MonotonicNs true_time) {
		paused_until = true_time;
		awake_since = true_time;
	}
	void SetDiskFactor(uint32_t factor) {
		disk_factor = factor;
	}
	void SetClockRate(int32_t rate_ppm);

	//! Events that name this node and its present life.
	void Handle(const SimEvent &event);
	void Deliver(raft::Message message);
	//! Something came from the node, whatever it was.
	void HearBeat(raft::NodeId node);
	void Propose(const std::vector<uint32_t> &ops, const std::vector<SharedBytes> &payloads);
	void Read(uint32_t op);
	void Step(decltype(raft::Event::body) body);

	//! A request about a snapshot, or an answer to one.
	void TakeCall(const SnapshotCall &call);

	bool IsAlive() const {
		return core != nullptr;
	}
	bool IsPaused() const {
		return paused_until > world.queue.Now();
	}
	MonotonicNs PausedUntil() const {
		return paused_until;
	}
	uint32_t Life() const {
		return life;
	}
	uint32_t Slot() const {
		return slot;
	}
	raft::NodeId Id() const {
		return id;
	}
	raft::Role Role() const {
		return role;
	}
	raft::Term Term() const {
		return term;
	}
	raft::NodeId Leader() const {
		return leader;
	}
	//! In force here, by this node's log; kept while crashed.
	const raft::Membership &MembershipInForce() const {
		return membership;
	}
	const SimDisk &Disk() const {
		return *disk;
	}
	const RegisterMachine &Machine() const {
		return machine;
	}
	raft::CoreStatus GetStatus() const {
		return core->GetStatus();
	}

private:
	//! Waits until the log is synced up to `seq`.
	struct Gated {
		uint64_t seq = 0;
		std::vector<raft::Message> messages;
		std::optional<raft::AppendCompletedEvent> completed;
		std::optional<raft::SnapshotInstalledEvent> installed;
	};
	struct PendingWrite {
		raft::LogIndex index;
		raft::Term term;
		uint32_t op;
	};
	struct PendingRead {
		raft::LogIndex read_index;
		uint32_t op;
	};

	void HandleEvent(const SimEvent &event);
	void Process(raft::Ready &ready, raft::Role role_before, raft::Term term_before);
	void ProcessSoftState(raft::Ready &ready);
	void NoteLeadership();
	//! False when it went no further: a breach of the contract, or the power went off inside the write.
	bool ProcessWrites(raft::Ready &ready, raft::Role role_before, raft::Term term_before);
	void NoteCommit(raft::Term term_before, const raft::Membership &before);
	void ProcessCommitted(std::vector<raft::Entry> &committed);
	void AnswerWrites(const raft::Entry &entry, const CommandOutcome &outcome);
	void ProcessAnswers(const raft::Ready &ready);
	void Send(std::vector<raft::Message> &messages);
	void Gate(Gated gated);
	std::unique_ptr<SimDisk> MakeDisk();
	void StartSync();
	//! Before a write or a sync: the power may go off inside one of the next calls to the disk.
	void MayCutPower();
	//! After whatever wrote: crashes when it did.
	void CheckPower();
	void OnSyncDone(uint64_t seq);
	//! What waited for the writes up to `seq` leaves.
	void OpenGates(uint64_t seq);
	void OnApplyDone();
	void StartApply();
	void ServeReads();
	void ScheduleTick();
	//! What the event loop of a real node does for quiet groups.
	void OnBeatTick();
	void NoteQuiet();
	void OnCheckpointBegin();
	void OnCheckpointDurable();

	void SendCall(SnapshotCall call) override;
	void PushEvent(MonotonicNs delay, EventKind kind, uint64_t arg) override;
	//! A fresh or the durable image.
	MachineImage ImageToServe() override;
	uint64_t NewImageId() override;
	void OnImage(const std::string &bytes, const raft::SnapshotMeta &position) override;
	void OnFetchFailed() override;
	void OnPiece() override;
	//! The received image is durable: reset the log to it, then tell the core.
	void FinishSnapshot();

	World &world;
	NodeListener &listener;
	const uint32_t slot;
	const raft::Membership initial;
	uint32_t incarnation = 0;
	raft::NodeId id;
	uint32_t life = 0;
	Prng prng;
	NodeClock clock;
	int32_t clock_rate = 0;
	MonotonicNs paused_until = 0;
	//! True time since when it ran without a pause.
	MonotonicNs awake_since = 0;
	uint32_t disk_factor = 1;

	std::unique_ptr<SimDisk> disk;
	std::unique_ptr<raft::Raft> core;
	RegisterMachine machine;

	raft::Role role = raft::Role::Follower;
	raft::Term term = 0;
	raft::NodeId leader = raft::NO_NODE;
	raft::Membership membership;
	//! Of a leader, before the step at hand.
	raft::Membership membership_before;
	raft::HardState hard_state;
	//! Highest index handed out as committed in this life, or restored as applied.
	raft::LogIndex commit_index = 0;

	std::deque<Gated> gated;
	bool sync_in_flight = false;
	//! The sync in flight covers what is written until it ends, instead of what was there when it began.
	bool sync_covers_late = false;
	std::deque<raft::Entry> apply_queue;
	bool apply_in_flight = false;
	std::vector<PendingWrite> pending_writes;
	std::vector<PendingRead> pending_reads;
	bool installing = false;
	SnapshotPeer snapshots;
	//! Received and in force, but not durable yet, and where it said to stand; null = none.
	MachineImage pending_install;
	raft::SnapshotMeta pending_position;
	//! A sole voter appended to its log while its term was not durable: a crash may take all of it back.
	bool secret_entries = false;
	//! Being written; null = none.
	MachineImage pending_checkpoint;
	//! What a sabotaged node serves for ever: its first checkpoint.
	MachineImage stale_image;

	node::NodeBeats beats;
	bool was_quiet = false;

	uint64_t tick_generation = 0;
	//! True time of the scheduled tick; 0 = none.
	MonotonicNs tick_at = 0;
};

} // namespace sim
} // namespace quack
