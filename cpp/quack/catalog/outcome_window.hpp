//! Outcomes of recent requests of one group, so that a request that arrives twice is applied once. Bounded by log
//! distance, not by count or time, so that every node remembers the same ones.
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>

#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace catalog {

//! An entry's outcome is remembered for this many following entries of its group. A request that was first proposed
//! further back is refused: whether it was applied before can no longer be told.
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
	//! Outcomes come in log order.
	void Add(const CommitOutcome &outcome);
	//! Forgets what lies further than the window behind `applied`.
	void Trim(raft::LogIndex applied);
	const CommitOutcome *Find(const RequestId &id) const;
	void Clear();

private:
	std::deque<RequestId> order;
	std::unordered_map<RequestId, CommitOutcome, RequestIdHash> outcomes;
};

} // namespace catalog
} // namespace quack
