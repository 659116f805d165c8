#include "quack/node/snapshot_download.hpp"

#include <algorithm>

namespace quack {
namespace node {

namespace {

//! Attempts per chunk: with the pause this outlives a reconnect, not a lost leader.
constexpr unsigned CHUNK_ATTEMPTS_MAX = 25;

} // namespace

SnapshotDownload::SnapshotDownload(const RaftEngineConfig &config_p, raft::GroupId group_p, raft::LogIndex index_min_p,
                                   std::string peer_p)
    : config(config_p), group(group_p), index_min(index_min_p), peer(std::move(peer_p)) {
}

std::string SnapshotDownload::OpenRequest() const {
	return Encode(wire::SnapshotOpenRequest {config.cluster_id, group, index_min});
}

Status SnapshotDownload::TakeOpen(const Result<std::string> &answer) {
	if (!answer.IsOk()) {
		return answer.GetStatus();
	}
	auto decoded = wire::DecodeSnapshotOpenAnswer(answer.Value());
	if (!decoded.IsOk()) {
		return decoded.GetStatus();
	}
	image = std::move(decoded.Value());
	if (!image.status.IsOk()) {
		return image.status;
	}
	if (image.cluster_id != config.cluster_id) {
		return Status(ErrorCode::Incompatible, "node '" + peer + "' offers a snapshot of cluster '" + image.cluster_id +
		                                           "', this is '" + config.cluster_id + "'");
	}
	raft::LogIndex index = 0;
	for (auto &position : image.positions) {
		index = position.group == group ? position.meta.index : index;
	}
	if (index < index_min) {
		return Status(ErrorCode::Incompatible, "node '" + peer + "' offers a snapshot at index " +
		                                           std::to_string(index) + ", at least " + std::to_string(index_min) +
		                                           " is needed");
	}
	is_open = true;
	return Status::Ok();
}

uint64_t SnapshotDownload::ChunkBytes() const {
	return std::min<uint64_t>(config.snapshot_chunk_bytes, image.bytes - offset);
}

std::string SnapshotDownload::ChunkRequest() const {
	return Encode(wire::SnapshotChunkRequest {image.image, offset, ChunkBytes()});
}

Result<std::string> SnapshotDownload::TakeChunk(const Result<std::string> &answer) {
	may_ask_again = false;
	auto chunk = answer.IsOk() ? wire::DecodeSnapshotChunkAnswer(answer.Value())
	                           : Result<wire::SnapshotChunkAnswer>(answer.GetStatus());
	auto status = chunk.IsOk() ? chunk.Value().status : chunk.GetStatus();
	if (!status.IsOk()) {
		auto is_final = status.Code() == ErrorCode::NotFound || status.Code() == ErrorCode::Degraded;
		may_ask_again = !is_final && ++failed_count < CHUNK_ATTEMPTS_MAX;
		return status;
	}
	auto &data = chunk.Value().data;
	if (data.size() != ChunkBytes() || chunk.Value().offset != offset) {
		return Status(ErrorCode::Corruption, "node '" + peer + "' sent " + std::to_string(data.size()) +
		                                         " bytes at offset " + std::to_string(chunk.Value().offset) +
		                                         " of the snapshot, " + std::to_string(ChunkBytes()) + " at " +
		                                         std::to_string(offset) + " were asked for");
	}
	failed_count = 0;
	offset += data.size();
	return std::move(data);
}

} // namespace node
} // namespace quack
