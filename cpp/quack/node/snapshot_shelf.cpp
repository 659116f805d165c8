#include "quack/node/snapshot_shelf.hpp"

#include <algorithm>

#include "quack/common/crc32c.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t IMAGES_MAX = 4;
constexpr uint64_t CHUNK_BYTES_MAX = 64 * 1024 * 1024;
//! An older image is not handed to anybody else: he would have a long log to apply, and the image would never go.
constexpr MonotonicNs SHARE_AGE_MAX = 600 * NS_PER_SECOND;
//! Who has not asked for so long is shown as waiting.
constexpr MonotonicNs WAITING_AFTER = 5 * NS_PER_SECOND;

wire::SnapshotOpenAnswer RefuseOpen(Status status) {
	wire::SnapshotOpenAnswer answer;
	answer.status = std::move(status);
	return answer;
}

wire::SnapshotChunkAnswer RefuseChunk(Status status) {
	wire::SnapshotChunkAnswer answer;
	answer.status = std::move(status);
	answer.crc32c = Crc32c(answer.data);
	return answer;
}

raft::LogIndex IndexOf(const StateMachine::SnapshotImage &image, raft::GroupId group) {
	for (auto &position : image.Positions()) {
		if (position.group == group) {
			return position.index;
		}
	}
	return 0;
}

} // namespace

bool SnapshotShelf::Image::IsWanted() const {
	auto lacks_some = [this](const std::pair<const std::string, Receiver> &receiver) {
		return receiver.second.bytes_done < image->Bytes();
	};
	return keeps_log && (is_orphan || std::any_of(receivers.begin(), receivers.end(), lacks_some));
}

SnapshotShelf::SnapshotShelf(const RaftEngineConfig &config_p, StateMachine &state_machine_p,
                             MembershipSource membership_source_p)
    : config(config_p), state_machine(state_machine_p), membership_source(std::move(membership_source_p)) {
}

void SnapshotShelf::Begin(MonotonicNs now) {
	auto retained = state_machine.RetainedSnapshots();
	std::lock_guard<std::mutex> guard(lock);
	for (auto &image : retained) {
		if (images.size() >= IMAGES_MAX) {
			static_cast<void>(image->Retain(false));
			continue;
		}
		auto id = image->Id();
		Log(LogLevel::Info, "node", "snapshot_kept",
		    {{"image", std::to_string(id)}, {"bytes", std::to_string(image->Bytes())}});
		auto &entry = images[id];
		entry.image = std::move(image);
		entry.opened = now;
		entry.last_used = now;
		entry.is_retained = true;
		entry.is_orphan = true;
	}
}

Status SnapshotShelf::CheckIndex(const StateMachine::SnapshotImage &image,
                                 const wire::SnapshotOpenRequest &request) const {
	auto index = IndexOf(image, request.group);
	for (auto &position : image.Positions()) {
		for (auto &least : request.applied) {
			if (position.group == least.first && position.index < least.second) {
				return Status(ErrorCode::Unavailable,
				              "the last checkpoint of node '" + config.node_id + "' stands at index " +
				                  std::to_string(position.index) + " of group " + std::to_string(position.group) +
				                  ", the receiver is at " + std::to_string(least.second) + "; it will ask again");
			}
		}
	}
	if (index >= request.index_min) {
		return Status::Ok();
	}
	return Status(ErrorCode::Unavailable, "the last checkpoint of node '" + config.node_id + "' stands at index " +
	                                          std::to_string(index) + ", the receiver needs " +
	                                          std::to_string(request.index_min) + " or more; it will ask again");
}

wire::SnapshotOpenAnswer SnapshotShelf::Open(ByteView body, const std::string &peer, MonotonicNs now) {
	auto decoded = wire::DecodeSnapshotOpenRequest(body);
	if (!decoded.IsOk()) {
		return RefuseOpen(decoded.GetStatus());
	}
	auto &request = decoded.Value();
	if (request.cluster_id != config.cluster_id) {
		return RefuseOpen(Status(ErrorCode::Incompatible, "a snapshot of cluster '" + request.cluster_id +
		                                                      "' was asked of cluster '" + config.cluster_id + "'"));
	}
	auto answer = OfferOpen(request, peer, now);
	if (answer.image == 0) {
		if (request.resume_only) {
			return RefuseOpen(Status(ErrorCode::NotFound, "image " + std::to_string(request.resume_image) +
			                                                  " is not open on node '" + config.node_id +
			                                                  "' any more"));
		}
		answer = OfferNew(request, peer, now);
	}
	// Not under the lock: the source has one of its own.
	for (auto &position : answer.positions) {
		if (position.meta.membership.voters.empty()) {
			position.meta.membership = membership_source(position.group);
		}
	}
	return answer;
}

