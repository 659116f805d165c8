#include "quack/node/snapshot_download.hpp"

#include <algorithm>

#include "quack/common/crc32c.hpp"

namespace quack {
namespace node {

namespace {

//! The id alone decides; the rest guards against a peer that gives one id to two images.
bool IsSameImage(const wire::SnapshotOpenAnswer &a, const wire::SnapshotOpenAnswer &b) {
	auto is_same = [](const wire::SnapshotPosition &left, const wire::SnapshotPosition &right) {
		return left.group == right.group && left.meta.index == right.meta.index && left.meta.term == right.meta.term;
	};
	return a.image == b.image && a.bytes == b.bytes && a.cluster_id == b.cluster_id &&
	       std::equal(a.positions.begin(), a.positions.end(), b.positions.begin(), b.positions.end(), is_same);
}

} // namespace

SnapshotDownload::SnapshotDownload(const RaftEngineConfig &config_p, raft::GroupId group_p, raft::LogIndex index_min_p,
                                   std::string peer_p, std::optional<SnapshotPart> part_p, bool resume_only_p)
    : config(config_p), group(group_p), index_min(index_min_p), peer(std::move(peer_p)), part(std::move(part_p)),
      resume_only(resume_only_p) {
}

void SnapshotDownload::NeedAtLeast(const std::vector<Position> &positions) {
	for (auto &position : positions) {
		if (position.group != group) {
			others_min.emplace_back(position.group, position.index);
		}
	}
}

std::string SnapshotDownload::OpenRequest() const {
	wire::SnapshotOpenRequest request;
	request.cluster_id = config.cluster_id;
	request.group = group;
	request.index_min = index_min;
	request.resume_image = part ? part->image.image : 0;
	request.resume_only = resume_only;
	request.applied = others_min;
	return Encode(request);
}

Status SnapshotDownload::TakeOpen(const Result<std::string> &answer) {
	image = wire::SnapshotOpenAnswer();
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
	if (image.image == 0) {
		return Status(ErrorCode::Incompatible, "node '" + peer + "' offers a snapshot without an id");
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
	for (auto &position : image.positions) {
		auto is_older = std::any_of(others_min.begin(), others_min.end(), [&position](auto &least) {
			return position.group == least.first && position.meta.index < least.second;
		});
		if (is_older) {
			return Status(ErrorCode::Incompatible, "node '" + peer + "' offers a snapshot at index " +
			                                           std::to_string(position.meta.index) + " of group " +
			                                           std::to_string(position.group) + ", the state here is newer");
		}
	}
	is_open = true;
	is_resumed = part && IsSameImage(image, part->image);
	if (is_resumed) {
		offset = part->offset;
		crc32c = part->crc32c;
	}
	return Status::Ok();
}

SnapshotPart SnapshotDownload::Part() const {
	SnapshotPart result;
	result.image = image;
	result.source = peer;
	result.chunk_bytes = config.snapshot_chunk_bytes;
	result.offset = offset;
	result.crc32c = crc32c;
	result.resumed_count = is_resumed && part ? part->resumed_count + 1 : 0;
	return result;
}

uint64_t SnapshotDownload::ChunkBytes() const {
	return std::min<uint64_t>(config.snapshot_chunk_bytes, image.bytes - offset);
}

std::string SnapshotDownload::ChunkRequest() const {
	return Encode(wire::SnapshotChunkRequest {image.image, offset, ChunkBytes()});
}

Result<std::string> SnapshotDownload::TakeChunk(const Result<std::string> &answer, MonotonicNs now) {
	may_ask_again = false;
	auto chunk = answer.IsOk() ? wire::DecodeSnapshotChunkAnswer(answer.Value())
	                           : Result<wire::SnapshotChunkAnswer>(answer.GetStatus());
	auto status = chunk.IsOk() ? chunk.Value().status : chunk.GetStatus();
	if (!status.IsOk()) {
		auto is_final = status.Code() == ErrorCode::NotFound || status.Code() == ErrorCode::Degraded;
		failing_since = failing_since.value_or(now);
		may_ask_again = !is_final && now - *failing_since < config.snapshot_source_patience;
		return status;
	}
	auto &data = chunk.Value().data;
	if (data.empty() || data.size() > ChunkBytes() || chunk.Value().offset != offset) {
		return Status(ErrorCode::Corruption, "node '" + peer + "' sent " + std::to_string(data.size()) +
		                                         " bytes at offset " + std::to_string(chunk.Value().offset) +
		                                         " of the snapshot, at most " + std::to_string(ChunkBytes()) + " at " +
		                                         std::to_string(offset) + " were asked for");
	}
	failing_since.reset();
	offset += data.size();
	crc32c = Crc32c(data, crc32c);
	return std::move(data);
}

} // namespace node
} // namespace quack
