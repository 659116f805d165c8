#include "quack/node/outbox.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t ENVELOPE_BYTES_TARGET = 4 * 1024 * 1024;

//! Losing a raft message is allowed: the transport counts what it drops and the cores repeat.
void SendEnvelope(transport::Transport &transport, const std::string &peer, wire::EnvelopeWriter &envelope) {
	auto status = transport.Send(peer, envelope.Take());
	static_cast<void>(status);
}

} // namespace

void Outbox::Add(raft::Message message) {
	if (message.to == directory.Self()) {
		self_messages.push_back(std::move(message));
		return;
	}
	auto &envelope = envelopes[message.to];
	envelope.Add(message);
	if (envelope.Size() >= ENVELOPE_BYTES_TARGET || envelope.Count() >= wire::ENVELOPE_MESSAGES_MAX) {
		SendEnvelope(transport, directory.NameOf(message.to), envelope);
	}
}

void Outbox::Flush() {
	for (auto &entry : envelopes) {
		if (!entry.second.Empty()) {
			SendEnvelope(transport, directory.NameOf(entry.first), entry.second);
		}
	}
}

void Outbox::Clear() {
	envelopes.clear();
	self_messages.clear();
}

std::vector<raft::Message> Outbox::TakeSelf() {
	std::vector<raft::Message> result;
	result.swap(self_messages);
	return result;
}

} // namespace node
} // namespace quack
