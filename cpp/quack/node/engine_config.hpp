//! Settings of RaftEngine.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "quack/raft/types.hpp"
#include "quack/wire/hello.hpp"

namespace quack {
namespace node {

//! One configured member of the cluster, this node included.
struct MemberConfig {
	std::string node_id; //! name, as in its certificate
	//! Of this node: from its data directory, never 0. Of others: 0 = learned when they are met.
	uint64_t incarnation = 0;
	bool voter = true; //! false = learner
	std::string host;
	uint16_t port = 0;
	uint32_t election_priority = 100;
};

struct RaftEngineConfig {
	std::string cluster_id;
	std::string node_id;
	//! The members that form a new cluster, and where a node that joins one finds it; this node included. A cluster
	//! that the log knows keeps its own.
	std::vector<MemberConfig> members;
	//! Under which incarnation each other node was met before this start, while the cluster was being formed.
	std::map<std::string, uint64_t> met;
	//! Incarnations of this node whose logs were damaged and moved aside: they never come back, so this node's disk may
	//! take their place without anybody's command.
	std::vector<uint64_t> replaces;
	//! A node that has not taken part in a cluster yet, but holds the state of a backup: which one. All that form a
	//! cluster must hold the same; their logs begin at that state's position. Empty = it holds nothing.
	std::string restored_from;
	//! Makes `met` durable before it is answered: called on the transport's thread, once per other node in a cluster's
	//! life. Empty = kept in memory only (tests).
	std::function<Status(const std::map<std::string, uint64_t> &)> save_met;
	//! Called when the groups of this node have become durable and before their first step. May be empty.
	std::function<Status()> mark_formed;

	//! Versions for the hello fence; names and ids are filled in by the engine.
	std::string duckdb_version;
	uint64_t storage_version = 0;
	uint32_t entry_format_min = 1;
	uint32_t entry_format_max = 1;

	//! Directory for snapshots being received; created when missing, cleaned of leftovers at start.
	std::string temp_dir;
	//! Shown in the disk-full alarm.
	std::string log_dir;

	//! Timing and limits of each core; self, group and seed are filled in by the engine. With these timeouts a lost
	//! leader is replaced within 2 s: at most 1 s of silence, then pre-vote, vote and one append.
	MonotonicNs election_timeout = 500 * NS_PER_MS;
	MonotonicNs heartbeat_interval = 75 * NS_PER_MS;
	uint32_t clock_drift_ppm = 10000;
	bool lease_reads = true;
	//! A group in which nothing happened for so long goes quiet; 0 = never.
	MonotonicNs quiet_after = 5 * NS_PER_SECOND;
	//! A group other than the root group moves to the node that should lead it when all its voters have been there and
	//! caught up for this long; 0 = only when asked (Rebalance).
	MonotonicNs rebalance_after = 10 * NS_PER_SECOND;
	size_t append_bytes_max = 1024 * 1024;
	size_t append_entries_max = 1024;
	size_t uncommitted_bytes_max = 64 * 1024 * 1024;

	//! Proposals accepted by this node and not yet answered; past either Propose answers Overloaded.
	size_t pending_proposals_max = 65536;
	size_t pending_proposal_bytes_max = 256 * 1024 * 1024;
	//! Undecoded messages from peers; past it messages are dropped (Raft repeats them).
	size_t inbound_bytes_max = 64 * 1024 * 1024;
	//! Bytes handed to the log writer but not durable, and committed but not applied; past them no new entries are
	//! taken in until they drain.
	size_t log_queue_bytes_max = 64 * 1024 * 1024;
	size_t apply_queue_bytes_max = 64 * 1024 * 1024;
	//! One Apply call takes at most this much.
	size_t apply_batch_bytes_max = 8 * 1024 * 1024;
	size_t apply_batch_entries_max = 4096;
	//! Forwarded batches in flight to a leader, per group; proposals that arrive meanwhile form the next batch.
	size_t forwards_in_flight_max = 8;
	size_t forward_bytes_max = 4 * 1024 * 1024;

	//! A checkpoint starts after this many applied bytes or entries, this long after the first entry applied since the
	//! last one, or when nothing was applied for `checkpoint_idle`: then it disturbs nobody. Applying stands still
	//! meanwhile. Bytes and entries bound what a node that starts has to apply again.
	size_t checkpoint_log_bytes = 256 * 1024 * 1024;
	uint64_t checkpoint_log_entries = 100 * 1000;
	MonotonicNs checkpoint_interval = 60 * NS_PER_SECOND;
	MonotonicNs checkpoint_idle = 5 * NS_PER_SECOND;
	//! Log kept behind the durable position for slow followers: no more than either bound.
	size_t log_tail_bytes = 64 * 1024 * 1024;
	uint64_t log_tail_entries = 1000 * 1000;
	//! A full disk is tried again after this long, a checkpoint that could not run too: then twice as long each time.
	MonotonicNs disk_retry_interval = 200 * NS_PER_MS;
	MonotonicNs checkpoint_retry_max = 5 * NS_PER_SECOND;

	size_t snapshot_chunk_bytes = 2 * 1024 * 1024;
	//! What this node sends of images to all peers together; 0 = no limit.
	uint64_t snapshot_bytes_per_second = 64 * 1024 * 1024;
	//! An image nobody asked a chunk of for this long is closed, a backup's too; one that a peer has not all of only
	//! after the longer time, so that it goes on after a restart of either side.
	MonotonicNs snapshot_idle_timeout = 60 * NS_PER_SECOND;
	MonotonicNs snapshot_resume_timeout = 600 * NS_PER_SECOND;
	//! A source that gives nothing for so long is given up: another one may have an image.
	MonotonicNs snapshot_source_patience = 30 * NS_PER_SECOND;
	//! Log that open images may hold back at most. A receiver whose log is cut needs another image.
	uint64_t snapshot_log_bytes_max = 4ULL * 1024 * 1024 * 1024;
};

} // namespace node
} // namespace quack
