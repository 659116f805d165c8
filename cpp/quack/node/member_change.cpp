#include "quack/node/member_change.hpp"

#include <algorithm>
#include <iterator>

#include "quack/raft/quorum.hpp"

namespace quack {
namespace node {

namespace {

//! Removed members that are remembered, so that they can be told.
constexpr size_t REMOVED_MAX = 64;

class Planner {
public:
	Planner(const MemberChange &change_p, const MemberView &view_p)
	    : change(change_p), view(view_p), membership(view_p.core.membership) {
		plan.voters = membership.voters;
		plan.learners = membership.learners;
		plan.notes = membership.notes;
		for (auto &entry : view.members) {
			auto is_member = entry.is_voter || entry.is_outgoing || entry.is_learner;
			if (entry.record.name == change.name && is_member) {
				// Two of one name only while a disk is replaced: the newer one is the learner.
				(member == nullptr ? member : newer) = &entry;
			}
		}
		if (newer != nullptr && (newer->is_voter || (!member->is_voter && IsHeard(member->node)))) {
			std::swap(member, newer);
		}
	}

	MemberPlan Run() {
		if (membership.IsJoint() || !(membership == view.core.committed_membership)) {
			Fail(ErrorCode::Conflict, "another change of members is under way; wait until quack_members() shows none "
			                          "and retry");
			return std::move(plan);
		}
		switch (change.action) {
		case MemberAction::Add:
			Add();
			break;
		case MemberAction::Promote:
			Promote();
			break;
		case MemberAction::Demote:
			Leave(false);
			break;
		case MemberAction::Remove:
			Leave(true);
			break;
		case MemberAction::Replace:
			Replace();
			break;
		case MemberAction::Reseed:
			Reseed();
			break;
		default:
			Fail(ErrorCode::NotSupported, "the leader does not know this change: run the same release on all nodes");
		}
		if (plan.status.IsOk() && !plan.is_done) {
			CheckQuorum();
			Forget();
		}
		return std::move(plan);
	}

private:
	std::string Quoted() const {
		return "'" + change.name + "'";
	}
	void Fail(ErrorCode code, const std::string &message) {
		plan.status = Status(code, message);
	}
	void Done(const std::string &words) {
		plan.is_done = true;
		plan.words = words;
	}
	const raft::ProgressStatus *ProgressOf(raft::NodeId node) const {
		for (auto &progress : view.core.progress) {
			if (progress.node == node) {
				return &progress;
			}
		}
		return nullptr;
	}
	//! A lost session makes the core probe at once, an election timeout before silence shows.
	bool IsHeard(raft::NodeId node) const {
		auto progress = ProgressOf(node);
		return node == view.core.self || (progress != nullptr && progress->recent_active && progress->match > 0 &&
		                                  progress->state == raft::ProgressStatus::State::Replicate);
	}

	//! The node that asks to join under the name, or a failure.
	bool FindJoining(MemberRecord &record) {
		if (view.applicant) {
			record = view.applicant->record;
		} else if (change.incarnation != 0) {
			record.name = change.name;
			record.incarnation = change.incarnation;
			record.host = change.host;
			record.port = change.port;
		} else {
			Fail(ErrorCode::NotFound,
			     "node " + Quoted() +
			         " has not asked to join: start it with an empty data_dir and a file that has this cluster's "
			         "cluster_id, names at least one of its members in cp_metadata_peers, and itself with the address "
			         "to reach it by; then retry");
			return false;
		}
		auto known = plan.notes.find(record.Node());
		if (known != plan.notes.end()) {
			Fail(ErrorCode::InvalidArgument, "node " + Quoted() + " (disk " + FormatIncarnation(record.incarnation) +
			                                     ") was removed; a removed disk does not come back: empty its "
			                                     "data_dir, start it and retry");
			return false;
		}
		return true;
	}

	void AddLearner(const MemberRecord &record) {
		plan.learners.push_back(record.Node());
		plan.notes[record.Node()] = EncodeMemberRecord(record);
	}

