//! Snapshot transfers of one node: the node layer's own code for both sides (SnapshotShelf serves, SnapshotDownload
//! fetches), with calls over the simulated network instead of threads and a transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/node/snapshot_download.hpp"
#include "quack/node/snapshot_shelf.hpp"
#include "sim/register_machine.hpp"
#include "sim/world.hpp"

namespace quack {
namespace sim {

//! A request or its answer, under way.
struct SnapshotCall {
	enum class Kind : uint8_t { Open, Chunk, Answer };
	Kind kind = Kind::Open;
	raft::NodeId from = raft::NO_NODE;
	raft::NodeId to = raft::NO_NODE;
	//! Numbers the asker's calls: an answer to one that was given up is not taken, as the transport does.
	uint64_t number = 0;
	std::string body;
};

//! What a transfer asks of the node it belongs to.
class SnapshotOwner {
public:
	virtual ~SnapshotOwner() = default;
	virtual void SendCall(SnapshotCall call) = 0;
	//! Handle gets an event of this kind after the delay, unless the node crashes before.
	virtual void PushCallEvent(MonotonicNs delay, EventKind kind, uint64_t arg) = 0;
	virtual MachineImage ImageToServe() = 0;
	//! A complete file that claims to stand at `position`.
	virtual void OnImage(const std::string &bytes, const raft::SnapshotMeta &position) = 0;
	virtual void OnFetchFailed() = 0;
};

class SnapshotPeer final : private node::StateMachine {
public:
	SnapshotPeer(const Settings &settings, const Sabotage &sabotage, Coverage &coverage, SnapshotOwner &owner);

	//! A new life of the node; `local_now` numbers its images.
	void Begin(raft::NodeId self, MonotonicNs local_now);
	//! The process is gone, with its open images and whatever it was fetching.
	void End();

	//! Only one at a time.
	void Fetch(raft::LogIndex index_min, raft::NodeId from);
	//! A call arrived.
	void Take(const SnapshotCall &call, MonotonicNs local_now);
	//! SnapshotTimeout, SnapshotRetry and SnapshotGiveUp.
	void Handle(const SimEvent &event);

	//! What a checkpoint must leave in the log for the receivers of open images.
	raft::LogIndex HeldIndex(MonotonicNs local_now);

private:
	class OpenImage;

	void Ask();
	void TakeAnswer(const Result<std::string> &answer);
	void Fail();

	// What the shelf asks of a state machine.
	Status Apply(const std::vector<node::CommittedEntry> &entries) override;
	std::vector<node::AppliedPosition> Applied() const override;
	std::vector<node::AppliedPosition> Durable() const override;
	Status Checkpoint() override;
	Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() override;
	Status InstallSnapshot(const std::string &path) override;

	const Settings &settings;
	const Sabotage &sabotage;
	Coverage &coverage;
	SnapshotOwner &owner;
	node::RaftEngineConfig config;
	raft::NodeId self = raft::NO_NODE;
	std::unique_ptr<node::SnapshotShelf> shelf;

	std::unique_ptr<node::SnapshotDownload> download;
	raft::NodeId source = raft::NO_NODE;
	bool is_opened = false;
	std::string file;
	//! The call that is waited for; goes up with each one.
	uint64_t call_number = 0;
	bool is_waiting = false;
};

} // namespace sim
} // namespace quack
