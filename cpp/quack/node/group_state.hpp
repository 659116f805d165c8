//! All that the event loop keeps for one group. Loop thread only, or under the loop's lock for status.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "quack/node/log_view.hpp"
#include "quack/node/proposal_router.hpp"
#include "quack/node/read_barriers.hpp"
#include "quack/raft/raft.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace node {

//! Which membership was in force at which committed index; needed for the position a truncated log starts from.
class MembershipHistory {
public:
	void Reset(raft::LogIndex index, raft::Membership membership);
	//! Takes the membership entries among newly committed ones. Corruption when one does not decode.
	Status Record(const std::vector<raft::Entry> &committed);
	//! Nothing for an index before the known history.
	std::optional<raft::Membership> At(raft::LogIndex index) const;
	//! Forgets what only serves indexes below `index`.
	void Prune(raft::LogIndex index);
	size_t Count() const {
		return changes.size();
	}

private:
	std::deque<std::pair<raft::LogIndex, raft::Membership>> changes;
};

struct TransferWaiter {
	MonotonicNs deadline = 0;
	raft::NodeId target = raft::NO_NODE;
	ConsensusEngine::TextCallback done;
};

//! A change of members that is committed: waits until its joint phase has ended.
struct MemberWaiter {
	MonotonicNs deadline = 0;
	std::string words;
	ConsensusEngine::TextCallback done;
};

struct GroupState {
	GroupState(raft::GroupId id_p, raft::LogReader &durable, const storage::RecoveredGroup &recovered,
	           const raft::Config &config, const raft::RestoredState &restored, MonotonicNs now, ProposalBudget &budget)
	    : id(id_p), view(durable, recovered.snapshot, recovered.last_index), core(config, view, restored, now),
	      hard_state(restored.hard_state), proposals(budget), last_tick(now) {
	}

	const raft::GroupId id;
	LogView view;
	raft::Raft core;
	raft::HardState hard_state; //! last handed to the writer
	raft::SoftState soft;
	MembershipHistory history;

	ProposalRouter proposals;
	ReadBarriers reads;
	std::map<uint64_t, TransferWaiter> transfers; //! by request
	uint64_t next_transfer = 1;
	std::vector<MemberWaiter> member_waiters;
	//! Since when this node leads; of no meaning when it does not.
	MonotonicNs leading_since = 0;
	//! The node that this leader let go last (MemberAction::Reseed), and until when it may still leave.
	std::string let_go;
	MonotonicNs let_go_until = 0;
	//! Not before then are moved addresses written down again.
	MonotonicNs addresses_after = 0;
	//! Not before then are lost disks looked for again.
	MonotonicNs replace_after = 0;
	//! Leader of another than the root group: how far it has followed the members there (ready_loop_follow.cpp).
	MonotonicNs follow_after = 0;
	uint64_t followed_version = 0; //! of ReadyLoop::root_version
	raft::Term followed_term = 0;
	raft::Term root_asked_term = 0;
	raft::Term fresh_term = 0; //! `root_end` holds for this one
	raft::LogIndex root_end = 0;
	//! Leader of another than the root group: when the node that should lead it is looked for again, since when nothing
	//! speaks against a move, and how many times longer than usual it waits.
	MonotonicNs spread_after = 0;
	MonotonicNs complete_since = 0;
	MonotonicNs spread_patience = 1;
	//! Appends that wait until the log writer has room.
	std::deque<raft::Message> deferred;

	MonotonicNs last_tick;
	//! Not before then are waiting proposals routed, or reads asked, again.
	MonotonicNs route_after = 0;
	MonotonicNs ask_after = 0;
	MonotonicNs handover_after = 0;
	//! Up to where the log was to be forgotten when an open image or an entry that is not durable kept it; 0 = nothing
	//! does.
	raft::LogIndex cut_later = 0;
	//! Since when no leader is known; 0 = one is.
	MonotonicNs leaderless_since = 0;
	//! The log is being made, or reset to an installed snapshot: the core is not stepped until that is done.
	bool is_frozen = false;
	//! The core has asked for an image that is not installed yet.
	bool awaits_image = false;
	//! The core was made for the log that is being made, so it need not be told.
	bool is_new_core = false;
	//! A group that nobody has led: this node asks for votes from then on, until then; 0 = it does not.
	MonotonicNs campaign_after = 0;
	MonotonicNs campaign_until = 0;
};

} // namespace node
} // namespace quack
