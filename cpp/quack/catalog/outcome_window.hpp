//! Outcomes of recent requests, so that a request that arrives twice is applied once. Each group remembers its own,
//! bounded by log distance, not by count or time, so that every node remembers the same ones.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace catalog {

//! An entry's outcome is remembered for this many following entries of its group.
constexpr raft::LogIndex OUTCOME_WINDOW = 65536;

struct RequestIdHash {
	size_t operator()(const RequestId &id) const {
		size_t hash = 0;
		for (size_t i = 0; i < sizeof(size_t); i++) {
			hash = (hash << 8) | id[i];
		}
		return hash;
	}
};

//! Not thread-safe.
class OutcomeWindow {
public:
	//! Outcomes come in the order of their group's log.
	void Add(const CommitOutcome &outcome);
	//! Forgets what lies further than the window behind `applied`.
	void Trim(raft::GroupId group, raft::LogIndex applied);
	//! What the entry at `index` of the group finds: independent of how far Trim has come. Null = nothing.
	const CommitOutcome *Find(const RequestId &id, raft::GroupId group, raft::LogIndex index) const;
	//! In whatever group: the commit, if one knows it, else a rejection. Nothing = not known.
	std::optional<CommitOutcome> FindAnywhere(const RequestId &id) const;

	//! The entry at `index` of the group may find a request forgotten whose base is below this number.
	uint64_t UnknownBelow(raft::GroupId group, raft::LogIndex index) const;
	//! Of what Trim has forgotten; kept with the state.
	std::map<raft::GroupId, uint64_t> Forgotten() const;
	void RestoreForgotten(raft::GroupId group, uint64_t unknown_below);
	void Clear();

private:
	struct Group {
		std::deque<RequestId> order;
		std::unordered_map<RequestId, CommitOutcome, RequestIdHash> outcomes;
		uint64_t unknown_below = 0;
	};
	std::map<raft::GroupId, Group> groups;
};

} // namespace catalog
} // namespace quack
