//! The one interface through which the catalog reaches consensus. The default engine is RaftEngine (raft_engine.hpp);
//! an adapter over an installed NuRaft could stand beside it (third_party/nuraft/README.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace node {

//! Where a proposal stands after the engine is done with it. It is applied on THIS node strictly after the answer's
//! index is applied here; the state machine itself reports the entry's outcome by request id.
struct ProposeOutcome {
	//! Ok = committed at (group, index). OutcomeUnknown = it may commit later. Everything else = surely not committed
	//! by this attempt, a retry is safe: Unavailable (no leader, or another leader's entry took its place), Overloaded,
	//! DeadlineExceeded, NotLeader, DiskFull (no space on the leader, and nobody to hand over to), NotFound (no such
	//! group), Degraded, InvalidArgument (larger than ENTRY_BYTES_MAX).
	Status status;
	raft::LogIndex index = 0;
};

struct PeerLag {
	std::string node_id;
	raft::LogIndex match = 0;
	uint64_t lag = 0; //! entries behind the leader's last index
	bool connected = false;
	std::string state; //! probe, replicate, snapshot
	std::string last_error;
};

//! One row of quack_raft_status(): one group as this node sees it.
struct GroupStatus {
	std::string cluster_id;
	raft::GroupId group = raft::ROOT_GROUP;
	std::string group_name; //! "root" for the root group
	std::string node_id;
	std::string role; //! leader, follower, candidate, pre_candidate, learner; forming: no log yet
	raft::Term term = 0;
	std::string leader_id; //! empty when unknown
	bool is_leader = false;
	std::vector<std::string> voters;
	std::vector<std::string> learners;
	//! Joint consensus is under way, or the newest membership is not committed yet.
	bool membership_change_in_progress = false;
	raft::LogIndex commit_index = 0;
	raft::LogIndex applied_index = 0;
	raft::LogIndex last_log_index = 0;
	raft::LogIndex durable_index = 0;
	raft::LogIndex checkpoint_index = 0;
	std::vector<PeerLag> peers;
	std::string lease; //! valid, expired, quiet (nothing happens, so none is held), none
	int64_t lease_remaining_ms = 0;
	bool linearizable_read_safe = false;
	bool degraded = false;
	//! Why degraded, or why there is no leader: which peers are missing and what they last said; what the group's next
	//! entry waits for.
	std::string reason;
	uint64_t proposal_queue_count = 0;
	uint64_t proposal_queue_bytes = 0;
	uint64_t apply_queue_count = 0; //! of this group: committed and not applied here
	uint64_t apply_queue_bytes = 0;
	uint64_t log_disk_bytes = 0;
	uint64_t snapshot_bytes_done = 0; //! transfer in progress to or from this node; 0/0 = none
	uint64_t snapshot_bytes_total = 0;
};

class ConsensusEngine {
public:
	using ProposeCallback = std::function<void(const ProposeOutcome &)>;
	using ReadCallback = std::function<void(Result<raft::LogIndex>)>;
	using PositionsCallback = std::function<void(Result<std::vector<Position>>)>;
	using TextCallback = std::function<void(Result<std::string>)>;

	virtual ~ConsensusEngine() = default;

	//! Starts threads; the state machine is caught up in the background.
	virtual Status Start() = 0;
	//! Graceful: hand over leadership, final checkpoint, join threads. Idempotent.
	virtual void Stop(MonotonicNs timeout) = 0;

	//! Appends `payload` to the group, here or through its leader. One attempt: the caller decides about retries (safe
	//! with the same request id inside the payload). `done` is called exactly once, on an engine thread; must not
	//! block.
	virtual void Propose(raft::GroupId group, SharedBytes payload, MonotonicNs timeout, ProposeCallback done) = 0;

	//! Read indexes for a linearizable read of these groups, in the order given; wait until all are applied before
	//! reading. No groups = all that run on this node, in order of their numbers (one that is retired meanwhile is left
	//! out): then look at StateMachine::GroupsVersion() after the wait and ask again when it has changed, because what
	//! was acknowledged may lie in a group that this node has heard of only now. Groups led here answer at once while
	//! the lease holds; the leaders elsewhere get one request each, whatever the number of their groups. The first
	//! group that cannot be asked fails all: NotFound (no such group), Unavailable, Overloaded, DeadlineExceeded,
	//! Degraded.
	virtual void ReadBarriers(const std::vector<raft::GroupId> &groups, MonotonicNs timeout,
	                          PositionsCallback done) = 0;
	//! The same for one group.
	void ReadBarrier(raft::GroupId group, MonotonicNs timeout, ReadCallback done) {
		ReadBarriers({group}, timeout, [done = std::move(done)](const Result<std::vector<Position>> &positions) {
			done(positions.IsOk() ? Result<raft::LogIndex>(positions.Value().front().index)
			                      : Result<raft::LogIndex>(positions.GetStatus()));
		});
	}

	//! Blocks until the state machine here applied `index`. DeadlineExceeded, Degraded, or Unavailable on Stop.
	virtual Status WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) = 0;

	//! Hands the group over; from any node. Empty target = best caught-up voter. Answers the name of the leader, which
	//! is another node now (or the target, which led already); else why not: NotFound (no such member),
	//! InvalidArgument (no voter, or it never leads), Unavailable (not heard of, too far behind, did not take over, or
	//! another node did), DeadlineExceeded.
	virtual void TransferLeadership(raft::GroupId group, const std::string &target_node_id, MonotonicNs timeout,
	                                TextCallback done) = 0;

	virtual std::vector<GroupStatus> GetStatus() const = 0;

	//! The newest committed membership of the root group that this node knows; Unavailable before it is formed, or
	//! while its voters are being changed.
	virtual Result<raft::Membership> RootMembership() const = 0;
	//! Which disk of this node has not answered for how long; empty while they answer. Then nothing that needs the disk
	//! should be begun here, and who waits for it should ask another node. Cheap; any thread.
	virtual std::string HungDisk() const {
		return "";
	}

	//! Fail closed: stop voting, acknowledging and serving; status says why. Called by any layer that finds a
	//! non-deterministic failure. The first reason wins.
	virtual void LatchDegraded(const std::string &reason) = 0;
	virtual bool IsDegraded() const = 0;
};

} // namespace node
} // namespace quack
