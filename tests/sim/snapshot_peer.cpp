#include "sim/snapshot_peer.hpp"

#include "quack/common/check.hpp"
#include "quack/common/crc32c.hpp"

namespace quack {
namespace sim {

namespace {

constexpr const char *CLUSTER_ID = "simulated";

Status NotAsked() {
	return Status(ErrorCode::Internal, "a shelf only opens snapshots");
}

} // namespace

class SnapshotPeer::OpenImage final : public node::StateMachine::SnapshotImage {
public:
	OpenImage(SnapshotPeer &peer_p, uint64_t id_p, std::shared_ptr<const ImageFile> file_p)
	    : peer(peer_p), id(id_p), file(std::move(file_p)) {
	}
	uint64_t Id() const override {
		return id;
	}
	const std::vector<node::AppliedPosition> &Positions() const override {
		return file->positions;
	}
	uint64_t Bytes() const override {
		return file->bytes.size();
	}
	Result<std::string> Read(uint64_t offset, size_t size) override {
		return file->bytes.substr(offset, size);
	}
	Status Retain(bool keep) override {
		peer.retained.erase(id);
		if (keep) {
			peer.retained.emplace(id, file);
		}
		return Status::Ok();
	}

private:
	SnapshotPeer &peer;
	const uint64_t id;
	const std::shared_ptr<const ImageFile> file;
};

SnapshotPeer::SnapshotPeer(const Settings &settings_p, const Sabotage &sabotage_p, Coverage &coverage_p,
                           SnapshotOwner &owner_p)
    : settings(settings_p), sabotage(sabotage_p), coverage(coverage_p), owner(owner_p) {
	config.cluster_id = CLUSTER_ID;
	config.snapshot_chunk_bytes = settings.snapshot_chunk_bytes;
	config.snapshot_idle_timeout = settings.snapshot_idle_timeout;
	config.snapshot_resume_timeout = settings.snapshot_resume_timeout;
	config.snapshot_source_patience = settings.snapshot_source_patience;
}

void SnapshotPeer::Begin(raft::NodeId self_p, MonotonicNs local_now) {
	self = self_p;
	config.node_id = std::to_string(self);
	// Every image of this machine holds a membership.
	node::StateMachine &images = *this;
	shelf = std::make_unique<node::SnapshotShelf>(config, images, [](raft::GroupId) -> raft::Membership { return {}; });
	shelf->Begin(local_now);
}

void SnapshotPeer::End(CrashKind kind) {
	shelf.reset();
	download.reset();
	is_waiting = false;
	call_number++;
	if (kind == CrashKind::PowerLoss) {
		retained.clear();
		auto part = node::DecodeSnapshotPart(record);
		file.resize(part.IsOk() ? part.Value().offset : 0);
	}
}

void SnapshotPeer::Forget() {
	retained.clear();
	DropReceived();
}

void SnapshotPeer::DropReceived() {
	file.clear();
	record.clear();
}

raft::LogIndex SnapshotPeer::HeldIndex(MonotonicNs local_now) {
	shelf->CloseIdle(local_now);
	return shelf->HeldIndex(raft::ROOT_GROUP);
}

// ---- serving -------------------------------------------------------------------------------------------------------

void SnapshotPeer::Take(const SnapshotCall &call, MonotonicNs local_now) {
	if (call.kind == SnapshotCall::Kind::Answer) {
		if (download && is_waiting && call.number == call_number) {
			TakeAnswer(call.body, local_now);
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
		answer.body = Encode(shelf->Open(call.body, std::to_string(call.from), local_now));
	} else {
		answer.body =
		    Encode(shelf->Chunk(call.body, std::to_string(call.from), local_now, settings.snapshot_piece_bytes_max));
		owner.OnPiece();
	}
	owner.SendCall(std::move(answer));
}

Result<std::unique_ptr<node::StateMachine::SnapshotImage>> SnapshotPeer::OpenSnapshot() {
	auto machine = owner.ImageToServe();
	auto image = std::make_shared<ImageFile>();
	image->bytes = machine->Encode();
	node::AppliedPosition position;
	position.index = machine->AppliedIndex();
	position.term = machine->AppliedTerm();
	position.membership = machine->MembershipAt(machine->AppliedIndex());
	image->positions.push_back(position);
	return std::unique_ptr<SnapshotImage>(std::make_unique<OpenImage>(*this, owner.NewImageId(), std::move(image)));
}

std::vector<std::unique_ptr<node::StateMachine::SnapshotImage>> SnapshotPeer::RetainedSnapshots() {
	std::vector<std::unique_ptr<SnapshotImage>> images;
	for (auto &entry : retained) {
		images.push_back(std::make_unique<OpenImage>(*this, entry.first, entry.second));
	}
	coverage.snapshot_images_kept += images.size();
	return images;
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
	wanted_index = sabotage.install_backwards ? 0 : index_min;
	auto part = LoadPart();
	auto holder = part ? std::stoull(part->source) : from;
	next_source = holder == from ? raft::NO_NODE : from;
	Begin(holder, holder != from);
}

std::optional<node::SnapshotPart> SnapshotPeer::LoadPart() {
	auto part = node::DecodeSnapshotPart(record);
	if (!part.IsOk()) {
		return std::nullopt;
	}
	auto held = ByteView(file).substr(0, part.Value().offset);
	QUACK_CHECK(held.size() == part.Value().offset && Crc32c(held) == part.Value().crc32c,
	            "a record counts only what is there");
	return part.Value();
}

void SnapshotPeer::Begin(raft::NodeId from, bool resume_only) {
	download = std::make_unique<node::SnapshotDownload>(config, raft::ROOT_GROUP, wanted_index, std::to_string(from),
	                                                    LoadPart(), resume_only);
	source = from;
	is_opened = false;
	Ask();
}

void SnapshotPeer::MistakeImage(const Result<std::string> &answer) {
	auto part = LoadPart();
	auto offered = answer.IsOk() ? wire::DecodeSnapshotOpenAnswer(answer.Value())
	                             : Result<wire::SnapshotOpenAnswer>(answer.GetStatus());
	if (part && offered.IsOk() && offered.Value().image != 0 && part->offset <= offered.Value().bytes) {
		part->image = offered.Value();
		download = std::make_unique<node::SnapshotDownload>(config, raft::ROOT_GROUP, wanted_index,
		                                                    std::to_string(source), std::move(part));
	}
}

void SnapshotPeer::Ask() {
	SnapshotCall call;
	call.kind = is_opened ? SnapshotCall::Kind::Chunk : SnapshotCall::Kind::Open;
	call.from = self;
	call.to = source;
	call.number = ++call_number;
	call.body = is_opened ? download->ChunkRequest() : download->OpenRequest();
	is_waiting = true;
	owner.PushEvent(settings.snapshot_call_timeout, EventKind::SnapshotTimeout, call_number);
	owner.SendCall(std::move(call));
}

void SnapshotPeer::Handle(const SimEvent &event, MonotonicNs local_now) {
	if (!download || event.arg != call_number) {
		return;
	}
	if (event.kind == EventKind::SnapshotTimeout) {
		if (is_waiting) {
			TakeAnswer(Status(ErrorCode::DeadlineExceeded, "no answer"), local_now);
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

void SnapshotPeer::TakeAnswer(const Result<std::string> &answer, MonotonicNs local_now) {
	is_waiting = false;
	if (!is_opened) {
		if (sabotage.resume_other_image) {
			MistakeImage(answer);
		}
		is_opened = download->TakeOpen(answer).IsOk();
		if (!is_opened) {
			Fail();
			return;
		}
		coverage.snapshots_resumed += download->IsResumed() ? 1 : 0;
		coverage.snapshots_begun_anew += !record.empty() && !download->IsResumed() ? 1 : 0;
		file.resize(download->Offset());
		record = Encode(download->Part());
	} else {
		auto data = download->TakeChunk(answer, local_now);
		if (!data.IsOk()) {
			if (download->MayAskAgain()) {
				owner.PushEvent(settings.snapshot_retry_pause, EventKind::SnapshotRetry, call_number);
			} else {
				Fail();
			}
			return;
		}
		coverage.snapshot_chunks++;
		owner.OnPiece();
		file += data.Value();
		if (++chunk_count % settings.snapshot_record_interval == 0) {
			record = Encode(download->Part());
		}
	}
	if (!download->IsComplete()) {
		Ask();
		return;
	}
	auto part = download->Part();
	auto position = part.image.positions.front().meta;
	download.reset();
	record = Encode(part);
	owner.OnImage(file, position);
}

void SnapshotPeer::Fail() {
	if (!is_opened && next_source != raft::NO_NODE) {
		auto from = next_source;
		next_source = raft::NO_NODE;
		Begin(from, false);
		return;
	}
	owner.PushEvent(settings.snapshot_retry_pause, EventKind::SnapshotGiveUp, call_number);
}

} // namespace sim
} // namespace quack
