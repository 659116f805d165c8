//! Ends transactions whose driver is gone: the duty of whoever leads a group with prepared parts (cpp/GROUPS.md, "No
//! lock stays"). No thread, no clock, no IO.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "quack/common/clock.hpp"
#include "quack/node/transaction_driver.hpp"

namespace quack {
namespace node {

//! A part that is prepared in a group that this node leads.
struct PreparedAtLeader {
	raft::GroupId group = raft::ROOT_GROUP;
	TransactionId id {};
	raft::LogIndex index = 0;
	raft::GroupId coordinator = raft::ROOT_GROUP;
	//! The entry in the coordinator's group that decided, as far as it is applied here.
	std::optional<raft::LogIndex> decided;
};

struct FinisherProposal {
	TransactionId id {};
	TransactionProposal proposal;
};

class TransactionFinisher {
public:
	//! `patience`: how long a part may be prepared without an outcome before it is given up; `grace`: how long its
	//! driver has to propose the release itself; `repeat`: when an unanswered proposal is made again.
	TransactionFinisher(MonotonicNs patience_p, MonotonicNs grace_p, MonotonicNs repeat_p)
	    : patience(patience_p), grace(grace_p), repeat(repeat_p) {
	}

	//! What to propose now. `parts` is everything prepared in groups led here; what is missing from it is forgotten.
	std::vector<FinisherProposal> Step(MonotonicNs now, const std::vector<PreparedAtLeader> &parts);

private:
	struct Watched {
		MonotonicNs seen_at = 0;
		//! Since when its outcome is known here; 0 = it is not.
		MonotonicNs decided_at = 0;
		MonotonicNs proposed_at = 0; //! 0 = never
		bool is_current = false;
	};

	const MonotonicNs patience;
	const MonotonicNs grace;
	const MonotonicNs repeat;
	std::map<std::pair<raft::GroupId, TransactionId>, Watched> watched;
};

} // namespace node
} // namespace quack
