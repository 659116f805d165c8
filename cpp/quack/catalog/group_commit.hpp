//! Commits a transaction over several groups (cpp/GROUPS.md).
#pragma once

#include "quack/catalog/commit_proposals.hpp"
#include "quack/node/transaction_driver.hpp"

namespace quack {
namespace catalog {

struct GroupTransaction {
	RequestId id {};
	raft::LogIndex planned_version = 0;
	//! Of a void entry that may have to end it.
	uint64_t base = 0;
	std::vector<node::TransactionPart> parts;
	//! Prepares one group after the other; see node::TransactionDriver.
	bool in_turn = false;
};

//! Prepares, decides, and proposes the releases. The outcome is that of the coordinator's group.
CommitOutcome CommitOverGroups(ReplicaCore &core, GroupTransaction transaction, MonotonicNs deadline,
                               const std::function<bool()> &interrupted);

//! The payload of a void entry under the id.
SharedBytes VoidEntry(const ReplicaCore &core, const RequestId &id, uint64_t base);

} // namespace catalog
} // namespace quack
