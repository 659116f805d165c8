//! In which order the committed entries of many groups are applied (cpp/GROUPS.md, rules 1 and 2). No IO, no clock, no
//! thread: the apply loop and the simulator drive it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/node/state_machine.hpp"

namespace quack {
namespace node {

//! Holds committed entries per group and hands them out in batches. Within a group in order; an entry only when all
//! that it needs in other groups is applied or comes before it in the same batch. A group whose first entry waits does
//! not hold up the others, and no group is served twice while another one could be. One thread.
class ApplyOrder {
public:
	//! One batch takes at most this much, but at least one entry.
	struct Limits {
		size_t bytes_max = 8 * 1024 * 1024;
		size_t entries_max = 4096;
	};
	using NeedsOf = std::function<std::vector<Position>(const CommittedEntry &)>;

	struct Batch {
		std::vector<CommittedEntry> entries;
		//! Per group the last index that this batch disposes of. Entries that the state held already are skipped, so
		//! there may be positions without entries.
		std::vector<Position> reached;
		size_t bytes = 0; //! Cost of `entries`

		bool Empty() const {
			return reached.empty();
		}
	};

	//! The first entry of a group, which cannot be applied yet.
	struct WaitingHead {
		Position entry;
		Position need;              //! the first one that is not met
		raft::LogIndex applied = 0; //! where the needed group stands
		//! "index 7 of group 3 waits for index 12 of group 5, which is applied up to 9"
		std::string Words() const;
	};
	//! What is held of one group.
	struct Held {
		raft::GroupId group = raft::ROOT_GROUP;
		size_t count = 0;
		size_t bytes = 0;
		std::optional<WaitingHead> head; //! none: the next Take can go on with it, or it was not looked at yet
	};

	ApplyOrder(Limits limits, NeedsOf needs_of);

	//! What the state holds: at the start, and after an image was installed. Entries that it covers are skipped from
	//! now on. Groups that are not named keep their position.
	void SetApplied(const std::vector<AppliedPosition> &positions);
	//! The groups that exist besides the root group. What waits of any other is dropped, and needs in groups that
	//! existed before count as met: a group is retired only after everything in it that others may need.
	void SetGroups(const std::vector<GroupDefinition> &groups);
	//! Consecutive entries that follow what was pushed of this group before, or the position of an installed image.
	void Push(raft::GroupId group, std::vector<raft::Entry> entries);

	//! The next batch; empty when nothing can be applied now. It counts as applied from here on: the caller applies it
	//! before it asks for more.
	Batch Take();

	//! Every group of which something is held, in order of their numbers.
	std::vector<Held> Waiting() const;
	//! Internal when a waiting entry can never be applied, whatever is committed still: it needs something behind
	//! itself, alone or in a circle of groups. The words name the circle.
	Status Check() const;

	//! Where a group stands; 0 for one never heard of.
	raft::LogIndex AppliedIndex(raft::GroupId group) const;
	//! What is held of all groups.
	size_t Count() const {
		return count;
	}
	size_t Bytes() const {
		return bytes;
	}
	//! What an entry counts for in a bound of bytes. A no-op costs something too.
	static size_t Cost(const raft::Entry &entry);

private:
	struct Queue {
		std::deque<raft::Entry> entries;
		size_t bytes = 0;
		//! Of the first entry; unset = not asked yet.
		std::optional<std::vector<Position>> needs;
	};

	std::vector<raft::GroupId> Turns() const;
	bool TakeFrom(raft::GroupId group, const Limits &turn, Batch &batch);
	void Pop(Queue &queue);
	bool MayGo(raft::GroupId group, Queue &queue) const;
	static const std::vector<Position> &NeedsIn(const Queue &queue);
	const Position *UnmetNeed(const Queue &queue) const;
	bool IsMet(const Position &need) const;
	bool IsInCircle(raft::GroupId group, std::vector<raft::GroupId> &path, std::set<raft::GroupId> &done) const;

	const Limits limits;
	const NeedsOf needs_of;
	std::map<raft::GroupId, Queue> queues; //! none is empty between calls
	std::map<raft::GroupId, raft::LogIndex> applied;
	std::map<raft::GroupId, raft::LogIndex> reached; //! of the running Take
	std::set<raft::GroupId> existing;
	std::set<raft::GroupId> retired;
	raft::GroupId last_served = 0;
	size_t count = 0;
	size_t bytes = 0;
};

} // namespace node
} // namespace quack
