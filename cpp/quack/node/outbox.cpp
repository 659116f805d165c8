#include "quack/node/outbox.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t ENVELOPE_BYTES_TARGET = 4 * 1024 * 1024;

bool IsLarge(const wire::EnvelopeWriter &envelope) {
	return envelope.Size() >= ENVELOPE_BYTES_TARGET || envelope.Count() >= wire::ENVELOPE_MESSAGES_MAX;
}

} // namespace

void Outbox::Add(raft::Message message) {
	if (message.to == directory.Self()) {
		self_messages.push_back(std::move(message));
		return;
	}
	auto &lanes = peers[message.to];
	auto is_urgent = message.entries.empty();
	auto &envelope = is_urgent ? lanes.urgent : lanes.bulk;
	envelope.Add(message);
	if (IsLarge(envelope)) {
		Send(message.to, envelope, is_urgent);
	}
}

//! Losing a raft message is allowed: the transport counts what it drops and the cores repeat.
void Outbox::Send(raft::NodeId peer, wire::EnvelopeWriter &envelope, bool is_urgent) {
	auto name = directory.NameOf(peer);
	auto status = is_urgent ? transport.SendUrgent(name, envelope.Take()) : transport.Send(name, envelope.Take());
	static_cast<void>(status);
}

void Outbox::AddBeats(NodeBeats &beats, MonotonicNs now) {
	for (auto &entry : peers) {
		if (!entry.second.bulk.Empty() || !entry.second.urgent.Empty()) {
			beats.Sent(entry.first, now);
		}
	}
	for (auto node : beats.TakeDue(now)) {
		peers[node].is_beat = true;
	}
}

void Outbox::Flush() {
	for (auto &entry : peers) {
		if (!entry.second.bulk.Empty()) {
			Send(entry.first, entry.second.bulk, false);
		}
		if (!entry.second.urgent.Empty() || entry.second.is_beat) {
			Send(entry.first, entry.second.urgent, true);
			entry.second.is_beat = false;
		}
	}
}

void Outbox::Clear() {
	peers.clear();
	self_messages.clear();
}

std::vector<raft::Message> Outbox::TakeSelf() {
	std::vector<raft::Message> result;
	result.swap(self_messages);
	return result;
}

} // namespace node
} // namespace quack
