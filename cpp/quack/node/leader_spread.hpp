//! Which node leads which group, when all is well. Pure.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace node {

//! The same node wherever it is asked, and for groups with consecutive numbers each of the nodes in turn. NO_NODE when
//! there are no nodes.
raft::NodeId PreferredLeader(raft::GroupId group, std::vector<raft::NodeId> nodes);

struct LeaderPlan {
	//! Every voter is heard of and has nearly everything: nobody need be waited for.
	bool is_complete = false;
	//! The node that should lead instead of this one; NO_NODE = none.
	raft::NodeId target = raft::NO_NODE;
};

//! What the leader of a group makes of it. Of the voters with the highest election priority that are heard of and
//! caught up, the preferred one; no move while the members change.
LeaderPlan PlanLeader(const raft::CoreStatus &core, uint32_t own_priority);

//! Gathers what several parts of one wish say, and answers when all have. Any thread.
class Gathering {
public:
	using Done = std::function<void(Result<std::string>)>;

	//! `nothing`: the words when no part has any.
	Gathering(std::string nothing, Done done);
	//! One more part; before Close().
	void Expect();
	//! A part's words, which may be empty.
	void Add(const std::string &words);
	//! No more parts come.
	void Close();

private:
	void Settle();

	const std::string nothing;
	const Done done;
	std::mutex lock; //! guards the rest; not held while `done` runs
	size_t missing = 1;
	std::string text;
};

} // namespace node
} // namespace quack
