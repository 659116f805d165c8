//! Clients that write, read and compare-and-set a few registers, one operation (or one batch of proposals) at a time,
//! and the history of what they asked and were told.
#pragma once

#include <functional>
#include <vector>

#include "sim/checkers/linearizability_checker.hpp"
#include "sim/cluster.hpp"

namespace quack {
namespace sim {

enum class OpState : uint8_t {
	Open,    //! no answer yet
	Done,    //! acknowledged
	Refused, //! surely without effect
	Unknown, //! given up: it may have taken effect, or may yet
};

struct Op {
	Command command;
	OpState state = OpState::Open;
	uint64_t invoke = 0;
	uint64_t complete = 0;
	uint32_t observed = 0;
	uint32_t client = 0;
	//! Operations proposed together with this one, for the first of a batch.
	uint32_t batch = 1;
};

class Workload {
public:
	Workload(World &world, Cluster &cluster);

	void Start();
	//! No new operations from now on.
	void Stop() {
		stopped = true;
	}
	//! ClientWake, ClientRequest and OpTimeout events.
	void Handle(const SimEvent &event);
	//! An operation outside the clients' loops, asked of one node now. Returns its number.
	uint32_t Ask(SimNode &node, OpKind kind, uint32_t key);
	OpState StateOf(uint32_t op) const {
		return ops[op].state;
	}

	void OnWriteRefused(SimNode &node, uint32_t op, const Status &status);
	void OnWriteApplied(SimNode &node, uint32_t op, const CommandOutcome &outcome);
	void OnReadRefused(SimNode &node, uint32_t op, const Status &status);
	void OnReadReady(SimNode &node, uint32_t op);

	//! The history of one register, refused operations left out.
	std::vector<HistoryOp> History(uint32_t key) const;

private:
	static constexpr uint32_t NO_CLIENT = ~0u;

	struct Client {
		uint32_t open_ops = 0;
		//! Where it last heard the leader to be.
		uint32_t leader_slot = 0;
	};

	uint32_t NewOp(OpKind kind, uint32_t key, uint32_t client);
	void Wake(uint32_t client);
	void Request(const SimEvent &event);
	void Finish(uint32_t op, OpState state);
	void Refuse(SimNode &node, uint32_t op);

	World &world;
	Cluster &cluster;
	Prng prng;
	bool stopped = false;
	uint64_t logical_time = 0;
	std::vector<Client> clients;
	std::vector<Op> ops;
	//! Last value seen per key by anyone: makes compare-and-set succeed now and then.
	std::vector<uint32_t> last_seen;
};

} // namespace sim
} // namespace quack
