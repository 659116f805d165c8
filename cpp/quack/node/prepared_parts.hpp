//! Parts of transactions that are prepared and not yet released, and their locks. Replicated state: it follows from the
//! logs alone, and the state machine keeps it with the rest (cpp/GROUPS.md, rules 3 to 6).
#pragma once

#include <map>
#include <optional>

#include "quack/node/transaction_entry.hpp"

namespace quack {
namespace node {

struct PreparedPart {
	//! Index of the prepare entry.
	raft::LogIndex index = 0;
	raft::GroupId coordinator = raft::ROOT_GROUP;
	LockSet locks;
	std::string body;
};

//! What clashes: the holder and the table.
struct LockClash {
	TransactionId holder {};
	std::string table;
};

//! The locks of one group.
class LockTable {
public:
	void Acquire(const TransactionId &holder, const LockSet &locks);
	void Release(const TransactionId &holder, const LockSet &locks);
	//! The first clash in the order of `locks`, the same on every node: among several holders the one that prepared
	//! first. Nothing is held by `self` against itself.
	std::optional<LockClash> FindClash(const LockSet &locks, const TransactionId &self) const;
	bool IsEmpty() const {
		return tables.empty();
	}

private:
	struct Held {
		//! In the order of their prepares.
		std::vector<TransactionId> shared;
		std::vector<TransactionId> whole;
		std::vector<TransactionId> writers;
		std::map<uint64_t, TransactionId> rows;
	};
	static const TransactionId *First(const std::vector<TransactionId> &holders, const TransactionId &self);
	static const TransactionId *Clash(const Held &held, const TableLock &lock, const TransactionId &self);

	std::map<std::string, Held> tables;
};

//! Not thread-safe.
class PreparedParts {
public:
	//! The clash that refuses it, or nothing: then it is prepared. A part that is prepared already stays as it is.
	std::optional<LockClash> Prepare(raft::GroupId group, const TransactionId &id, PreparedPart part);
	//! As loaded from a checkpoint: its locks were granted then. In the order of their indexes.
	void Restore(raft::GroupId group, const TransactionId &id, PreparedPart part);
	//! Null when nothing is prepared under that id.
	const PreparedPart *Find(raft::GroupId group, const TransactionId &id) const;
	//! False when there was nothing.
	bool Release(raft::GroupId group, const TransactionId &id);

	//! Whether an entry with these locks must be rejected.
	std::optional<LockClash> FindClash(raft::GroupId group, const LockSet &locks, const TransactionId &self) const;
	//! No part is prepared in the group: no entry can clash.
	bool IsEmpty(raft::GroupId group) const;
	size_t Count() const;

	struct Entry {
		raft::GroupId group;
		TransactionId id;
		raft::LogIndex index;
		raft::GroupId coordinator;
	};
	//! All of them, by group and id.
	std::vector<Entry> List() const;

private:
	struct Group {
		LockTable locks;
		std::map<TransactionId, PreparedPart> parts;
	};
	std::map<raft::GroupId, Group> groups;
};

} // namespace node
} // namespace quack
