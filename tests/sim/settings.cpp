#include "sim/settings.hpp"

#include <algorithm>
#include <sstream>

#include "quack/common/prng.hpp"

namespace quack {
namespace sim {

namespace {

//! Uniform in [low, high].
uint64_t Between(Prng &prng, uint64_t low, uint64_t high) {
	return low + prng.Below(high - low + 1);
}

template <class T>
T Pick(Prng &prng, std::initializer_list<T> choices) {
	return choices.begin()[prng.Below(choices.size())];
}

//! A fault interval in [low, high], or 0 = off with probability 1 - percent / 100.
MonotonicNs Interval(Prng &prng, uint32_t percent, MonotonicNs low, MonotonicNs high) {
	auto value = static_cast<MonotonicNs>(Between(prng, low, high));
	return prng.Chance(percent, 100) ? value : 0;
}

void DrawCluster(Prng &prng, Settings &s) {
	s.voter_count = Pick<uint32_t>(prng, {1, 2, 3, 3, 3, 3, 4, 5, 5});
	s.learner_count = prng.Chance(1, 4) ? static_cast<uint32_t>(Between(prng, 1, 2)) : 0;
	auto &config = s.config;
	config.election_timeout = Pick<MonotonicNs>(prng, {100, 300, 1000}) * NS_PER_MS;
	config.heartbeat_interval = config.election_timeout / Pick<MonotonicNs>(prng, {3, 4, 5, 10});
	config.clock_drift_ppm = Pick<uint32_t>(prng, {0, 500, 10000, 10000, 50000});
	config.lease_reads = prng.Chance(2, 3);
	config.append_bytes_max = Pick<size_t>(prng, {64, 512, 1024 * 1024});
	config.append_entries_max = Pick<size_t>(prng, {1, 4, 1024});
	config.inflight_messages_max = Pick<size_t>(prng, {1, 2, 8, 64});
	config.inflight_bytes_max = Pick<size_t>(prng, {256, 16 * 1024 * 1024});
	config.uncommitted_bytes_max = Pick<size_t>(prng, {512, 64 * 1024 * 1024});
	config.pending_reads_max = Pick<size_t>(prng, {2, 4096});
	s.varied_priorities = prng.Chance(1, 3);
	bool zero_priority = s.voter_count >= 3 && prng.Chance(1, 8);
	s.zero_priority_slot = zero_priority ? static_cast<uint32_t>(prng.Below(s.voter_count)) : NO_SLOT;
	config.committed_bytes_max = Pick<size_t>(prng, {1, 100, 4 * 1024 * 1024});
	config.unapplied_bytes_max = Pick<size_t>(prng, {1, 300, 64 * 1024 * 1024, 64 * 1024 * 1024});
	config.quiet_after = config.election_timeout / Pick<MonotonicNs>(prng, {1, 4, 20}) * (prng.Chance(2, 3) ? 1 : 0);
	s.sparse_ticks = prng.Chance(1, 2);
	s.coalesce_completions = prng.Chance(1, 2);
}

void DrawNetwork(Prng &prng, Settings &s) {
	MonotonicNs timeout = s.config.election_timeout;
	s.delay_min = timeout / Pick<MonotonicNs>(prng, {2000, 500, 100});
	s.delay_max = s.delay_min + timeout / Pick<MonotonicNs>(prng, {1000, 100, 30, 12});
	s.loss_permille = prng.Chance(1, 2) ? static_cast<uint32_t>(Between(prng, 1, 200)) : 0;
	s.duplicate_permille = prng.Chance(1, 2) ? static_cast<uint32_t>(Between(prng, 1, 150)) : 0;
	s.straggler_permille = prng.Chance(1, 2) ? static_cast<uint32_t>(Between(prng, 1, 60)) : 0;
	s.straggler_delay_max = timeout * Pick<MonotonicNs>(prng, {1, 3, 8});
	s.fifo_links = prng.Chance(1, 3);
	s.unreachable_permille = Pick<uint32_t>(prng, {0, 300, 1000});
	s.partition_interval = Interval(prng, 60, timeout * 2, timeout * 8);
	s.partition_duration_max = timeout * Pick<MonotonicNs>(prng, {1, 3, 6});
	s.one_way_partitions = prng.Chance(1, 2);
}

void DrawNodeFaults(Prng &prng, Settings &s) {
	MonotonicNs timeout = s.config.election_timeout;
	s.crash_interval = Interval(prng, 60, timeout, timeout * 8);
	auto downtime = timeout * Pick<MonotonicNs>(prng, {1, 3, 6}); // one draw per statement: the order is then defined
	s.downtime_max = downtime / Pick<MonotonicNs>(prng, {1, 1, 10});
	s.process_crash_percent = Pick<uint32_t>(prng, {0, 30, 100});
	s.leader_strike_percent = Pick<uint32_t>(prng, {0, 0, 0, 50, 95});
	s.leader_strike_delay_max = s.delay_max * Pick<MonotonicNs>(prng, {2, 6, 20});
	s.sync_strike_permille = Pick<uint32_t>(prng, {0, 0, 3, 30, 150});
	s.transfer_strike_percent = Pick<uint32_t>(prng, {0, 0, 5, 25});
	s.lease_attack_interval = Interval(prng, 25, timeout * 3, timeout * 6);
	s.sync_latency_min = timeout / Pick<MonotonicNs>(prng, {5000, 1000, 200});
	s.sync_latency_max = s.sync_latency_min + timeout / Pick<MonotonicNs>(prng, {1000, 100, 20});
	s.slow_disk_interval = Interval(prng, 40, timeout * 2, timeout * 8);
	s.slow_disk_duration_max = timeout * Pick<MonotonicNs>(prng, {1, 4});
	s.slow_disk_factor = Pick<uint32_t>(prng, {5, 30, 100});
	s.drift_ppm = prng.Chance(1, 2) ? s.config.clock_drift_ppm : 0;
	s.drift_change_interval = Interval(prng, 50, timeout, timeout * 6);
	s.pause_interval = Interval(prng, 40, timeout, timeout * 8);
	s.pause_max = timeout * Pick<MonotonicNs>(prng, {1, 3, 5});
}

void DrawOperations(Prng &prng, Settings &s) {
	MonotonicNs timeout = s.config.election_timeout;
	s.membership_interval = Interval(prng, 40, timeout, timeout * 6);
	if (s.membership_interval != 0) {
		s.spare_count = static_cast<uint32_t>(Between(prng, 0, std::min(3u, SLOTS_MAX - s.SlotCount())));
	}
	s.transfer_interval = Interval(prng, 35, timeout, timeout * 8);
	s.campaign_interval = Interval(prng, 25, timeout, timeout * 8);
	s.checkpoint_interval = Interval(prng, 60, timeout / 2, timeout * 6);
	s.checkpoint_latency = timeout / Pick<MonotonicNs>(prng, {5000, 100, 4, 1});
	s.checkpoint_tail = Pick<uint32_t>(prng, {0, 2, 20});
	s.checkpoint_may_pass_log = prng.Chance(1, 2);
	s.snapshot_chunk_bytes = Pick<size_t>(prng, {32, 200, 1024 * 1024});
	s.snapshot_call_timeout = timeout / Pick<MonotonicNs>(prng, {1, 2});
	s.snapshot_retry_pause = timeout / 20;
	s.snapshot_idle_timeout = timeout * Pick<MonotonicNs>(prng, {1, 4});
	s.snapshot_resume_timeout = s.snapshot_idle_timeout * Pick<MonotonicNs>(prng, {1, 10});
	s.snapshot_piece_bytes_max = Pick<uint64_t>(prng, {100, UINT64_MAX});
	s.snapshot_record_interval = Pick<uint64_t>(prng, {1, 3});
	s.snapshot_source_patience = timeout * Pick<MonotonicNs>(prng, {1, 10});
	s.apply_latency_max = timeout / Pick<MonotonicNs>(prng, {1000, 50, 3});
}

void DrawWorkload(Prng &prng, Settings &s) {
	MonotonicNs timeout = s.config.election_timeout;
	s.client_count = static_cast<uint32_t>(Between(prng, 1, 6));
	s.key_count = static_cast<uint32_t>(Between(prng, 1, 4));
	s.read_percent = Pick<uint32_t>(prng, {10, 40, 70});
	s.cas_percent = Pick<uint32_t>(prng, {0, 10, 30});
	s.batch_max = Pick<uint32_t>(prng, {1, 1, 4});
	s.think_max = 16 * timeout / Pick<MonotonicNs>(prng, {320, 48, 16, 4, 1});
	s.op_timeout = timeout * Pick<MonotonicNs>(prng, {1, 3, 8});
	s.payload_padding_max = Pick<uint32_t>(prng, {0, 16, 200});
	s.leader_affinity_percent = Pick<uint32_t>(prng, {20, 60, 90});
}

//! Of the real log below each node. Some runs carry entries that fill segments quickly.
void DrawLog(Prng &prng, Settings &s) {
	s.sync_covers_late_percent = Pick<uint32_t>(prng, {0, 50, 100});
	s.log_cache_bytes = Pick<uint64_t>(prng, {0, 2000, 1024 * 1024});
	s.log_spare_segments_max = Pick<uint32_t>(prng, {0, 1, 2});
	s.recovery_crash_percent = Pick<uint32_t>(prng, {0, 0, 30});
	if (prng.Chance(1, 3)) {
		s.payload_padding_max = 4000;
	}
	s.power_cut_permille = Pick<uint32_t>(prng, {0, 2, 20});
	s.unsynced_flip_percent = Pick<uint32_t>(prng, {0, 20, 50});
	auto crash_rot_percent = Pick<uint32_t>(prng, {0, 5, 30});
	MonotonicNs rot_interval = Interval(prng, 50, s.config.election_timeout * 3, s.config.election_timeout * 10);
	// Other changes of membership would bring back the name of a lost disk; see Settings::crash_rot_percent.
	if (s.membership_interval == 0 && s.zero_priority_slot == NO_SLOT) {
		s.crash_rot_percent = crash_rot_percent;
		s.rot_interval = rot_interval;
	}
}

//! Lets nothing disturb the attack on a lease: the moments between its end and its promise are short, and any other
//! fault or traffic hides them.
void FocusOnLeases(Prng &prng, Settings &s) {
	MonotonicNs timeout = s.config.election_timeout;
	s.voter_count = 3 + 2 * static_cast<uint32_t>(prng.Below(2));
	s.learner_count = 0;
	s.spare_count = 0;
	s.zero_priority_slot = NO_SLOT;
	s.config.clock_drift_ppm = Pick<uint32_t>(prng, {0, 10000, 50000});
	s.drift_ppm = s.config.clock_drift_ppm;
	s.drift_change_interval = 0;
	s.config.lease_reads = true;
	s.lease_attack_interval = timeout * 3;
	s.delay_min = timeout / 2000;
	s.delay_max = timeout / 1000;
	s.sync_latency_min = timeout / 2000;
	s.sync_latency_max = timeout / 1000;
	s.loss_permille = 0;
	s.duplicate_permille = 0;
	s.straggler_permille = 0;
	s.leader_strike_percent = 0;
	s.sync_strike_permille = 0;
	s.transfer_strike_percent = 0;
	s.crash_rot_percent = 0;
	s.power_cut_permille = 0;
	for (auto interval : {&s.partition_interval, &s.crash_interval, &s.pause_interval, &s.slow_disk_interval,
	                      &s.transfer_interval, &s.campaign_interval, &s.membership_interval, &s.rot_interval}) {
		*interval = 0;
	}
	s.client_count = 1;
	s.think_max = timeout;
}

} // namespace

Settings DrawSettings(uint64_t seed) {
	Prng prng(seed ^ 0x5e77196500000001ULL);
	Settings s;
	s.seed = seed;
	DrawCluster(prng, s);
	DrawNetwork(prng, s);
	DrawNodeFaults(prng, s);
	DrawOperations(prng, s);
	DrawWorkload(prng, s);
	DrawLog(prng, s);
	if (prng.Chance(1, 15)) {
		FocusOnLeases(prng, s);
	}
	s.safety_duration = s.config.election_timeout * static_cast<MonotonicNs>(Between(prng, 15, 45));
	s.liveness_bound = s.config.election_timeout * 60;
	return s;
}

std::string Settings::ToString() const {
	std::ostringstream out;
	auto ms = [](MonotonicNs value) {
		return static_cast<double>(value) / NS_PER_MS;
	};
	out << "seed=" << seed << "\n  cluster: voters=" << voter_count << " learners=" << learner_count
	    << " spares=" << spare_count << " varied_priorities=" << varied_priorities
	    << " zero_priority_slot=" << static_cast<int32_t>(zero_priority_slot)
	    << "\n  config: election_timeout_ms=" << ms(config.election_timeout)
	    << " heartbeat_interval_ms=" << ms(config.heartbeat_interval) << " clock_drift_ppm=" << config.clock_drift_ppm
	    << " lease_reads=" << config.lease_reads << " append_bytes_max=" << config.append_bytes_max
	    << " append_entries_max=" << config.append_entries_max
	    << " inflight_messages_max=" << config.inflight_messages_max
	    << " inflight_bytes_max=" << config.inflight_bytes_max
	    << " uncommitted_bytes_max=" << config.uncommitted_bytes_max << " quiet_after_ms=" << ms(config.quiet_after)
	    << " pending_reads_max=" << config.pending_reads_max << " committed_bytes_max=" << config.committed_bytes_max
	    << " unapplied_bytes_max=" << config.unapplied_bytes_max << " sparse_ticks=" << sparse_ticks
	    << " coalesce_completions=" << coalesce_completions << "\n  phases: safety_ms=" << ms(safety_duration)
	    << " liveness_bound_ms=" << ms(liveness_bound) << "\n  network: delay_ms=" << ms(delay_min) << ".."
	    << ms(delay_max) << " loss_permille=" << loss_permille << " duplicate_permille=" << duplicate_permille
	    << " straggler_permille=" << straggler_permille << " straggler_delay_max_ms=" << ms(straggler_delay_max)
	    << " fifo_links=" << fifo_links << " unreachable_permille=" << unreachable_permille
	    << " partition_interval_ms=" << ms(partition_interval)
	    << " partition_duration_max_ms=" << ms(partition_duration_max) << " one_way_partitions=" << one_way_partitions
	    << "\n  crash: interval_ms=" << ms(crash_interval) << " downtime_max_ms=" << ms(downtime_max)
	    << " process_crash_percent=" << process_crash_percent << " leader_strike_percent=" << leader_strike_percent
	    << " leader_strike_delay_max_ms=" << ms(leader_strike_delay_max)
	    << " transfer_strike_percent=" << transfer_strike_percent << " sync_strike_permille=" << sync_strike_permille
	    << " lease_attack_interval_ms=" << ms(lease_attack_interval)
	    << "\n  disk: sync_latency_ms=" << ms(sync_latency_min) << ".." << ms(sync_latency_max)
	    << " slow_disk_interval_ms=" << ms(slow_disk_interval)
	    << " slow_disk_duration_max_ms=" << ms(slow_disk_duration_max) << " slow_disk_factor=" << slow_disk_factor
	    << " sync_covers_late_percent=" << sync_covers_late_percent << " log_cache_bytes=" << log_cache_bytes
	    << " log_spare_segments_max=" << log_spare_segments_max << " recovery_crash_percent=" << recovery_crash_percent
	    << " power_cut_permille=" << power_cut_permille << " unsynced_flip_percent=" << unsynced_flip_percent
	    << " crash_rot_percent=" << crash_rot_percent << " rot_interval_ms=" << ms(rot_interval)
	    << "\n  clock: drift_ppm=" << drift_ppm << " drift_change_interval_ms=" << ms(drift_change_interval)
	    << " pause_interval_ms=" << ms(pause_interval) << " pause_max_ms=" << ms(pause_max)
	    << "\n  operations: membership_interval_ms=" << ms(membership_interval)
	    << " transfer_interval_ms=" << ms(transfer_interval) << " campaign_interval_ms=" << ms(campaign_interval)
	    << " checkpoint_interval_ms=" << ms(checkpoint_interval) << " checkpoint_latency_ms=" << ms(checkpoint_latency)
	    << " checkpoint_tail=" << checkpoint_tail << " checkpoint_may_pass_log=" << checkpoint_may_pass_log
	    << " snapshot_chunk_bytes=" << snapshot_chunk_bytes << " snapshot_call_timeout_ms=" << ms(snapshot_call_timeout)
	    << " snapshot_retry_pause_ms=" << ms(snapshot_retry_pause)
	    << " snapshot_idle_timeout_ms=" << ms(snapshot_idle_timeout)
	    << " snapshot_resume_timeout_ms=" << ms(snapshot_resume_timeout)
	    << " snapshot_piece_bytes_max=" << snapshot_piece_bytes_max
	    << " snapshot_record_interval=" << snapshot_record_interval
	    << " snapshot_source_patience_ms=" << ms(snapshot_source_patience)
	    << " apply_latency_max_ms=" << ms(apply_latency_max) << "\n  workload: clients=" << client_count
	    << " keys=" << key_count << " read_percent=" << read_percent << " cas_percent=" << cas_percent
	    << " batch_max=" << batch_max << " think_max_ms=" << ms(think_max) << " op_timeout_ms=" << ms(op_timeout)
	    << " payload_padding_max=" << payload_padding_max << " leader_affinity_percent=" << leader_affinity_percent
	    << "\n";
	return out.str();
}

} // namespace sim
} // namespace quack
