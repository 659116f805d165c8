//! The receiving side of one snapshot transfer, without thread, clock, network or file.
#pragma once

#include <optional>
#include <string>

#include "quack/node/engine_config.hpp"
#include "quack/node/position.hpp"
#include "quack/node/snapshot_part.hpp"

namespace quack {
namespace node {

//! The owner sends OpenRequest() and hands the answer to TakeOpen, then for each chunk until IsComplete sends
//! ChunkRequest() and hands the answer, or why there is none, to TakeChunk. One request at a time; an answer that comes
//! after its request was given up must not be handed in.
class SnapshotDownload {
public:
	//! An image of `peer` that stands at index_min of the group or later. `part`: what the owner holds of one already,
	//! checked against its checksum; used when the peer still has that very image. `resume_only`: another one is not
	//! wanted.
	SnapshotDownload(const RaftEngineConfig &config, raft::GroupId group, raft::LogIndex index_min, std::string peer,
	                 std::optional<SnapshotPart> part = std::nullopt, bool resume_only = false);

	//! Before the first OpenRequest(): where the state stands in all groups. An image that is older in another one than
	//! the group it is asked for cannot be installed either.
	void NeedAtLeast(const std::vector<Position> &positions);
	//! Body of METHOD_SNAPSHOT_OPEN.
	std::string OpenRequest() const;
	//! A failure ends the transfer, unless IsPreparing(): then OpenRequest() may be sent once more after a pause.
	Status TakeOpen(const Result<std::string> &answer);
	bool IsPreparing() const {
		return image.is_preparing;
	}
	//! Opened, and what the owner holds is the beginning of it: Offset() is behind that.
	bool IsResumed() const {
		return is_resumed;
	}

	//! Body of METHOD_SNAPSHOT_CHUNK: the piece at Offset().
	std::string ChunkRequest() const;
	//! The bytes that belong at the Offset() before the call; it moves behind them. After a failure MayAskAgain() tells
	//! whether ChunkRequest() may be sent once more after a pause; if not, the transfer has failed.
	Result<std::string> TakeChunk(const Result<std::string> &answer, MonotonicNs now);
	bool MayAskAgain() const {
		return may_ask_again;
	}

	//! Opened, and everything came.
	bool IsComplete() const {
		return is_open && offset == image.bytes;
	}
	uint64_t Offset() const {
		return offset;
	}
	//! Valid once opened.
	const wire::SnapshotOpenAnswer &Image() const {
		return image;
	}
	//! What is held now; valid once opened. Kept beside the bytes it goes into the next download.
	SnapshotPart Part() const;

private:
	uint64_t ChunkBytes() const;

	const RaftEngineConfig &config;
	const raft::GroupId group;
	const raft::LogIndex index_min;
	const std::string peer;
	const std::optional<SnapshotPart> part;
	const bool resume_only;
	std::vector<std::pair<raft::GroupId, raft::LogIndex>> others_min;

	bool is_open = false;
	bool is_resumed = false;
	wire::SnapshotOpenAnswer image;
	uint64_t offset = 0;
	uint32_t crc32c = 0;
	//! When the first answer to the present chunk came that was of no use.
	std::optional<MonotonicNs> failing_since;
	bool may_ask_again = false;
};

} // namespace node
} // namespace quack
