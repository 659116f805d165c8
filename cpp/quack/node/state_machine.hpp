//! What the node asks of the replicated state. Implemented by `catalog` over DuckDB and by tests in memory.
#pragma once

#include <string>
#include <vector>

#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/node/position.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace node {

struct CommittedEntry {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::Entry entry; //! any type: no-ops and memberships only advance the applied vector
};

//! A group besides the root group, as the entry of the root group that created it says (cpp/GROUPS.md).
struct GroupDefinition {
	raft::GroupId id = 0; //! never used again for another group
	std::string name;
	//! Of the root group at that entry: what the new group starts with.
	raft::Membership membership;
};

//! One group's place in the applied vector.
struct AppliedPosition {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
	raft::Term term = 0;
	raft::Membership membership; //! in force at index
};

//! Threads: Apply, Needs, Checkpoint and InstallSnapshot from one apply thread; the rest from any.
class StateMachine {
public:
	virtual ~StateMachine() = default;

	//! Applies in order, as few or as many transactions as it likes; effects and applied vector in one transaction. Ok
	//! also when entries were deterministically rejected (constraint, conflict). Entries of a group that was retired
	//! earlier in the same call do nothing. DiskFull: an entry needs space that is not there, and was not begun; the
	//! same entries come again later (those before it may have been applied). Any other failure latches the node
	//! degraded.
	virtual Status Apply(const std::vector<CommittedEntry> &entries) = 0;

	//! Positions of other groups that must be applied on this node before `entry` (GROUPS.md, "Needs"). Asked on the
	//! apply thread when everything before the entry in its own group was handed to Apply or is about to be in the same
	//! call; asked once per entry and start, so the answer must not depend on what is applied. Must be cheap.
	virtual std::vector<Position> Needs(const CommittedEntry &entry) const {
		static_cast<void>(entry);
		return {};
	}

	//! Groups that exist besides the root group, as of what is applied. Any thread.
	virtual std::vector<GroupDefinition> Groups() const {
		return {};
	}
	//! Another number whenever Groups() is another list. Any thread; asked after every Apply and InstallSnapshot.
	virtual uint64_t GroupsVersion() const {
		return 0;
	}

	//! What the running database holds now.
	virtual std::vector<AppliedPosition> Applied() const = 0;

	//! What would survive a power cut now: the positions of the last finished checkpoint. The log is kept from there.
	virtual std::vector<AppliedPosition> Durable() const = 0;

	//! Since when a sync of its files has not returned; 0 = none is under way. Cheap.
	virtual MonotonicNs SyncingSince() const {
		return 0;
	}
	//! Where its files are, for messages.
	virtual std::string Place() const {
		return "";
	}

	//! Makes the state at some index >= Applied() at the call durable, without stopping Apply for long.
	virtual Status Checkpoint() = 0;

	//! A file image of a past state, kept readable until the object dies; what it takes on the disk goes with it,
	//! unless it is retained.
	class SnapshotImage {
	public:
		virtual ~SnapshotImage() = default;
		//! Random, never 0: no other image of any node at any time has it.
		virtual uint64_t Id() const = 0;
		virtual const std::vector<AppliedPosition> &Positions() const = 0;
		virtual uint64_t Bytes() const = 0;
		//! Reads [offset, offset + size), shorter only at the end.
		virtual Result<std::string> Read(uint64_t offset, size_t size) = 0;
		//! Whether RetainedSnapshots of the next life finds it. False at first; it counts also when the process dies.
		virtual Status Retain(bool keep) = 0;
	};
	virtual Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() = 0;
	//! Retained images of this node's earlier life, as far as their bytes are surely still the same; they are retained
	//! still. What any other image left behind is removed. Once, before the first OpenSnapshot.
	virtual std::vector<std::unique_ptr<SnapshotImage>> RetainedSnapshots() = 0;

	//! Replaces the whole state by a complete, checksummed image file at `path`, which is gone when it was taken.
	//! Refuses another cluster's image, an incompatible format and one older than Applied().
	virtual Status InstallSnapshot(const std::string &path) = 0;
};

} // namespace node
} // namespace quack
