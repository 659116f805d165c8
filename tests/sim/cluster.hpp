//! All nodes of one run, the calls of snapshot transfers between them, and what is globally known to be committed.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sim/node.hpp"

namespace quack {
namespace sim {

class Workload;

class Cluster final : public NodeListener {
public:
	explicit Cluster(World &world);

	//! The workload that hears of answers; set once before the first event.
	void SetWorkload(Workload &workload_p) {
		workload = &workload_p;
	}
	void StartAll();
	//! Events that belong to nodes, messages and transfers.
	void Handle(const SimEvent &event);

	size_t SlotCount() const {
		return nodes.size();
	}
	SimNode &At(uint32_t slot) {
		return *nodes[slot];
	}
	//! Node with exactly this identity, alive or crashed; null when replaced.
	SimNode *Find(raft::NodeId id);
	//! The running leader of the highest term; null when there is none.
	SimNode *CurrentLeader();
	//! The last one that is globally known to be committed.
	const raft::Membership &CommittedMembership() const {
		return committed_membership;
	}

	void OnFirstCommit(SimNode &node, raft::Term term, raft::LogIndex commit_index,
	                   const raft::Membership &before) override;
	raft::LogIndex GlobalCommitIndex() const override {
		return world.leader_completeness.CommitIndex();
	}
	void OnCall(SnapshotCall call) override;
	void OnPowerLost(SimNode &node) override;
	void OnWriteRefused(SimNode &node, uint32_t op, const Status &status) override;
	void OnWriteApplied(SimNode &node, uint32_t op, const CommandOutcome &outcome) override;
	void OnReadRefused(SimNode &node, uint32_t op, const Status &status) override;
	void OnReadReady(SimNode &node, uint32_t op) override;
	const LogImage *SyncedLog(raft::NodeId node) override;
	//! The node's log is damaged: it gets a new identity. What was committed with its help stays so.
	void ReplaceDisk(SimNode &node);

private:
	void DeliverMessage(const SimEvent &event);
	void DeliverCall(const SimEvent &event);
	void DeliverBeat(const SimEvent &event);

	World &world;
	Prng prng;
	Workload *workload = nullptr;
	std::vector<std::unique_ptr<SimNode>> nodes;
	//! Every call of the run: duplicates may arrive late.
	std::vector<SnapshotCall> calls;
	raft::Membership committed_membership;
	//! What damaged disks held, by their identities.
	std::map<raft::NodeId, LogImage> lost_disks;
};

} // namespace sim
} // namespace quack
