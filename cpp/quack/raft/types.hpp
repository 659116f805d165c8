//! Words of the protocol (Ongaro & Ousterhout 2014; Ongaro's dissertation 2014). No IO, no clock, no thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/clock.hpp"

namespace quack {
namespace raft {

//! Identity of one incarnation of a node: a node that comes back with an empty disk gets a new one. 0 = none.
using NodeId = uint64_t;
using GroupId = uint64_t;
//! 0 before the first election.
using Term = uint64_t;
//! Position in a group's log, from 1; 0 = before the first entry.
using LogIndex = uint64_t;

constexpr NodeId NO_NODE = 0;
//! The default group; also owns the catalog (DDL, placement, membership).
constexpr GroupId ROOT_GROUP = 1;

enum class EntryType : uint8_t {
	Normal = 0,     //! opaque payload of the state machine
	NoOp = 1,       //! empty; every leader appends one at the start of its term (dissertation §6.4)
	Membership = 2, //! payload = encoded Membership
};

struct Entry {
	Term term = 0;
	LogIndex index = 0;
	EntryType type = EntryType::Normal;
	//! Never null; shared by log, wire and apply.
	SharedBytes payload;
};

//! What must be durable before a vote or an acknowledgement leaves the node (paper, figure 2).
struct HardState {
	Term term = 0;
	NodeId voted_for = NO_NODE;
	//! A hint only: safe to lose. Never above what is in the log.
	LogIndex commit_index = 0;

	bool operator==(const HardState &other) const {
		return term == other.term && voted_for == other.voted_for && commit_index == other.commit_index;
	}
	bool operator!=(const HardState &other) const {
		return !(*this == other);
	}
};

//! Voter set by joint consensus (dissertation §4.3). `outgoing` is empty outside a change. All lists sorted, unique.
struct Membership {
	std::vector<NodeId> voters;
	std::vector<NodeId> outgoing;
	std::vector<NodeId> learners;
	//! Voters of `outgoing` that become learners when the joint phase ends.
	std::vector<NodeId> learners_next;
	//! Leave the joint phase by itself as soon as it commits.
	bool auto_leave = true;
	//! What the owner wants everybody to know of a node, member or not: opaque to the core, replicated with the lists.
	std::map<NodeId, std::string> notes;

	bool IsJoint() const {
		return !outgoing.empty();
	}
	bool operator==(const Membership &other) const {
		return voters == other.voters && outgoing == other.outgoing && learners == other.learners &&
		       learners_next == other.learners_next && auto_leave == other.auto_leave && notes == other.notes;
	}
};

//! Where a snapshot of the state machine stands.
struct SnapshotMeta {
	LogIndex index = 0; //! last entry it covers; 0 = no snapshot
	Term term = 0;      //! term of that entry
	Membership membership;
};

enum class Role : uint8_t { Follower = 0, PreCandidate = 1, Candidate = 2, Leader = 3, Learner = 4 };

//! Static settings of one core. Durations in nanoseconds of the monotonic clock.
//! A node of election priority 0 campaigns after so many election timeouts without a leader.
constexpr MonotonicNs LAST_RESORT_TIMEOUTS = 10;

struct Config {
	NodeId self = NO_NODE;
	GroupId group = ROOT_GROUP;
	//! A follower without contact campaigns after a random time in [election_timeout, 2 * election_timeout). Must be
	//! the same on every node: the lease rests on the voters' promise to refuse votes this long after hearing a leader.
	MonotonicNs election_timeout = 1000 * NS_PER_MS;
	//! Must be at most election_timeout / 3.
	MonotonicNs heartbeat_interval = 100 * NS_PER_MS;
	//! Largest relative rate difference of two monotonic clocks, in parts per million; the lease shrinks by it.
	uint32_t clock_drift_ppm = 10000;
	//! Serve reads under the leader lease without a ReadIndex round. Needs check-quorum, which is always on.
	bool lease_reads = true;
	//! Higher campaigns earlier, within the same window; counted up to 1000; 0 is never a successor, and
	//! leads only when nobody else can: it campaigns after LAST_RESORT_TIMEOUTS without a leader, and hands over to the
	//! first other voter that is caught up. Told to the leader in heartbeat responses, which ranks successors by it.
	uint32_t election_priority = 100;
	//! Limits of one append message and of what may be in flight to one follower.
	size_t append_bytes_max = 1024 * 1024;
	size_t append_entries_max = 1024;
	size_t inflight_messages_max = 64;
	size_t inflight_bytes_max = 16 * 1024 * 1024;
	//! Proposals accepted but not committed; past it Propose answers Overloaded.
	size_t uncommitted_bytes_max = 64 * 1024 * 1024;
	//! Pending ReadIndex requests; past it Overloaded.
	size_t pending_reads_max = 4096;
	//! Payload bytes of Ready::committed of one step (at least one entry); the rest follows in later steps, so that a
	//! replay at start never loads the whole log.
	size_t committed_bytes_max = 4 * 1024 * 1024;
	//! Payload bytes handed out in Ready::committed and not yet answered by Applied; past it nothing more is handed
	//! out.
	size_t unapplied_bytes_max = 64 * 1024 * 1024;
	//! A leader proposes that the group goes quiet (DESIGN.md, "A quiet group") when nothing happened in it for so
	//! long; 0 = never. Needs an owner that tells of silent nodes (WakeEvent).
	MonotonicNs quiet_after = 0;
	//! Seeds the election jitter; the only randomness of the core.
	uint64_t random_seed = 1;
};

} // namespace raft
} // namespace quack
