//! One-way messages on their way out (bounded, two lanes) and on their way in (length-prefixed frames in DATA).
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace transport {

//! Urgent messages travel on a stream of their own and pass bulk ones; order is kept within a lane.
enum class Lane : uint8_t { Urgent = 0, Bulk = 1 };
constexpr size_t LANE_COUNT = 2;

//! Bounded queue between senders on any thread and the event loop. Closed = not connected: takes nothing.
class MessageQueue {
public:
	//! The urgent lane has bounds of its own (an eighth, at least 1 MiB), so that a full bulk lane never refuses a
	//! heartbeat. A message larger than the bound is taken when its lane is empty.
	explicit MessageQueue(size_t bulk_bytes_max);

	void Open();
	//! Drops what is queued and partly sent; the number of dropped messages.
	uint64_t Close();
	//! Unavailable (closed) or Overloaded (full); nothing was queued then. `needs_wake` is set when the event loop must
	//! be told; it is told once per ReadDone.
	Status Push(Lane lane, std::string bytes, bool &needs_wake);
	//! Event loop: copies frames (4-byte little-endian length, bytes) into the buffer.
	size_t Read(Lane lane, char *buffer, size_t size);
	//! Event loop: the wake-up was seen.
	void TakeWake();
	size_t Bytes() const;

private:
	struct LaneState {
		std::deque<std::string> messages;
		size_t bytes = 0;
		size_t bytes_max = 0;
		size_t head_offset = 0; //! within the frame of the first message, header included
	};

	mutable std::mutex lock; //! guards everything below; held for a copy of at most one frame
	LaneState lanes[LANE_COUNT];
	bool is_open = false;
	bool wake_pending = false;
};

//! Splits received DATA of one message stream into messages.
class MessageAssembler {
public:
	explicit MessageAssembler(size_t message_bytes_max_p) : message_bytes_max(message_bytes_max_p) {
	}
	//! Calls `deliver` per whole message. InvalidArgument: a length above the bound; the stream is then useless.
	Status Feed(ByteView bytes, const std::function<void(std::string)> &deliver);

private:
	const size_t message_bytes_max;
	std::string header;
	std::string message;
	size_t missing = 0;
};

} // namespace transport
} // namespace quack
