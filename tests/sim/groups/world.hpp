//! A cluster of nodes that run many groups, as the simulation of groups sees it. A log is a sequence that only grows at
//! its end: what Raft gives (quack_sim looks after that), and all that is assumed of it here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/node/apply_order.hpp"
#include "quack/node/transaction_driver.hpp"
#include "quack/node/transaction_finisher.hpp"
#include "sim/groups/machine.hpp"

namespace quack {
namespace sim {
namespace groups {

//! What a batch of seeds has seen; a number that stays 0 makes a large batch fail.
struct Coverage {
	uint64_t transfers = 0;
	uint64_t over_groups = 0;       //! of them
	uint64_t conflicts = 0;         //! attempts that were rejected
	uint64_t schema_changes = 0;    //! committed ALTERs
	uint64_t moves = 0;             //! committed SET GROUPS and SET GROUP
	uint64_t moves_over_groups = 0; //! of a table that lived outside of the root group
	uint64_t rows_come_and_go = 0;
	uint64_t crashes = 0;
	uint64_t images = 0; //! installed
	uint64_t leader_changes = 0;
	uint64_t sessions_lost = 0;
	uint64_t asked_committed = 0; //! outcomes found by another node
	uint64_t asked_refused = 0;
	uint64_t given_up = 0;
	uint64_t finished_by_leader = 0; //! releases and void entries by the leader of a group
	uint64_t waits = 0;              //! entries that waited for another group

	void Add(const Coverage &other);
	//! Each number with its name. `Self`: Coverage, const or not.
	template <class Self, class F>
	static void Visit(Self &self, F &&take) {
		take("transfers", self.transfers);
		take("over_groups", self.over_groups);
		take("conflicts", self.conflicts);
		take("schema_changes", self.schema_changes);
		take("moves", self.moves);
		take("moves_over_groups", self.moves_over_groups);
		take("rows_come_and_go", self.rows_come_and_go);
		take("crashes", self.crashes);
		take("images", self.images);
		take("leader_changes", self.leader_changes);
		take("sessions_lost", self.sessions_lost);
		take("asked_committed", self.asked_committed);
		take("asked_refused", self.asked_refused);
		take("given_up", self.given_up);
		take("finished_by_leader", self.finished_by_leader);
		take("waits", self.waits);
	}
};

struct RunResult {
	//! Empty: nothing was found. "<checker>: <what>".
	std::string violation;
	uint64_t trace_hash = 0;
	Coverage coverage;
};

//! Runs one seed. `trace`: every event goes to standard error.
RunResult RunSeed(uint64_t seed, const Sabotage &sabotage, bool trace);

} // namespace groups
} // namespace sim
} // namespace quack