	void Add() {
		MemberRecord record;
		if (member != nullptr) {
			if (view.applicant && view.applicant->record.Node() != member->node) {
				Fail(ErrorCode::AlreadyExists, "node " + Quoted() + " is a member with another disk (" +
				                                   FormatIncarnation(member->record.incarnation) +
				                                   "); to put the new one (" +
				                                   FormatIncarnation(view.applicant->record.incarnation) +
				                                   ") in its place: quack cluster node replace " + change.name);
				return;
			}
			Done("node " + Quoted() + " is a " + (member->is_learner ? "learner" : "voter") + " already");
			return;
		}
		if (FindJoining(record)) {
			AddLearner(record);
			plan.words = "node " + Quoted() + " is a learner";
		}
	}

	bool IsCaughtUp(raft::NodeId node) {
		auto progress = ProgressOf(node);
		if (progress == nullptr || !progress->recent_active) {
			Fail(ErrorCode::Unavailable, "node " + Quoted() +
			                                 " is not heard of; see quack_members() for why, then "
			                                 "retry");
			return false;
		}
		auto behind = Behind(node);
		if (progress->match == 0 || behind > CAUGHT_UP_ENTRIES) {
			Fail(ErrorCode::Unavailable, "node " + Quoted() + " is " + std::to_string(behind) +
			                                 " entries behind; wait until it is at most " +
			                                 std::to_string(CAUGHT_UP_ENTRIES) + " behind and retry");
			return false;
		}
		return true;
	}

	static void Erase(std::vector<raft::NodeId> &nodes, raft::NodeId node) {
		nodes.erase(std::remove(nodes.begin(), nodes.end(), node), nodes.end());
	}

	bool IsMember() {
		if (member == nullptr) {
			Fail(ErrorCode::NotFound, "node " + Quoted() + " is not a member of the cluster");
		}
		return member != nullptr;
	}

	void Promote() {
		if (!IsMember()) {
			return;
		}
		if (newer != nullptr) {
			Fail(ErrorCode::Conflict, "the disk of node " + Quoted() +
			                              " is being replaced; finish it with: quack "
			                              "cluster node replace " +
			                              change.name);
			return;
		}
		if (member->is_voter) {
			Done("node " + Quoted() + " is a voter already");
			return;
		}
		if (IsCaughtUp(member->node)) {
			Erase(plan.learners, member->node);
			plan.voters.push_back(member->node);
			plan.words = "node " + Quoted() + " is a voter";
		}
	}

	void MarkRemoved(const MemberEntry &entry) {
		auto record = entry.record;
		record.is_removed = true;
		plan.notes[entry.node] = EncodeMemberRecord(record);
	}

	//! A removed leader answers nobody: its successor, which carried the wish out, is asked again.
	bool WasRemoved() const {
		return std::any_of(view.members.begin(), view.members.end(), [this](const MemberEntry &entry) {
			return entry.record.name == change.name && entry.record.is_removed;
		});
	}

	void Leave(bool is_removal) {
		if (is_removal && member == nullptr && WasRemoved()) {
			Done("node " + Quoted() + " is removed already");
			return;
		}
		if (!IsMember()) {
			return;
		}
		if (!is_removal && !member->is_voter) {
			Done("node " + Quoted() + " is a learner already");
			return;
		}
		if (member->is_voter && membership.voters.size() == 1) {
			Fail(ErrorCode::InvalidArgument, "node " + Quoted() + " is the only voter; promote another node first");
			return;
		}
		plan.needs_handover = member->node == view.core.self;
		Erase(plan.voters, member->node);
		Erase(plan.learners, member->node);
		if (is_removal) {
			MarkRemoved(*member);
			if (newer != nullptr) {
				Erase(plan.learners, newer->node);
				MarkRemoved(*newer);
			}
			plan.words = "node " + Quoted() + " is removed";
		} else {
			plan.learners.push_back(member->node);
			plan.words = "node " + Quoted() + " is a learner";
		}
	}

	//! The successor of a lost disk was lost too before it took the vote: the one that asks now takes its place.
	bool IsNewerLost() const {
		return newer != nullptr && view.applicant && view.applicant->record.Node() != newer->node &&
		       view.applicant->record.Node() != member->node && !IsHeard(newer->node);
	}

