//! What the node asks of the replicated state. Implemented by `catalog` over DuckDB and by tests in memory.
#pragma once

#include <string>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace node {

struct CommittedEntry {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::Entry entry; //! any type: no-ops and memberships only advance the applied vector
};

//! One group's place in the applied vector.
struct AppliedPosition {
	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
	raft::Term term = 0;
	raft::Membership membership; //! in force at index
};

//! Threads: Apply, Checkpoint and InstallSnapshot from one apply thread; the rest from any.
class StateMachine {
public:
	virtual ~StateMachine() = default;

	//! Applies in order, as few or as many transactions as it likes; effects and applied vector in one transaction. Ok
	//! also when entries were deterministically rejected (constraint, conflict). A failure latches the node degraded.
	virtual Status Apply(const std::vector<CommittedEntry> &entries) = 0;

	//! What the running database holds now.
	virtual std::vector<AppliedPosition> Applied() const = 0;

	//! What would survive a power cut now: the positions of the last finished checkpoint. The log is kept from there.
	virtual std::vector<AppliedPosition> Durable() const = 0;

	//! Makes the state at some index >= Applied() at the call durable, without stopping Apply for long.
	virtual Status Checkpoint() = 0;

	//! A file image of a past state, kept readable until the object dies.
	class SnapshotImage {
	public:
		virtual ~SnapshotImage() = default;
		virtual const std::vector<AppliedPosition> &Positions() const = 0;
		virtual uint64_t Bytes() const = 0;
		//! Reads [offset, offset + size), shorter only at the end.
		virtual Result<std::string> Read(uint64_t offset, size_t size) = 0;
	};
	virtual Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() = 0;

	//! Replaces the whole state by a complete, checksummed image file at `path` (consumed). Refuses another cluster's
	//! image, an incompatible format and one older than Applied().
	virtual Status InstallSnapshot(const std::string &path) = 0;
};

} // namespace node
} // namespace quack
