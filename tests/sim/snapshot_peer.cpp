#include "sim/snapshot_peer.hpp"

#include "quack/common/check.hpp"

namespace quack {
namespace sim {

namespace {

constexpr const char *CLUSTER_ID = "simulated";

Status NotAsked() {
	return Status(ErrorCode::Internal, "a shelf only opens snapshots");
}

} // namespace

//! The bytes of one image, as a file would be.
class SnapshotPeer::OpenImage final : public node::StateMachine::SnapshotImage {
public:
	explicit OpenImage(const RegisterMachine &machine) : bytes(machine.Encode()) {
		node::AppliedPosition position;
		position.index = machine.AppliedIndex();
		position.term = machine.AppliedTerm();
		position.membership = machine.MembershipAt(machine.AppliedIndex());
		positions.push_back(position);
	}
	const std::vector<node::AppliedPosition> &Positions() const override {
		return positions;
	}
	uint64_t Bytes() const override {
		return bytes.size();
	}
	Result<std::string> Read(uint64_t offset, size_t size) override {
		return bytes.substr(offset, size);
	}

private:
	const std::string bytes;
	std::vector<node::AppliedPosition> positions;
};

SnapshotPeer::SnapshotPeer(const Settings &settings_p, const Sabotage &sabotage_p, Coverage &coverage_p,
                           SnapshotOwner &owner_p)
    : settings(settings_p), sabotage(sabotage_p), coverage(coverage_p), owner(owner_p) {
	config.cluster_id = CLUSTER_ID;
	config.snapshot_chunk_bytes = settings.snapshot_chunk_bytes;
	config.snapshot_idle_timeout = settings.snapshot_idle_timeout;
}

void SnapshotPeer::Begin(raft::NodeId self_p, MonotonicNs local_now) {
	self = self_p;
	config.node_id = std::to_string(self);
	// Every image of this machine holds a membership.
	node::StateMachine &images = *this;
	shelf = std::make_unique<node::SnapshotShelf>(config, images, [](raft::GroupId) -> raft::Membership { return {}; });
	shelf->NumberFrom(static_cast<uint64_t>(local_now) | 1);
}

void SnapshotPeer::End() {
	shelf.reset();
	download.reset();
	is_waiting = false;
	call_number++;
}

raft::LogIndex SnapshotPeer::HeldIndex(MonotonicNs local_now) {
	shelf->CloseIdle(local_now);
	return shelf->HeldIndex(raft::ROOT_GROUP);
}

// ---- serving -------------------------------------------------------------------------------------------------------

void SnapshotPeer::Take(const SnapshotCall &call, MonotonicNs local_now) {
	if (call.kind == SnapshotCall::Kind::Answer) {
		if (download && is_waiting && call.number == call_number) {
			TakeAnswer(call.body);
		}
		return;
	}
	shelf->CloseIdle(local_now);
	SnapshotCall answer;
	answer.kind = SnapshotCall::Kind::Answer;
	answer.from = self;
	answer.to = call.from;
	answer.number = call.number;
	if (call.kind == SnapshotCall::Kind::Open) {
		answer.body = Encode(shelf->Open(call.body, true, local_now));
	} else {
		answer.body = Encode(shelf->Chunk(call.body, local_now));
	}
	owner.SendCall(std::move(answer));
}

Result<std::unique_ptr<node::StateMachine::SnapshotImage>> SnapshotPeer::OpenSnapshot() {
	return std::unique_ptr<SnapshotImage>(std::make_unique<OpenImage>(*owner.ImageToServe()));
}

Status SnapshotPeer::Apply(const std::vector<node::CommittedEntry> &) {
	return NotAsked();
}

std::vector<node::AppliedPosition> SnapshotPeer::Applied() const {
	return {};
}

std::vector<node::AppliedPosition> SnapshotPeer::Durable() const {
	return {};
}

Status SnapshotPeer::Checkpoint() {
	return NotAsked();
}

Status SnapshotPeer::InstallSnapshot(const std::string &) {
	return NotAsked();
}

// ---- fetching ------------------------------------------------------------------------------------------------------

void SnapshotPeer::Fetch(raft::LogIndex index_min, raft::NodeId from) {
	QUACK_CHECK(!download, "one transfer at a time");
	// A sabotaged node takes whatever it gets.
	auto wanted = sabotage.install_backwards ? 0 : index_min;
	download = std::make_unique<node::SnapshotDownload>(config, raft::ROOT_GROUP, wanted, std::to_string(from));
	source = from;
	is_opened = false;
	file.clear();
	Ask();
}

void SnapshotPeer::Ask() {
	SnapshotCall call;
	call.kind = is_opened ? SnapshotCall::Kind::Chunk : SnapshotCall::Kind::Open;
	call.from = self;
	call.to = source;
	call.number = ++call_number;
	call.body = is_opened ? download->ChunkRequest() : download->OpenRequest();
	is_waiting = true;
	owner.PushCallEvent(settings.snapshot_call_timeout, EventKind::SnapshotTimeout, call_number);
	owner.SendCall(std::move(call));
}

void SnapshotPeer::Handle(const SimEvent &event) {
	if (!download || event.arg != call_number) {
		return;
	}
	if (event.kind == EventKind::SnapshotTimeout) {
		if (is_waiting) {
			TakeAnswer(Status(ErrorCode::DeadlineExceeded, "no answer"));
		}
	} else if (event.kind == EventKind::SnapshotRetry) {
		coverage.snapshot_chunks_asked_again++;
		Ask();
	} else {
		coverage.snapshot_fetches_failed++;
		download.reset();
		owner.OnFetchFailed();
	}
}

void SnapshotPeer::TakeAnswer(const Result<std::string> &answer) {
	is_waiting = false;
	if (!is_opened) {
		is_opened = download->TakeOpen(answer).IsOk();
		if (!is_opened) {
			Fail();
			return;
		}
	} else {
		auto data = download->TakeChunk(answer);
		if (!data.IsOk()) {
			if (download->MayAskAgain()) {
				owner.PushCallEvent(settings.snapshot_retry_pause, EventKind::SnapshotRetry, call_number);
			} else {
				Fail();
			}
			return;
		}
		coverage.snapshot_chunks++;
		file += data.Value();
	}
	if (!download->IsComplete()) {
		Ask();
		return;
	}
	auto position = download->Image().positions.front().meta;
	download.reset();
	owner.OnImage(file, position);
}

void SnapshotPeer::Fail() {
	owner.PushCallEvent(settings.snapshot_retry_pause, EventKind::SnapshotGiveUp, call_number);
}

} // namespace sim
} // namespace quack