wire::SnapshotOpenAnswer SnapshotShelf::OfferOpen(const wire::SnapshotOpenRequest &request, const std::string &peer,
                                                  MonotonicNs now) {
	std::lock_guard<std::mutex> guard(lock);
	auto *image = peer == BACKUP ? nullptr : FindForPeer(request, now);
	return image == nullptr ? wire::SnapshotOpenAnswer() : Offer(*image, request, peer, now);
}

SnapshotShelf::Image *SnapshotShelf::FindForPeer(const wire::SnapshotOpenRequest &request, MonotonicNs now) {
	auto held = images.find(request.resume_image);
	if (held != images.end() && held->second.keeps_log && CheckIndex(*held->second.image, request).IsOk()) {
		return &held->second;
	}
	for (auto &entry : images) {
		auto &image = entry.second;
		if (!request.resume_only && image.keeps_log && now - image.opened <= SHARE_AGE_MAX &&
		    CheckIndex(*image.image, request).IsOk()) {
			return &image;
		}
	}
	return nullptr;
}

wire::SnapshotOpenAnswer SnapshotShelf::OfferNew(const wire::SnapshotOpenRequest &request, const std::string &peer,
                                                 MonotonicNs now) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (images.size() >= IMAGES_MAX) {
			return RefuseOpen(Status(ErrorCode::Overloaded, "node '" + config.node_id + "' serves " +
			                                                    std::to_string(images.size()) + " snapshots already"));
		}
	}
	auto opened = state_machine.OpenSnapshot();
	if (!opened.IsOk()) {
		return RefuseOpen(opened.GetStatus());
	}
	auto &image = opened.Value();
	auto status = CheckIndex(*image, request);
	if (!status.IsOk()) {
		return RefuseOpen(std::move(status));
	}
	auto id = image->Id();
	Log(LogLevel::Info, "node", "snapshot_opened",
	    {{"image", std::to_string(id)}, {"bytes", std::to_string(image->Bytes())}, {"peer", peer}});
	std::lock_guard<std::mutex> guard(lock);
	auto &entry = images[id];
	entry.image = std::move(image);
	entry.opened = now;
	entry.last_used = now;
	entry.keeps_log = peer != BACKUP;
	return Offer(entry, request, peer, now);
}

//! Under the lock.
wire::SnapshotOpenAnswer SnapshotShelf::Offer(Image &image, const wire::SnapshotOpenRequest &request,
                                              const std::string &peer, MonotonicNs now) {
	wire::SnapshotOpenAnswer answer;
	answer.cluster_id = config.cluster_id;
	answer.image = image.image->Id();
	answer.bytes = image.image->Bytes();
	for (auto &position : image.image->Positions()) {
		answer.positions.push_back({position.group, {position.index, position.term, position.membership}});
	}
	for (auto &other : images) {
		// One transfer to a peer at a time: what it had of another image it has given up.
		if (peer != BACKUP && &other.second != &image && other.second.receivers.erase(peer) != 0) {
			UpdateRetention(other.second);
		}
	}
	image.last_used = now;
	image.is_orphan = false;
	auto &receiver = image.receivers[peer];
	receiver.last_used = now;
	receiver.rate.Begin(now);
	receiver.resumed_count += request.resume_image == answer.image ? 1 : 0;
	// What it holds shows with its first chunk; until then it wants the image.
	receiver.bytes_done = 0;
	UpdateRetention(image);
	return answer;
}

void SnapshotShelf::UpdateRetention(Image &image) {
	auto is_wanted = image.IsWanted();
	if (is_wanted == image.is_retained) {
		return;
	}
	image.is_retained = is_wanted;
	auto status = image.image->Retain(is_wanted);
	if (!status.IsOk()) {
		// The transfer goes on; only a restart of this node would end it.
		Log(LogLevel::Warn, "node", "snapshot_not_retained", {{"message", status.ToString()}});
	}
}

