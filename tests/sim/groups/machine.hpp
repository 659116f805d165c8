//! One node's replicated state in the simulation of groups: a small bank that keeps the rules of cpp/GROUPS.md with the
//! parts that the catalog is made of (placements, prepared parts, entries), and nothing of DuckDB.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "quack/catalog/placements.hpp"
#include "quack/node/prepared_parts.hpp"
#include "quack/node/state_machine.hpp"

namespace quack {
namespace sim {
namespace groups {

//! Rules that may be broken, to show that the checkers notice.
struct Sabotage {
	bool skip_fence = false;         //! a table moves without entries in the groups it leaves
	bool part_applied_early = false; //! a prepare makes its part visible
	bool locks_dropped = false;      //! a change of leaders drops the locks of a group
	bool needs_ignored = false;      //! a data entry applies before the definitions that it was planned on
	bool void_forgotten = false;     //! a transaction that was given up may still be decided
	bool release_early = false;      //! a release gives the locks back before the outcome is applied
	bool versions_unchecked = false; //! an entry that was planned on older definitions applies
};

struct Row {
	int64_t value = 0;
	//! Changes since it was inserted.
	uint64_t version = 0;
	//! Columns of its table when it was written, or added since.
	uint32_t columns = 0;

	bool operator==(const Row &other) const {
		return value == other.value && version == other.version && columns == other.columns;
	}
};

enum class EffectKind : uint8_t { Insert = 1, Delete, Update, Alter, Place, Fence };

struct Effect {
	EffectKind kind = EffectKind::Fence;
	std::string table;
	uint64_t key = 0;
	Row before; //! Delete, Update
	Row after;  //! Insert, Update
	//! Place: so many groups by the key; 0 = the root group, 1 with a name = pinned.
	uint32_t group_count = 0;
	std::string group_name;
};

//! What one part does, and what it was planned on.
struct Body {
	node::TransactionId id {};
	raft::LogIndex planned_version = 0;
	std::vector<Effect> effects; //! none: a void entry
};

std::string EncodeData(const Body &body);
Body DecodeBody(ByteView bytes);
//! Tables first, then rows (rule 4).
node::LockSet TableLocksOf(const std::vector<Effect> &effects);
void AddRowLocksOf(const std::vector<Effect> &effects, node::LockSet &locks);

struct Table {
	std::map<uint64_t, Row> rows;
	uint32_t columns = 1;
};

//! What became of a request in one group.
struct Verdict {
	raft::LogIndex index = 0;
	std::string refusal; //! empty: committed, or granted
	bool IsOk() const {
		return refusal.empty();
	}
};

class Machine {
public:
	using Key = std::pair<raft::GroupId, node::TransactionId>;
	//! Told what became of a prepare: a refused one leaves nothing that one could look up.
	using Listener = std::function<void(raft::GroupId, const node::TransactionId &, const Verdict &)>;

	explicit Machine(const Sabotage &sabotage_p) : sabotage(sabotage_p) {
	}

	void Create(const std::string &table);
	//! Returns what it came to, for the comparison of nodes.
	std::string Apply(const node::CommittedEntry &entry, const Listener &listener);
	std::vector<node::Position> Needs(const node::CommittedEntry &entry) const;

	std::vector<node::GroupDefinition> Definitions() const;
	std::vector<node::AppliedPosition> Positions() const;
	raft::GroupId GroupOf(const std::string &table, uint64_t key) const;
	const Verdict *Find(const Key &key) const;
	//! A leader has changed; a healthy machine does nothing.
	void OnLeaderChange(raft::GroupId group);
	//! All of it, as text.
	std::string Dump() const;

	std::map<std::string, Table> tables;
	catalog::Placements placements;
	node::PreparedParts prepared;
	raft::LogIndex catalog_version = 0;
	std::map<raft::GroupId, raft::LogIndex> applied;
	//! Something that cannot be: empty = nothing was seen.
	std::string violation;

private:
	std::string ApplyData(raft::GroupId group, raft::LogIndex index, const Body &body);
	std::string ApplyPrepare(raft::GroupId group, raft::LogIndex index, const node::TransactionEntry &entry,
	                         const Listener &listener);
	std::string ApplyDecision(raft::GroupId group, raft::LogIndex index, const node::TransactionEntry &entry);
	std::string ApplyRelease(raft::GroupId group, const node::TransactionEntry &entry);
	std::string Check(raft::GroupId group, const Body &body, bool is_prepare, node::LockSet &locks) const;
	std::string Merge(const node::TransactionEntry &decision, std::vector<Effect> &effects) const;
	//! Empty when done, else nothing was changed.
	std::string Execute(std::vector<Effect> effects, raft::LogIndex index);
	struct Before {
		std::string table;
		uint64_t key = 0;
		std::optional<Row> row; //! none: it was not there
	};
	std::string ExecuteRow(const Effect &effect, std::vector<Before> &undo);
	void Place(const Effect &effect, raft::LogIndex index);
	std::string Conclude(raft::GroupId group, const node::TransactionId &id, Verdict verdict);

	Sabotage sabotage;
	std::map<std::string, raft::LogIndex> table_versions;
	std::map<Key, Verdict> outcomes;
	std::set<raft::GroupId> unlocked; //! by sabotage
};

} // namespace groups
} // namespace sim
} // namespace quack
