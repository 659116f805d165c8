//! The receiving side of one snapshot transfer, without thread, clock, network or file.
#pragma once

#include <string>

#include "quack/node/engine_config.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! The owner sends OpenRequest() and hands the answer to TakeOpen, then for each chunk until IsComplete sends
//! ChunkRequest() and hands the answer, or why there is none, to TakeChunk. One request at a time; an answer that comes
//! after its request was given up must not be handed in.
class SnapshotDownload {
public:
	//! An image of `peer` that stands at index_min of the group or later.
	SnapshotDownload(const RaftEngineConfig &config, raft::GroupId group, raft::LogIndex index_min, std::string peer);

	//! Body of METHOD_SNAPSHOT_OPEN.
	std::string OpenRequest() const;
	//! A failure ends the transfer.
	Status TakeOpen(const Result<std::string> &answer);

	//! Body of METHOD_SNAPSHOT_CHUNK: the piece at Offset().
	std::string ChunkRequest() const;
	//! The bytes that belong at the Offset() before the call; it moves behind them. After a failure MayAskAgain() tells
	//! whether ChunkRequest() may be sent once more after a pause; if not, the transfer has failed.
	Result<std::string> TakeChunk(const Result<std::string> &answer);
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

private:
	uint64_t ChunkBytes() const;

	const RaftEngineConfig &config;
	const raft::GroupId group;
	const raft::LogIndex index_min;
	const std::string peer;

	bool is_open = false;
	wire::SnapshotOpenAnswer image;
	uint64_t offset = 0;
	//! Answers to the present chunk that were of no use.
	unsigned failed_count = 0;
	bool may_ask_again = false;
};

} // namespace node
} // namespace quack