	//! The others must commit and answer without it until it is back.
	void Reseed() {
		if (!IsMember()) {
			return;
		}
		if (member->node == view.core.self) {
			Fail(ErrorCode::Unavailable, "node " + Quoted() + " leads, and the data has to come from another leader");
			return;
		}
		auto ready = std::count_if(membership.voters.begin(), membership.voters.end(), [this](raft::NodeId node) {
			return node != member->node && IsHeard(node) && Behind(node) <= CAUGHT_UP_ENTRIES;
		});
		auto needed = membership.voters.size() / 2 + 1;
		if (member->is_voter && static_cast<size_t>(ready) < needed) {
			Fail(ErrorCode::Unavailable, "without node " + Quoted() + " " + std::to_string(needed) + " of the " +
			                                 std::to_string(membership.voters.size()) + " voters are needed, and " +
			                                 std::to_string(ready) +
			                                 " of them are in service and caught up; see quack_members(), and retry "
			                                 "when the others are well");
			return;
		}
		Done("node " + Quoted() + " may get its data again");
	}

	uint64_t Behind(raft::NodeId node) const {
		auto progress = ProgressOf(node);
		return progress == nullptr ? 0 : view.core.last_index - std::min(view.core.last_index, progress->match);
	}

	void Replace() {
		if (!IsMember()) {
			return;
		}
		if (change.is_by_itself && IsHeard(member->node)) {
			Fail(ErrorCode::Conflict, "node " + Quoted() + " is alive with the disk it says is gone");
			return;
		}
		if (IsNewerLost()) {
			MemberRecord record;
			if (FindJoining(record)) {
				Erase(plan.learners, newer->node);
				MarkRemoved(*newer);
				AddLearner(record);
				plan.words = "the new disk of node " + Quoted() + " is a learner; two older ones are gone";
			}
			return;
		}
		if (newer == nullptr) {
			MemberRecord record;
			if (!view.applicant && change.incarnation == 0 && IsHeard(member->node)) {
				// Not for good: it may have died a moment ago, and its successor knocks every second.
				Fail(ErrorCode::Conflict,
				     "node " + Quoted() + " is alive with its disk (" + FormatIncarnation(member->record.incarnation) +
				         "): nothing to replace. To give it a new disk, stop it, empty its data_dir, start it and "
				         "retry");
				return;
			}
			if (FindJoining(record)) {
				AddLearner(record);
				plan.words = "the new disk of node " + Quoted() +
				             " is a learner; its old one leaves when it has caught "
				             "up: ask again";
			}
			return;
		}
		if (!IsCaughtUp(newer->node)) {
			return;
		}
		MarkRemoved(*member);
		if (member->is_voter) {
			Erase(plan.voters, member->node);
			Erase(plan.learners, newer->node);
			plan.voters.push_back(newer->node);
		} else {
			Erase(plan.learners, member->node);
		}
		plan.words = "node " + Quoted() + " runs on its new disk as a " + (member->is_voter ? "voter" : "learner");
	}

	//! Both the voters of now and those to come must have a majority in reach, or the change would hang half-way.
	void CheckQuorum() {
		CheckMajority(membership.voters, "are");
		CheckMajority(plan.voters, "would be");
	}

	void CheckMajority(const std::vector<raft::NodeId> &voters, const char *verb) {
		size_t heard = 0;
		for (auto node : voters) {
			heard += IsHeard(node) ? 1 : 0;
		}
		if (heard < voters.size() / 2 + 1) {
			Fail(ErrorCode::Unavailable, "only " + std::to_string(heard) + " of " + std::to_string(voters.size()) +
			                                 " voters " + verb +
			                                 " in reach: the group would have no majority. Bring nodes back or "
			                                 "replace them first (quack cluster node replace)");
		}
	}

	void Forget() {
		std::vector<raft::NodeId> removed;
		for (auto &note : plan.notes) {
			auto is_listed = raft::Contains(plan.voters, note.first) || raft::Contains(plan.learners, note.first) ||
			                 raft::Contains(membership.voters, note.first) ||
			                 raft::Contains(membership.learners, note.first);
			if (!is_listed) {
				removed.push_back(note.first);
			}
		}
		for (size_t i = 0; i + REMOVED_MAX < removed.size(); i++) {
			plan.notes.erase(removed[i]);
		}
	}

