//! What every part of one run shares. No globals: runs are independent and repeatable.
#pragma once

#include <functional>

#include "quack/raft/raft.hpp"
#include "sim/checkers/durability_checker.hpp"
#include "sim/checkers/election_safety_checker.hpp"
#include "sim/checkers/leader_completeness_checker.hpp"
#include "sim/checkers/log_matching_checker.hpp"
#include "sim/checkers/lost_write_checker.hpp"
#include "sim/checkers/quiescence_checker.hpp"
#include "sim/checkers/read_index_checker.hpp"
#include "sim/checkers/state_machine_safety_checker.hpp"
#include "sim/clock.hpp"
#include "sim/disk.hpp"
#include "sim/network.hpp"
#include "sim/sabotage.hpp"
#include "sim/settings.hpp"
#include "sim/trace.hpp"

namespace quack {
namespace sim {

//! How often a run did what it is meant to exercise; a batch that never did is no evidence.
struct Coverage {
	uint64_t steps = 0;
	uint64_t elections = 0;
	uint64_t commits = 0;
	uint64_t log_conflicts = 0;
	uint64_t crashes = 0;
	uint64_t lost_writes_at_crash = 0;
	uint64_t logs_reset_at_recovery = 0;
	uint64_t partitions = 0;
	uint64_t leaders_struck = 0;
	uint64_t lease_attacks = 0;
	uint64_t pauses = 0;
	uint64_t slow_disks = 0;
	uint64_t memberships_committed = 0;
	uint64_t identities_replaced = 0;
	uint64_t transfers_asked = 0;
	uint64_t log_segments_opened = 0;
	uint64_t log_segments_released = 0;
	uint64_t log_torn_tails = 0;
	uint64_t log_recoveries_interrupted = 0;
	uint64_t log_power_cuts_inside_calls = 0;
	uint64_t log_unsynced_flips = 0;
	uint64_t log_rot_found_by_open = 0;
	uint64_t log_rot_found_by_reader = 0;
	uint64_t disks_replaced = 0;
	uint64_t checkpoints = 0;
	uint64_t snapshots_installed = 0;
	uint64_t snapshot_chunks = 0;
	uint64_t snapshot_chunks_asked_again = 0;
	uint64_t snapshot_fetches_failed = 0;
	uint64_t snapshot_fetches_cut_by_crash = 0;
	uint64_t snapshots_resumed = 0;
	uint64_t snapshots_begun_anew = 0;
	uint64_t snapshot_images_kept = 0;
	uint64_t leaders_gone_quiet = 0;
	uint64_t woken_by_silence = 0;
	uint64_t writes_acknowledged = 0;
	uint64_t writes_refused = 0;
	uint64_t writes_unknown = 0;
	uint64_t reads_on_leader = 0;
	uint64_t reads_under_lease = 0;
	uint64_t reads_on_follower = 0;
	uint64_t messages_sent = 0;
	uint64_t messages_lost = 0;
	uint64_t messages_duplicated = 0;

	void Add(const Coverage &other);
	void Add(const DiskCounters &disk);
	//! Calls visit(name, value) for each counter.
	void ForEach(const std::function<void(const char *, uint64_t)> &visit) const;
};

//! Which checkers watch a run.
enum class CheckLevel : uint8_t {
	All,        //! the seven properties, the core's own invariants, durability of promises, the ReadIndex rule
	Properties, //! only the seven properties: shows that they suffice to notice a broken core
};

struct World {
	World(const Settings &settings_p, const Sabotage &sabotage_p, CheckLevel level_p)
	    : settings(settings_p), sabotage(sabotage_p), level(level_p), network(settings, queue), election_safety(sink),
	      log_matching(sink), leader_completeness(sink), state_machine_safety(sink), lost_write(sink), read_index(sink),
	      durability(sink), quiescence(sink, settings.SilencePatience()) {
	}
	World(const World &) = delete;

	const Settings settings;
	const Sabotage sabotage;
	const CheckLevel level;
	EventQueue queue;
	Network network;
	Trace trace;
	Coverage coverage;

	ViolationSink sink;
	ElectionSafetyChecker election_safety;
	LogMatchingChecker log_matching;
	LeaderCompletenessChecker leader_completeness;
	StateMachineSafetyChecker state_machine_safety;
	LostWriteChecker lost_write;
	ReadIndexChecker read_index;
	DurabilityChecker durability;
	QuiescenceChecker quiescence;

	//! No new faults from now on.
	bool is_healed = false;

	bool ChecksAll() const {
		return level == CheckLevel::All;
	}
};

} // namespace sim
} // namespace quack
