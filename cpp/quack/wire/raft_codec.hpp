//! Raft messages of many groups in one envelope. No IO, no clock, no thread.
//!
//! Envelope: 1 byte version (1), then per message a varint length and its fields (numbers in raft_codec.cpp). One
//! without messages says only that its sender is alive. Heartbeats of all groups to one peer therefore travel in one
//! message. Entry payloads are copied once into the envelope and once out of it; nothing re-encodes them.
#pragma once

#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"
#include "quack/raft/message.hpp"

namespace quack {
namespace wire {

constexpr uint8_t ENVELOPE_VERSION = 1;
//! More messages than this in one envelope are refused: a decoded message is much larger than an encoded one.
constexpr size_t ENVELOPE_MESSAGES_MAX = 65536;

//! Exact encoded size of one message, without its length prefix.
size_t MessageSize(const raft::Message &message);

//! Collects messages for one peer.
class EnvelopeWriter {
public:
	void Add(const raft::Message &message);
	bool Empty() const {
		return count == 0;
	}
	size_t Count() const {
		return count;
	}
	size_t Size() const {
		return bytes.size();
	}
	//! The envelope, with or without messages; the writer is empty again afterwards.
	std::string Take();

private:
	std::string bytes;
	size_t count = 0;
};

//! Corruption or Incompatible when the bytes are not an envelope; all or nothing.
Result<std::vector<raft::Message>> DecodeEnvelope(ByteView bytes);

} // namespace wire
} // namespace quack
