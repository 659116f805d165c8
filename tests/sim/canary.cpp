#include "sim/canary.hpp"

namespace quack {
namespace sim {

const std::vector<Canary> &Canaries() {
	static const std::vector<Canary> all = {
	    {"commit_old_term_by_count", &Sabotage::commit_old_term_by_count},
	    {"vote_without_persisted_term", &Sabotage::vote_without_persisted_term},
	    {"lease_without_check_quorum", &Sabotage::lease_without_check_quorum},
	    {"truncate_committed_suffix", &Sabotage::truncate_committed_suffix},
	    {"acknowledge_before_sync", &Sabotage::acknowledge_before_sync},
	    {"apply_past_commit", &Sabotage::apply_past_commit},
	    {"vote_for_stale_log", &Sabotage::vote_for_stale_log},
	    {"vote_twice_per_term", &Sabotage::vote_twice_per_term},
	    {"quiet_with_follower_behind", &Sabotage::quiet_with_follower_behind},
	    {"ignore_silence", &Sabotage::ignore_silence},
	    {"skip_log_sync", &Sabotage::skip_log_sync},
	    {"skip_checksum", &Sabotage::skip_checksum},
	    {"apply_before_durable", &Sabotage::apply_before_durable},
	    {"install_backwards", &Sabotage::install_backwards},
	    {"resume_other_image", &Sabotage::resume_other_image},
	    {"keep_identity", &Sabotage::keep_identity},
	};
	return all;
}

const Canary *FindCanary(const std::string &name) {
	for (const auto &canary : Canaries()) {
		if (name == canary.name) {
			return &canary;
		}
	}
	return nullptr;
}

CanaryResult RunCanary(const Canary &canary, uint64_t first_seed, uint64_t seeds_max, uint32_t jobs, CheckLevel level) {
	BatchOptions options;
	options.first_seed = first_seed;
	options.seed_count = seeds_max;
	options.jobs = jobs;
	options.failures_max = 1;
	options.run.sabotage.*canary.broken_rule = true;
	options.run.level = level;
	options.run.wrong_answers_only = true;
	BatchResult batch = RunBatch(options);
	CanaryResult result;
	result.name = canary.name;
	result.seeds_run = batch.seeds_done;
	if (!batch.failed.empty()) {
		result.caught = true;
		result.seed = batch.failed.front().seed;
		result.checker = batch.failed.front().checker;
		result.message = batch.failed.front().message;
	}
	return result;
}

} // namespace sim
} // namespace quack
