//! Everything one seed decides before a run starts ("swarm": each run enables its own subset of faults, so that rare
//! combinations get their turn). Durations in nanoseconds of true virtual time.
#pragma once

#include <string>

#include "quack/raft/types.hpp"

namespace quack {
namespace sim {

constexpr uint32_t SLOTS_MAX = 8;
constexpr uint32_t NO_SLOT = ~0u;

struct Settings {
	uint64_t seed = 0;

	//! Slots [0, voters) start as voters, then learners, then spares that only a membership change brings in.
	uint32_t voter_count = 3;
	uint32_t learner_count = 0;
	uint32_t spare_count = 0;
	//! self, priority and random_seed are set per node.
	raft::Config config;
	bool varied_priorities = false;
	//! Slot that never campaigns, or NO_SLOT. Never so many that the others are no majority.
	uint32_t zero_priority_slot = NO_SLOT;

	MonotonicNs safety_duration = 0;
	//! After healing, the cluster must converge within this time, plus the time to copy and apply a whole log entry by
	//! entry.
	MonotonicNs liveness_bound = 0;

	MonotonicNs delay_min = 0;
	MonotonicNs delay_max = 0;
	uint32_t loss_permille = 0;
	uint32_t duplicate_permille = 0;
	//! Messages that arrive absurdly late, up to straggler_delay_max.
	uint32_t straggler_permille = 0;
	MonotonicNs straggler_delay_max = 0;
	//! Each link keeps its order (as a byte stream does); else messages overtake each other freely.
	bool fifo_links = false;
	//! How often the sender's transport notices a lost message and says PeerUnreachable.
	uint32_t unreachable_permille = 0;

	//! An interval of 0 means that this fault is off. Faults come at random times in [interval / 2, 3 * interval / 2).
	MonotonicNs partition_interval = 0;
	MonotonicNs partition_duration_max = 0;
	bool one_way_partitions = false;

	MonotonicNs crash_interval = 0;
	MonotonicNs downtime_max = 0;
	//! Crashes that lose nothing (the process dies, the machine lives).
	uint32_t process_crash_percent = 0;

	//! Targeted faults, at the moments that random ones rarely hit: a new leader is cut off from all others within
	//! leader_strike_delay_max after its election; a node loses power while a sync is under way.
	uint32_t leader_strike_percent = 0;
	MonotonicNs leader_strike_delay_max = 0;
	uint32_t sync_strike_permille = 0;
	//! A node crashes, and is soon back, when it has sent or received a piece of an image.
	uint32_t transfer_strike_percent = 0;
	//! Every so often a lease is put to the test: the leader keeps contact to a bare quorum, whose members then go down
	//! for a moment or lose it too, while another node campaigns again and again.
	MonotonicNs lease_attack_interval = 0;

	MonotonicNs sync_latency_min = 0;
	MonotonicNs sync_latency_max = 0;
	//! Syncs that cover what is written until they end; the others cover what was there when they began.
	uint32_t sync_covers_late_percent = 0;
	uint64_t log_cache_bytes = 0;
	uint32_t log_spare_segments_max = 0;
	//! Of the writes and syncs of a node, with the power off inside one of the next few calls to the disk.
	uint32_t power_cut_permille = 0;
	//! The power goes again in the middle of a recovery.
	uint32_t recovery_crash_percent = 0;
	//! Of the power losses, with a bit flipped in the unsynced end of the log.
	uint32_t unsynced_flip_percent = 0;
	//! Bits of acknowledged records flip at crashes and in running nodes. One disk at a time, and only where the others
	//! are a majority: such a node comes back empty as another one, which the leader puts in its place.
	uint32_t crash_rot_percent = 0;
	MonotonicNs rot_interval = 0;
	MonotonicNs slow_disk_interval = 0;
	MonotonicNs slow_disk_duration_max = 0;
	uint32_t slow_disk_factor = 1;

	//! Node clocks run at rates within +-drift_ppm / 2, so that two of them differ by at most drift_ppm, which is at
	//! most config.clock_drift_ppm.
	uint32_t drift_ppm = 0;
	MonotonicNs drift_change_interval = 0;
	MonotonicNs pause_interval = 0;
	MonotonicNs pause_max = 0;

	MonotonicNs membership_interval = 0;
	MonotonicNs transfer_interval = 0;
	MonotonicNs campaign_interval = 0;

	MonotonicNs checkpoint_interval = 0;
	MonotonicNs checkpoint_latency = 0;
	//! Entries kept before a checkpoint for slow followers.
	uint32_t checkpoint_tail = 0;
	//! A checkpoint may become durable before the log it covers does; recovery then resets the log to it.
	bool checkpoint_may_pass_log = false;
	size_t snapshot_chunk_bytes = 0;
	//! The receiver gives up a call after this, and asks again after the pause.
	MonotonicNs snapshot_call_timeout = 0;
	MonotonicNs snapshot_retry_pause = 0;
	//! The source forgets an image that nobody asked about for so long.
	MonotonicNs snapshot_idle_timeout = 0;
	//! The same while a peer has not all of it.
	MonotonicNs snapshot_resume_timeout = 0;
	//! The source answers at most so much of a chunk, as one with a rate limit does.
	uint64_t snapshot_piece_bytes_max = 0;
	//! The receiver writes down what it holds after so many pieces.
	uint64_t snapshot_record_interval = 1;
	//! The receiver gives up a source that gives nothing for so long.
	MonotonicNs snapshot_source_patience = 0;

	MonotonicNs apply_latency_max = 0;
	//! Tell the core only of the last of several appends that one sync made durable.
	bool coalesce_completions = false;
	//! Tick only at NextDeadline() instead of every heartbeat_interval / 2 as well.
	bool sparse_ticks = false;

	uint32_t client_count = 1;
	uint32_t key_count = 1;
	uint32_t read_percent = 0;
	uint32_t cas_percent = 0;
	//! Proposals that one client hands over in one ProposeEvent.
	uint32_t batch_max = 1;
	MonotonicNs think_max = 0;
	MonotonicNs op_timeout = 0;
	uint32_t payload_padding_max = 0;
	//! How likely a client goes to the last known leader rather than to a random node.
	uint32_t leader_affinity_percent = 0;

	uint32_t SlotCount() const {
		return voter_count + learner_count + spare_count;
	}
	//! How long a node that is quiet may go on counting on a leader that is gone: two election timeouts on the slowest
	//! clock, and whatever was under way.
	MonotonicNs SilencePatience() const {
		auto late = straggler_permille > 0 ? straggler_delay_max : 25 * delay_max;
		return config.election_timeout * 5 / 2 + late;
	}
	//! One `name=value` per setting, for the person who replays a seed.
	std::string ToString() const;
};

//! Pure function of the seed.
Settings DrawSettings(uint64_t seed);

} // namespace sim
} // namespace quack
