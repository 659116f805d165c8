#include "sim/workload.hpp"

#include <algorithm>

namespace quack {
namespace sim {

Workload::Workload(World &world_p, Cluster &cluster_p)
    : world(world_p), cluster(cluster_p), prng(world_p.settings.seed ^ 0x776f726b00000004ULL),
      clients(world_p.settings.client_count), last_seen(world_p.settings.key_count, 0) {
	// Operation 0 stays unused: value 0 means "never written".
	ops.emplace_back();
	ops[0].state = OpState::Refused;
}

void Workload::Start() {
	for (uint32_t client = 0; client < clients.size(); client++) {
		auto delay = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(world.settings.think_max) + 1));
		world.queue.Push(delay, EventKind::ClientWake, 0, 0, client);
	}
}

void Workload::Handle(const SimEvent &event) {
	if (event.kind == EventKind::ClientWake) {
		Wake(static_cast<uint32_t>(event.arg));
	} else if (event.kind == EventKind::ClientRequest) {
		Request(event);
	} else if (ops[event.arg].state == OpState::Open) {
		Finish(static_cast<uint32_t>(event.arg), OpState::Unknown);
	}
}

uint32_t Workload::NewOp(OpKind kind, uint32_t key, uint32_t client) {
	auto number = static_cast<uint32_t>(ops.size());
	Op op;
	op.command.op = number;
	op.command.kind = kind;
	op.command.key = key;
	op.command.value = number;
	op.command.expected = last_seen[key];
	op.client = client;
	op.invoke = ++logical_time;
	ops.push_back(op);
	world.queue.Push(world.settings.op_timeout, EventKind::OpTimeout, 0, 0, number);
	return number;
}

void Workload::Wake(uint32_t client) {
	if (stopped || clients[client].open_ops != 0) {
		return;
	}
	const Settings &s = world.settings;
	uint32_t slot = clients[client].leader_slot;
	if (!prng.Chance(s.leader_affinity_percent, 100)) {
		slot = static_cast<uint32_t>(prng.Below(s.SlotCount()));
	}
	if (!cluster.At(slot).IsAlive()) {
		clients[client].leader_slot = static_cast<uint32_t>(prng.Below(s.SlotCount()));
		world.queue.Push(1 + s.think_max, EventKind::ClientWake, 0, 0, client);
		return;
	}
	bool read = prng.Chance(s.read_percent, 100);
	auto count = read ? 1 : static_cast<uint32_t>(1 + prng.Below(s.batch_max));
	auto first = static_cast<uint32_t>(ops.size());
	for (uint32_t i = 0; i < count; i++) {
		OpKind kind = read ? OpKind::Read : prng.Chance(s.cas_percent, 100) ? OpKind::Cas : OpKind::Write;
		NewOp(kind, static_cast<uint32_t>(prng.Below(s.key_count)), client);
	}
	ops[first].batch = count;
	clients[client].open_ops = count;
	world.queue.Push(s.delay_min, EventKind::ClientRequest, static_cast<uint16_t>(slot), cluster.At(slot).Life(),
	                 first);
}

void Workload::Request(const SimEvent &event) {
	SimNode &node = cluster.At(event.node);
	if (!node.IsAlive() || node.Life() != event.life) {
		return;
	}
	if (node.IsPaused()) {
		world.queue.Defer(event, node.PausedUntil());
		return;
	}
	auto first = static_cast<uint32_t>(event.arg);
	if (ops[first].command.kind == OpKind::Read) {
		node.Read(first);
		return;
	}
	std::vector<uint32_t> numbers;
	std::vector<SharedBytes> payloads;
	uint32_t count = ops[first].batch;
	for (uint32_t number = first; number < first + count; number++) {
		numbers.push_back(number);
		payloads.push_back(EncodeCommand(ops[number].command, prng.Below(world.settings.payload_padding_max + 1)));
	}
	node.Propose(numbers, payloads);
}

