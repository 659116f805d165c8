#include "quack/node/snapshot_shelf.hpp"

#include <algorithm>

#include "quack/common/crc32c.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t IMAGES_MAX = 4;
constexpr uint64_t CHUNK_BYTES_MAX = 64 * 1024 * 1024;

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

} // namespace

SnapshotShelf::SnapshotShelf(const RaftEngineConfig &config_p, StateMachine &state_machine_p,
                             MembershipSource membership_source_p)
    : config(config_p), state_machine(state_machine_p), membership_source(std::move(membership_source_p)) {
}

wire::SnapshotOpenAnswer SnapshotShelf::Open(ByteView body, bool keeps_log, MonotonicNs now) {
	auto request = wire::DecodeSnapshotOpenRequest(body);
	if (!request.IsOk()) {
		return RefuseOpen(request.GetStatus());
	}
	if (request.Value().cluster_id != config.cluster_id) {
		return RefuseOpen(Status(ErrorCode::Incompatible, "a snapshot of cluster '" + request.Value().cluster_id +
		                                                      "' was asked of cluster '" + config.cluster_id + "'"));
	}
	auto image = state_machine.OpenSnapshot();
	if (!image.IsOk()) {
		return RefuseOpen(image.GetStatus());
	}
	wire::SnapshotOpenAnswer answer;
	answer.cluster_id = config.cluster_id;
	answer.bytes = image.Value()->Bytes();
	raft::LogIndex index = 0;
	for (auto &position : image.Value()->Positions()) {
		auto membership = position.membership.voters.empty() ? membership_source(position.group) : position.membership;
		answer.positions.push_back({position.group, {position.index, position.term, membership}});
		if (position.group == request.Value().group) {
			index = position.index;
		}
	}
	if (index < request.Value().index_min) {
		return RefuseOpen(Status(ErrorCode::Unavailable,
		                         "the last checkpoint of node '" + config.node_id + "' stands at index " +
		                             std::to_string(index) + ", the receiver needs " +
		                             std::to_string(request.Value().index_min) + " or more; it will ask again"));
	}
	std::lock_guard<std::mutex> guard(lock);
	if (images.size() >= IMAGES_MAX) {
		return RefuseOpen(Status(ErrorCode::Overloaded, "node '" + config.node_id + "' serves " +
		                                                    std::to_string(images.size()) + " snapshots already"));
	}
	answer.image = next_image++;
	images[answer.image] = {std::move(image.Value()), now, 0, keeps_log};
	Log(LogLevel::Info, "node", "snapshot_opened",
	    {{"image", std::to_string(answer.image)}, {"bytes", std::to_string(answer.bytes)}});
	return answer;
}

wire::SnapshotChunkAnswer SnapshotShelf::Chunk(ByteView body, MonotonicNs now) {
	auto request = wire::DecodeSnapshotChunkRequest(body);
	if (!request.IsOk()) {
		return RefuseChunk(request.GetStatus());
	}
	auto &wanted = request.Value();
	StateMachine::SnapshotImage *image = nullptr;
	{
		std::lock_guard<std::mutex> guard(lock);
		auto entry = images.find(wanted.image);
		if (entry != images.end()) {
			image = entry->second.image.get();
			entry->second.last_used = now;
			entry->second.bytes_served = std::max(entry->second.bytes_served, wanted.offset + wanted.size);
		}
	}
	if (image == nullptr) {
		return RefuseChunk(Status(ErrorCode::NotFound, "image " + std::to_string(wanted.image) +
		                                                   " is not open here any more; open a new one"));
	}
	if (wanted.size > CHUNK_BYTES_MAX || wanted.offset > image->Bytes()) {
		return RefuseChunk(Status(ErrorCode::InvalidArgument, "chunk [" + std::to_string(wanted.offset) + ", +" +
		                                                          std::to_string(wanted.size) +
		                                                          ") is outside the image or too large"));
	}
	// Only the calling thread closes images, so the pointer stays good without the lock.
	auto data = image->Read(wanted.offset, static_cast<size_t>(wanted.size));
	if (!data.IsOk()) {
		return RefuseChunk(data.GetStatus());
	}
	wire::SnapshotChunkAnswer answer;
	answer.offset = wanted.offset;
	answer.data = std::move(data.Value());
	answer.crc32c = Crc32c(answer.data);
	return answer;
}

void SnapshotShelf::Close(uint64_t image) {
	std::lock_guard<std::mutex> guard(lock);
	images.erase(image);
}

void SnapshotShelf::CloseAll() {
	std::lock_guard<std::mutex> guard(lock);
	images.clear();
}

void SnapshotShelf::CloseIdle(MonotonicNs now) {
	std::lock_guard<std::mutex> guard(lock);
	for (auto entry = images.begin(); entry != images.end();) {
		if (now - entry->second.last_used > config.snapshot_idle_timeout) {
			entry = images.erase(entry);
		} else {
			++entry;
		}
	}
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
		done += std::min(entry.second.bytes_served, entry.second.image->Bytes());
	}
	return done;
}

uint64_t SnapshotShelf::BytesTotal() const {
	std::lock_guard<std::mutex> guard(lock);
	uint64_t total = 0;
	for (auto &entry : images) {
		total += entry.second.image->Bytes();
	}
	return total;
}

} // namespace node
} // namespace quack
