#include "quack/transport/message_queue.hpp"

#include <algorithm>
#include <cstring>

namespace quack {
namespace transport {

namespace {

constexpr size_t FRAME_HEADER_SIZE = 4;
constexpr size_t URGENT_BYTES_MIN = 1024 * 1024;
//! A length that came over the wire is not believed beyond this before the bytes are there.
constexpr size_t RESERVE_BYTES_MAX = 1024 * 1024;

size_t CopyPart(ByteView from, size_t offset, char *to, size_t room) {
	if (offset >= from.size()) {
		return 0;
	}
	auto count = std::min(room, from.size() - offset);
	std::memcpy(to, from.data() + offset, count);
	return count;
}

} // namespace

MessageQueue::MessageQueue(size_t bulk_bytes_max) {
	lanes[static_cast<size_t>(Lane::Bulk)].bytes_max = bulk_bytes_max;
	lanes[static_cast<size_t>(Lane::Urgent)].bytes_max = std::max(bulk_bytes_max / 8, URGENT_BYTES_MIN);
}

void MessageQueue::Open() {
	std::lock_guard<std::mutex> guard(lock);
	is_open = true;
	wake_pending = false;
}

uint64_t MessageQueue::Close() {
	std::lock_guard<std::mutex> guard(lock);
	uint64_t dropped = 0;
	for (auto &lane : lanes) {
		dropped += lane.messages.size();
		lane.messages.clear();
		lane.bytes = 0;
		lane.head_offset = 0;
	}
	is_open = false;
	return dropped;
}

Status MessageQueue::Push(Lane lane, std::string bytes, bool &needs_wake) {
	std::lock_guard<std::mutex> guard(lock);
	if (!is_open) {
		return Status(ErrorCode::Unavailable, "not connected");
	}
	auto &state = lanes[static_cast<size_t>(lane)];
	if (state.bytes > 0 && state.bytes + bytes.size() > state.bytes_max) {
		return Status(ErrorCode::Overloaded, "send queue is full: " + std::to_string(state.bytes) + " of " +
		                                         std::to_string(state.bytes_max) + " bytes wait, the message has " +
		                                         std::to_string(bytes.size()));
	}
	state.bytes += bytes.size() + FRAME_HEADER_SIZE;
	state.messages.push_back(std::move(bytes));
	needs_wake = !wake_pending;
	wake_pending = true;
	return Status::Ok();
}

size_t MessageQueue::Read(Lane lane, char *buffer, size_t size) {
	std::lock_guard<std::mutex> guard(lock);
	auto &state = lanes[static_cast<size_t>(lane)];
	size_t filled = 0;
	while (filled < size && !state.messages.empty()) {
		auto &message = state.messages.front();
		std::string header;
		ByteWriter(header).PutU32(static_cast<uint32_t>(message.size()));
		if (state.head_offset < FRAME_HEADER_SIZE) {
			auto count = CopyPart(header, state.head_offset, buffer + filled, size - filled);
			filled += count;
			state.head_offset += count;
		}
		if (state.head_offset >= FRAME_HEADER_SIZE) {
			auto count = CopyPart(message, state.head_offset - FRAME_HEADER_SIZE, buffer + filled, size - filled);
			filled += count;
			state.head_offset += count;
		}
		if (state.head_offset == FRAME_HEADER_SIZE + message.size()) {
			state.bytes -= state.head_offset;
			state.head_offset = 0;
			state.messages.pop_front();
		}
	}
	return filled;
}

void MessageQueue::TakeWake() {
	std::lock_guard<std::mutex> guard(lock);
	wake_pending = false;
}

size_t MessageQueue::Bytes() const {
	std::lock_guard<std::mutex> guard(lock);
	return lanes[0].bytes + lanes[1].bytes;
}

Status MessageAssembler::Feed(ByteView bytes, const std::function<void(std::string)> &deliver) {
	while (!bytes.empty()) {
		if (header.size() < FRAME_HEADER_SIZE) {
			auto count = std::min(FRAME_HEADER_SIZE - header.size(), bytes.size());
			header.append(bytes.data(), count);
			bytes.remove_prefix(count);
			if (header.size() < FRAME_HEADER_SIZE) {
				break;
			}
			missing = ByteReader(header).GetU32();
			if (missing > message_bytes_max) {
				return Status(ErrorCode::InvalidArgument,
				              "a message of " + std::to_string(missing) + " bytes was announced, at most " +
				                  std::to_string(message_bytes_max) + " are taken (message_bytes_max)");
			}
			message.reserve(std::min(missing, RESERVE_BYTES_MAX));
		}
		auto count = std::min(missing, bytes.size());
		message.append(bytes.data(), count);
		bytes.remove_prefix(count);
		missing -= count;
		if (missing == 0) {
			header.clear();
			deliver(std::move(message));
			message = std::string();
		}
	}
	return Status::Ok();
}

} // namespace transport
} // namespace quack