uint32_t Workload::Ask(SimNode &node, OpKind kind, uint32_t key) {
	uint32_t number = NewOp(kind, key, NO_CLIENT);
	world.queue.Push(0, EventKind::ClientRequest, static_cast<uint16_t>(node.Slot()), node.Life(), number);
	return number;
}

void Workload::Finish(uint32_t number, OpState state) {
	Op &op = ops[number];
	op.state = state;
	op.complete = ++logical_time;
	world.trace.Add(Mix(number, static_cast<uint64_t>(state)) ^ op.observed);
	if (world.trace.IsPrinting()) {
		static const char *const states[] = {"open", "done", "refused", "unknown"};
		static const char *const kinds[] = {"read", "write", "cas"};
		world.trace.Print("%10.3f  op %u (%s key %u) %s, saw %u", static_cast<double>(world.queue.Now()) / NS_PER_MS,
		                  number, kinds[static_cast<size_t>(op.command.kind)], op.command.key,
		                  states[static_cast<size_t>(state)], op.observed);
	}
	bool write = op.command.kind != OpKind::Read;
	world.coverage.writes_acknowledged += write && state == OpState::Done ? 1 : 0;
	world.coverage.writes_refused += write && state == OpState::Refused ? 1 : 0;
	world.coverage.writes_unknown += write && state == OpState::Unknown ? 1 : 0;
	if (op.client == NO_CLIENT || --clients[op.client].open_ops != 0) {
		return;
	}
	auto think = static_cast<MonotonicNs>(prng.Below(static_cast<uint64_t>(world.settings.think_max) + 1));
	// A refusal comes at once; asking again in a tight loop would only burn time.
	MonotonicNs back_off = state == OpState::Refused ? world.settings.config.election_timeout / 8 : 0;
	world.queue.Push(think + back_off, EventKind::ClientWake, 0, 0, op.client);
}

void Workload::Refuse(SimNode &node, uint32_t number) {
	Op &op = ops[number];
	if (op.state != OpState::Open) {
		return;
	}
	if (op.client != NO_CLIENT && node.Leader() != raft::NO_NODE) {
		clients[op.client].leader_slot = SlotOf(node.Leader());
	}
	Finish(number, OpState::Refused);
}

void Workload::OnWriteRefused(SimNode &node, uint32_t number, const Status &status) {
	if (status.Code() == ErrorCode::OutcomeUnknown) {
		if (ops[number].state == OpState::Open) {
			Finish(number, OpState::Unknown);
		}
		return;
	}
	// Also when the client gave up meanwhile: the promise of the core stands.
	world.lost_write.OnRefused(number);
	Refuse(node, number);
}

void Workload::OnWriteApplied(SimNode &, uint32_t number, const CommandOutcome &outcome) {
	Op &op = ops[number];
	if (op.state != OpState::Open) {
		return;
	}
	op.observed = outcome.observed;
	last_seen[op.command.key] = outcome.changed ? op.command.value : outcome.observed;
	world.lost_write.OnAcknowledged(number);
	Finish(number, OpState::Done);
}

void Workload::OnReadRefused(SimNode &node, uint32_t number, const Status &) {
	Refuse(node, number);
}

void Workload::OnReadReady(SimNode &node, uint32_t number) {
	Op &op = ops[number];
	if (op.state != OpState::Open) {
		return;
	}
	op.observed = node.Machine().Read(op.command.key);
	last_seen[op.command.key] = op.observed;
	Finish(number, OpState::Done);
}

std::vector<HistoryOp> Workload::History(uint32_t key) const {
	std::vector<HistoryOp> history;
	for (const auto &op : ops) {
		if (op.command.key != key || op.state == OpState::Refused) {
			continue;
		}
		HistoryOp item;
		item.op = op.command.op;
		item.kind = op.command.kind;
		item.value = op.command.value;
		item.expected = op.command.expected;
		item.invoke = op.invoke;
		item.complete = op.state == OpState::Done ? op.complete : HistoryOp::PENDING;
		item.observed = op.observed;
		history.push_back(item);
	}
	return history;
}

} // namespace sim
} // namespace quack