	const MemberChange &change;
	const MemberView &view;
	const raft::Membership &membership;
	const MemberEntry *member = nullptr;
	const MemberEntry *newer = nullptr;
	MemberPlan plan;
};

} // namespace

MemberPlan PlanMemberChange(const MemberChange &change, const MemberView &view) {
	return Planner(change, view).Run();
}

namespace {

class Follower {
public:
	Follower(const raft::CoreStatus &core_p, const raft::Membership &root_p)
	    : core(core_p), own(core_p.membership), root(root_p) {
	}

	FollowingPlan Run() const {
		FollowingPlan plan;
		if (own.IsJoint() || core.membership_index > core.commit_index) {
			return plan;
		}
		MemberPlan next;
		next.notes = root.notes;
		if (IsReady()) {
			next.voters = root.voters;
			next.learners = root.learners;
		} else {
			next.voters = own.voters;
			for (auto list : {&root.voters, &root.learners}) {
				std::copy_if(list->begin(), list->end(), std::back_inserter(next.learners),
				             [this](raft::NodeId node) { return !raft::Contains(own.voters, node); });
			}
			std::sort(next.learners.begin(), next.learners.end());
		}
		auto is_same = next.voters == own.voters && next.learners == own.learners && next.notes == own.notes;
		plan.is_settled = is_same && own.voters == root.voters && own.learners == root.learners;
		if (is_same) {
			return plan;
		}
		if (!raft::Contains(next.voters, core.self)) {
			plan.successor = Successor();
		}
		if (plan.successor == raft::NO_NODE) {
			plan.change = std::move(next);
		}
		return plan;
	}

private:
	bool IsHeard(raft::NodeId node) const {
		return node == core.self || std::any_of(core.progress.begin(), core.progress.end(), [node](auto &progress) {
			       return progress.node == node && progress.recent_active;
		       });
	}
	bool IsCaughtUp(raft::NodeId node) const {
		return std::any_of(core.progress.begin(), core.progress.end(), [this, node](auto &progress) {
			return progress.node == node && progress.recent_active && progress.match > 0 &&
			       progress.match + CAUGHT_UP_ENTRIES >= core.last_index;
		});
	}
	bool HasMajority(const std::vector<raft::NodeId> &voters) const {
		auto heard = std::count_if(voters.begin(), voters.end(), [this](raft::NodeId node) { return IsHeard(node); });
		return static_cast<size_t>(heard) >= voters.size() / 2 + 1;
	}
	bool IsReady() const {
		auto are_caught_up = std::all_of(root.voters.begin(), root.voters.end(), [this](raft::NodeId node) {
			return raft::Contains(own.voters, node) || IsCaughtUp(node);
		});
		return are_caught_up && HasMajority(own.voters) && HasMajority(root.voters);
	}
	//! The voter of now and later that has most of the log.
	raft::NodeId Successor() const {
		auto best = raft::NO_NODE;
		raft::LogIndex best_match = 0;
		for (auto &progress : core.progress) {
			auto stays = raft::Contains(own.voters, progress.node) && raft::Contains(root.voters, progress.node);
			if (stays && progress.recent_active && progress.match >= best_match) {
				best = progress.node;
				best_match = progress.match;
			}
		}
		return best;
	}

	const raft::CoreStatus &core;
	const raft::Membership &own;
	const raft::Membership &root;
};

} // namespace

FollowingPlan PlanFollowing(const raft::CoreStatus &core, const raft::Membership &root) {
	return Follower(core, root).Run();
}

std::optional<MemberPlan> PlanAddressUpdate(const raft::Membership &membership,
                                            const std::map<raft::NodeId, MemberRecord> &moved) {
	MemberPlan plan;
	plan.voters = membership.voters;
	plan.learners = membership.learners;
	plan.notes = membership.notes;
	auto is_changed = false;
	for (auto &entry : moved) {
		auto note = plan.notes.find(entry.first);
		auto bytes = EncodeMemberRecord(entry.second);
		auto is_member = raft::IsVoter(membership, entry.first) || raft::Contains(membership.learners, entry.first);
		if (note != plan.notes.end() && is_member && note->second != bytes) {
			note->second = bytes;
			is_changed = true;
		}
	}
	return is_changed ? std::optional<MemberPlan>(std::move(plan)) : std::nullopt;
}

} // namespace node
} // namespace quack
