#include "sim/world.hpp"

namespace quack {
namespace sim {

namespace {

struct Counter {
	const char *name;
	uint64_t Coverage::*value;
};

const Counter COUNTERS[] = {
    {"steps", &Coverage::steps},
    {"elections", &Coverage::elections},
    {"commits", &Coverage::commits},
    {"log_conflicts", &Coverage::log_conflicts},
    {"crashes", &Coverage::crashes},
    {"lost_writes_at_crash", &Coverage::lost_writes_at_crash},
    {"logs_reset_at_recovery", &Coverage::logs_reset_at_recovery},
    {"leaders_struck", &Coverage::leaders_struck},
    {"lease_attacks", &Coverage::lease_attacks},
    {"partitions", &Coverage::partitions},
    {"pauses", &Coverage::pauses},
    {"slow_disks", &Coverage::slow_disks},
    {"memberships_committed", &Coverage::memberships_committed},
    {"identities_replaced", &Coverage::identities_replaced},
    {"transfers_asked", &Coverage::transfers_asked},
    {"log_segments_opened", &Coverage::log_segments_opened},
    {"log_segments_released", &Coverage::log_segments_released},
    {"log_torn_tails", &Coverage::log_torn_tails},
    {"log_recoveries_interrupted", &Coverage::log_recoveries_interrupted},
    {"log_power_cuts_inside_calls", &Coverage::log_power_cuts_inside_calls},
    {"log_unsynced_flips", &Coverage::log_unsynced_flips},
    {"log_rot_found_by_open", &Coverage::log_rot_found_by_open},
    {"log_rot_found_by_reader", &Coverage::log_rot_found_by_reader},
    {"disks_replaced", &Coverage::disks_replaced},
    {"checkpoints", &Coverage::checkpoints},
    {"snapshots_installed", &Coverage::snapshots_installed},
    {"snapshot_chunks", &Coverage::snapshot_chunks},
    {"snapshot_chunks_asked_again", &Coverage::snapshot_chunks_asked_again},
    {"snapshot_fetches_failed", &Coverage::snapshot_fetches_failed},
    {"snapshot_fetches_cut_by_crash", &Coverage::snapshot_fetches_cut_by_crash},
    {"snapshots_resumed", &Coverage::snapshots_resumed},
    {"snapshots_begun_anew", &Coverage::snapshots_begun_anew},
    {"snapshot_images_kept", &Coverage::snapshot_images_kept},
    {"leaders_gone_quiet", &Coverage::leaders_gone_quiet},
    {"woken_by_silence", &Coverage::woken_by_silence},
    {"writes_acknowledged", &Coverage::writes_acknowledged},
    {"writes_refused", &Coverage::writes_refused},
    {"writes_unknown", &Coverage::writes_unknown},
    {"reads_on_leader", &Coverage::reads_on_leader},
    {"reads_under_lease", &Coverage::reads_under_lease},
    {"reads_on_follower", &Coverage::reads_on_follower},
    {"messages_sent", &Coverage::messages_sent},
    {"messages_lost", &Coverage::messages_lost},
    {"messages_duplicated", &Coverage::messages_duplicated},
};

} // namespace

void Coverage::Add(const Coverage &other) {
	for (const auto &counter : COUNTERS) {
		this->*counter.value += other.*counter.value;
	}
}

void Coverage::Add(const DiskCounters &disk) {
	log_segments_opened += disk.segments_opened;
	log_segments_released += disk.segments_released;
	log_torn_tails += disk.torn_tails;
	log_recoveries_interrupted += disk.recoveries_interrupted;
	log_power_cuts_inside_calls += disk.power_cuts_inside_calls;
	log_unsynced_flips += disk.unsynced_flips;
	log_rot_found_by_open += disk.rot_found_by_open;
	log_rot_found_by_reader += disk.rot_found_by_reader;
}

void Coverage::ForEach(const std::function<void(const char *, uint64_t)> &visit) const {
	for (const auto &counter : COUNTERS) {
		visit(counter.name, this->*counter.value);
	}
}

} // namespace sim
} // namespace quack