wire::SnapshotChunkAnswer SnapshotShelf::Chunk(ByteView body, const std::string &peer, MonotonicNs now,
                                               uint64_t bytes_max) {
	auto request = wire::DecodeSnapshotChunkRequest(body);
	if (!request.IsOk()) {
		return RefuseChunk(request.GetStatus());
	}
	auto &wanted = request.Value();
	Image *image = nullptr;
	{
		std::lock_guard<std::mutex> guard(lock);
		auto entry = images.find(wanted.image);
		image = entry == images.end() ? nullptr : &entry->second;
	}
	if (image == nullptr) {
		return RefuseChunk(Status(ErrorCode::NotFound, "image " + std::to_string(wanted.image) +
		                                                   " is not open here any more; open a new one"));
	}
	if (wanted.size > CHUNK_BYTES_MAX || wanted.offset > image->image->Bytes()) {
		return RefuseChunk(Status(ErrorCode::InvalidArgument, "chunk [" + std::to_string(wanted.offset) + ", +" +
		                                                          std::to_string(wanted.size) +
		                                                          ") is outside the image or too large"));
	}
	// Only the calling thread closes images, so the pointer stays good without the lock.
	auto data = image->image->Read(wanted.offset, static_cast<size_t>(std::min(wanted.size, bytes_max)));
	if (!data.IsOk()) {
		return RefuseChunk(data.GetStatus());
	}
	wire::SnapshotChunkAnswer answer;
	answer.offset = wanted.offset;
	answer.data = std::move(data.Value());
	answer.crc32c = Crc32c(answer.data);
	std::lock_guard<std::mutex> guard(lock);
	image->last_used = now;
	image->is_orphan = false;
	auto &receiver = image->receivers[peer];
	receiver.last_used = now;
	receiver.bytes_done = wanted.offset + answer.data.size();
	receiver.bytes_moved += answer.data.size();
	receiver.rate.Add(answer.data.size(), now);
	UpdateRetention(*image);
	return answer;
}

//! Under the lock; the caller lets it die without.
std::unique_ptr<StateMachine::SnapshotImage> SnapshotShelf::TakeOut(Images::iterator entry) {
	auto image = std::move(entry->second.image);
	images.erase(entry);
	return image;
}

void SnapshotShelf::Close(uint64_t id) {
	std::unique_ptr<StateMachine::SnapshotImage> image;
	std::lock_guard<std::mutex> guard(lock);
	auto entry = images.find(id);
	if (entry != images.end()) {
		image = TakeOut(entry);
		static_cast<void>(image->Retain(false));
	}
}

void SnapshotShelf::CloseIdle(MonotonicNs now) {
	std::vector<std::unique_ptr<StateMachine::SnapshotImage>> closed;
	std::lock_guard<std::mutex> guard(lock);
	for (auto entry = images.begin(); entry != images.end();) {
		auto &image = entry->second;
		auto patience = image.IsWanted() ? config.snapshot_resume_timeout : config.snapshot_idle_timeout;
		auto here = entry++;
		if (now - image.last_used > patience) {
			closed.push_back(TakeOut(here));
			static_cast<void>(closed.back()->Retain(false));
		}
	}
}

void SnapshotShelf::CloseAll() {
	std::lock_guard<std::mutex> guard(lock);
	images.clear();
}

raft::LogIndex SnapshotShelf::HeldIndex(raft::GroupId group) const {
	std::lock_guard<std::mutex> guard(lock);
	raft::LogIndex held = UINT64_MAX;
	for (auto &entry : images) {
		for (auto &position : entry.second.image->Positions()) {
			if (position.group == group && entry.second.keeps_log) {
				held = std::min(held, position.index);
			}
		}
	}
	return held;
}

uint64_t SnapshotShelf::BytesDone() const {
	std::lock_guard<std::mutex> guard(lock);
	uint64_t done = 0;
	for (auto &entry : images) {
		for (auto &receiver : entry.second.receivers) {
			done += receiver.second.bytes_done;
		}
	}
	return done;
}

uint64_t SnapshotShelf::BytesTotal() const {
	std::lock_guard<std::mutex> guard(lock);
	uint64_t total = 0;
	for (auto &entry : images) {
		total += entry.second.image->Bytes() * entry.second.receivers.size();
	}
	return total;
}

std::vector<SnapshotTransfer> SnapshotShelf::Transfers(MonotonicNs now) const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<SnapshotTransfer> rows;
	for (auto &entry : images) {
		for (auto &item : entry.second.receivers) {
			auto &receiver = item.second;
			SnapshotTransfer row;
			row.peer = item.first;
			row.is_sending = true;
			row.image = entry.first;
			row.bytes_done = receiver.bytes_done;
			row.bytes_total = entry.second.image->Bytes();
			row.bytes_moved = receiver.bytes_moved;
			row.resumed_count = receiver.resumed_count;
			row.state = now - receiver.last_used > WAITING_AFTER ? "waiting" : "sending";
			row.state = row.bytes_done == row.bytes_total ? "done" : row.state;
			receiver.rate.Describe(row);
			rows.push_back(std::move(row));
		}
	}
	return rows;
}

} // namespace node
} // namespace quack
