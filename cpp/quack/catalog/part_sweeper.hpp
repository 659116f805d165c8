//! Ends transactions over several groups whose session died between prepare and release (cpp/GROUPS.md, "No lock
//! stays").
#pragma once

#include "quack/catalog/periodic_thread.hpp"
#include "quack/catalog/replica_core.hpp"
#include "quack/node/transaction_finisher.hpp"

namespace quack {
namespace catalog {

//! Its clock decides when the leader of a group asks; what became of the transaction is what the logs say.
class PartSweeper {
public:
	explicit PartSweeper(ReplicaCore &core);

	//! The engine is set.
	void Start() {
		thread.Start();
	}
	void Stop() {
		thread.Stop();
	}

private:
	void Look();
	//! Parts in groups that this node leads.
	std::vector<node::PreparedAtLeader> Prepared() const;
	void Propose(node::FinisherProposal &proposal);

	ReplicaCore &core;
	SystemClock clock;
	node::TransactionFinisher finisher; //! own thread only
	PeriodicThread thread;
};

} // namespace catalog
} // namespace quack
