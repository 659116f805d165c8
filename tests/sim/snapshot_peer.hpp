//! Snapshot transfers of one node: the node layer's own code for both sides (SnapshotShelf serves, SnapshotDownload
//! fetches), with calls over the simulated network instead of threads and a transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/node/snapshot_download.hpp"
#include "quack/node/snapshot_shelf.hpp"
#include "sim/disk.hpp"
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
	virtual void PushEvent(MonotonicNs delay, EventKind kind, uint64_t arg) = 0;
	virtual MachineImage ImageToServe() = 0;
	//! Random, never 0.
	virtual uint64_t NewImageId() = 0;
	//! A complete file that claims to stand at `position`.
	virtual void OnImage(const std::string &bytes, const raft::SnapshotMeta &position) = 0;
	virtual void OnFetchFailed() = 0;
	//! A piece of an image was sent or came.
	virtual void OnPiece() = 0;
};

class SnapshotPeer final : private node::StateMachine {
public:
	SnapshotPeer(const Settings &settings, const Sabotage &sabotage, Coverage &coverage, SnapshotOwner &owner);

	//! A new life of the node.
	void Begin(raft::NodeId self, MonotonicNs local_now);
	//! The process is gone. Retained images stay unless the power went off; of what it was fetching the power takes
	//! what came since the record was written last.
	void End(CrashKind kind);
	//! The disk is gone too.
	void Forget();
	//! The image that came last is in force, or of no use.
	void DropReceived();

	//! Only one at a time.
	void Fetch(raft::LogIndex index_min, raft::NodeId from);
	//! A call arrived.
	void Take(const SnapshotCall &call, MonotonicNs local_now);
	//! SnapshotTimeout, SnapshotRetry and SnapshotGiveUp.
	void Handle(const SimEvent &event, MonotonicNs local_now);

	//! What a checkpoint must leave in the log for the receivers of open images.
	raft::LogIndex HeldIndex(MonotonicNs local_now);

private:
	class OpenImage;
	//! The bytes of one image, as a file would be.
	struct ImageFile {
		std::string bytes;
		std::vector<node::AppliedPosition> positions;
	};

	//! What is held of an image, checked as node::IncomingFile does.
	std::optional<node::SnapshotPart> LoadPart();
	void Begin(raft::NodeId from, bool resume_only);
	//! A sabotaged node takes what it holds for the beginning of whatever it is offered.
	void MistakeImage(const Result<std::string> &answer);
	void Ask();
	void TakeAnswer(const Result<std::string> &answer, MonotonicNs local_now);
	void Fail();

	// What the shelf asks of a state machine.
	Status Apply(const std::vector<node::CommittedEntry> &entries) override;
	std::vector<node::AppliedPosition> Applied() const override;
	std::vector<node::AppliedPosition> Durable() const override;
	Status Checkpoint() override;
	Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() override;
	std::vector<std::unique_ptr<SnapshotImage>> RetainedSnapshots() override;
	Status InstallSnapshot(const std::string &path) override;

	const Settings &settings;
	const Sabotage &sabotage;
	Coverage &coverage;
	SnapshotOwner &owner;
	node::RaftEngineConfig config;
	raft::NodeId self = raft::NO_NODE;
	std::unique_ptr<node::SnapshotShelf> shelf;
	//! On this node's disk, by id.
	std::map<uint64_t, std::shared_ptr<const ImageFile>> retained;

	std::unique_ptr<node::SnapshotDownload> download;
	raft::NodeId source = raft::NO_NODE;
	bool is_opened = false;
	raft::LogIndex wanted_index = 0;
	//! Who is asked when the source of the part that is held does not have the image; NO_NODE = the job fails then.
	raft::NodeId next_source = raft::NO_NODE;
	//! On this node's disk: the bytes received, and the record of some of them.
	std::string file;
	std::string record;
	uint64_t chunk_count = 0;
	//! The call that is waited for; goes up with each one.
	uint64_t call_number = 0;
	bool is_waiting = false;
};

} // namespace sim
} // namespace quack
