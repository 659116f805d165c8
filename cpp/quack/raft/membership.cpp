#include <algorithm>

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

bool Core::IsMember(NodeId node) const {
	return progress.count(node) > 0 || IsVoter(InForce(), node) || Contains(InForce().learners, node);
}

const Membership &Core::CommittedMembership() const {
	auto found = std::find_if(memberships.rbegin(), memberships.rend(),
	                          [&](const MembershipAt &item) { return item.index <= commit_index; });
	return found == memberships.rend() ? memberships.front().membership : found->membership;
}

static std::vector<NodeId> Sorted(std::vector<NodeId> nodes) {
	std::sort(nodes.begin(), nodes.end());
	return nodes;
}

Status Core::CheckChange(const ChangeMembershipEvent &event) const {
	if (role != Role::Leader) {
		return Status(ErrorCode::NotLeader, "this node does not lead group " + std::to_string(config.group));
	}
	if (transfer_target != NO_NODE) {
		return Status(ErrorCode::Unavailable, "leadership is being handed over; retry");
	}
	if (InForce().IsJoint() || InForceIndex() > commit_index) {
		return Status(ErrorCode::Conflict, "another membership change is in progress; wait until it ends and retry");
	}
	if (!CommittedInOwnTerm()) {
		return Status(ErrorCode::Unavailable, "the leader has not committed an entry of its term yet; retry");
	}
	if (event.voters.empty()) {
		return Status(ErrorCode::InvalidArgument, "a group needs at least one voter, got none");
	}
	auto all = event.voters;
	all.insert(all.end(), event.learners.begin(), event.learners.end());
	std::sort(all.begin(), all.end());
	if (std::adjacent_find(all.begin(), all.end()) != all.end() || all.front() == NO_NODE) {
		return Status(ErrorCode::InvalidArgument,
		              "each node may be listed once, as voter or as learner, and 0 is no node");
	}
	return Status::Ok();
}

void Core::ChangeMembership(const ChangeMembershipEvent &event) {
	Wake({});
	ProposeResult result;
	result.request = event.request;
	result.status = CheckChange(event);
	if (result.status.IsOk()) {
		Membership target;
		target.voters = Sorted(event.voters);
		target.learners = Sorted(event.learners);
		target.notes = event.notes;
		if (target.voters != InForce().voters) {
			// Joint consensus (dissertation §4.3): decisions need both majorities until the joint entry is committed.
			target.outgoing = InForce().voters;
			auto demoted = std::partition(target.learners.begin(), target.learners.end(),
			                              [&](NodeId node) { return !Contains(target.outgoing, node); });
			target.learners_next.assign(demoted, target.learners.end());
			target.learners.erase(demoted, target.learners.end());
			target.learners = Sorted(target.learners);
			target.learners_next = Sorted(target.learners_next);
		}
		AppendMembership(std::move(target));
		result.term = term;
		result.index = log.LastIndex();
		BroadcastAppends();
		MaybeCommit();
	}
	ready.proposals.push_back(std::move(result));
}

void Core::AppendMembership(Membership membership) {
	AppendOwn(EntryType::Membership, MakeSharedBytes(EncodeMembership(membership)));
	memberships.push_back({log.LastIndex(), std::move(membership)});
	MembershipInForceChanged();
}

//! A membership is in force from append on, committed or not (dissertation §4.1).
bool Core::NoteMembershipEntry(const Entry &entry) {
	auto membership = DecodeMembership(*entry.payload);
	if (!membership.IsOk()) {
		Fail(Status(ErrorCode::Corruption, "group " + std::to_string(config.group) + ", entry " +
		                                       std::to_string(entry.index) + ": " + membership.GetStatus().Message()));
		return false;
	}
	memberships.push_back({entry.index, std::move(membership.Value())});
	MembershipInForceChanged();
	return true;
}

void Core::ForgetMembershipsFrom(LogIndex index) {
	bool changed = false;
	while (memberships.size() > 1 && memberships.back().index >= index) {
		memberships.pop_back();
		changed = true;
	}
	if (changed) {
		MembershipInForceChanged();
	}
}

//! Only what is not committed can be taken back; below that one is enough.
void Core::PruneMemberships() {
	while (memberships.size() > 1 && memberships[1].index <= commit_index) {
		memberships.erase(memberships.begin());
	}
}

void Core::MembershipInForceChanged() {
	ready.membership = InForce();
	if (role == Role::Leader) {
		RebuildProgress();
	}
}

//! Progress of exactly the members but us; of nodes being removed until their removal commits.
void Core::RebuildProgress() {
	for (auto &item : progress) {
		item.second.departing = true;
	}
	for (auto node : AllMembers(InForce())) {
		if (node == config.self) {
			continue;
		}
		auto added = progress.emplace(node, Progress());
		added.first->second.departing = false;
		if (added.second) {
			added.first->second.next = log.LastIndex() + 1;
			added.first->second.last_contact = now;
		}
	}
}

//! Called on a leader when commits of its own term moved.
void Core::FollowUpMembershipCommit() {
	if (InForceIndex() > commit_index) {
		return;
	}
	for (auto item = progress.begin(); item != progress.end();) {
		item = item->second.departing ? progress.erase(item) : std::next(item);
	}
	if (InForce().IsJoint()) {
		if (InForce().auto_leave) {
			LeaveJoint();
		}
		return;
	}
	if (!Contains(InForce().voters, config.self)) {
		// Dissertation §4.2.2: the removed leader steps down once the change is committed, and names a successor so
		// that the group need not wait for an election timeout.
		auto successor = BestSuccessor(true);
		if (successor != NO_NODE) {
			Send(MakeMessage(MessageType::TimeoutNow, successor));
		}
		BecomeFollower(term, NO_NODE);
	}
}

void Core::LeaveJoint() {
	Membership target = InForce();
	target.outgoing.clear();
	target.learners.insert(target.learners.end(), target.learners_next.begin(), target.learners_next.end());
	target.learners = Sorted(target.learners);
	target.learners_next.clear();
	AppendMembership(std::move(target));
	BroadcastAppends();
	MaybeCommit();
}

static void PutNodes(ByteWriter &writer, const std::vector<NodeId> &nodes) {
	writer.PutVarint(nodes.size());
	for (auto node : nodes) {
		writer.PutU64(node);
	}
}

static bool GetNodes(ByteReader &reader, std::vector<NodeId> &nodes) {
	auto count = reader.GetVarint();
	if (reader.Failed() || count > reader.Remaining() / 8) {
		return false;
	}
	for (uint64_t i = 0; i < count; i++) {
		auto node = reader.GetU64();
		if (node == NO_NODE || (!nodes.empty() && nodes.back() >= node)) {
			return false;
		}
		nodes.push_back(node);
	}
	return true;
}

//! Reads the notes of format 2.
static bool GetNotes(ByteReader &reader, std::map<NodeId, std::string> &notes) {
	auto count = reader.GetVarint();
	if (reader.Failed() || count == 0 || count > reader.Remaining() / 9) {
		return false;
	}
	for (uint64_t i = 0; i < count; i++) {
		auto node = reader.GetU64();
		auto text = std::string(reader.GetBytes());
		if (reader.Failed() || node == NO_NODE || (!notes.empty() && notes.rbegin()->first >= node)) {
			return false;
		}
		notes.emplace(node, std::move(text));
	}
	return true;
}

static constexpr uint8_t MEMBERSHIP_FORMAT = 1;
//! Format 1 followed by the notes; never written without any.
static constexpr uint8_t MEMBERSHIP_FORMAT_NOTES = 2;

std::string EncodeMembership(const Membership &membership) {
	std::string out;
	ByteWriter writer(out);
	writer.PutU8(membership.notes.empty() ? MEMBERSHIP_FORMAT : MEMBERSHIP_FORMAT_NOTES);
	PutNodes(writer, membership.voters);
	PutNodes(writer, membership.outgoing);
	PutNodes(writer, membership.learners);
	PutNodes(writer, membership.learners_next);
	writer.PutU8(membership.auto_leave ? 1 : 0);
	if (!membership.notes.empty()) {
		writer.PutVarint(membership.notes.size());
		for (auto &note : membership.notes) {
			writer.PutU64(note.first);
			writer.PutBytes(note.second);
		}
	}
	return out;
}

Result<Membership> DecodeMembership(ByteView bytes) {
	ByteReader reader(bytes);
	Membership membership;
	auto format = reader.GetU8();
	bool is_known = format == MEMBERSHIP_FORMAT || format == MEMBERSHIP_FORMAT_NOTES;
	bool ok = is_known && GetNodes(reader, membership.voters) && GetNodes(reader, membership.outgoing) &&
	          GetNodes(reader, membership.learners) && GetNodes(reader, membership.learners_next);
	auto auto_leave = ok ? reader.GetU8() : 0;
	ok = ok && (format == MEMBERSHIP_FORMAT || GetNotes(reader, membership.notes));
	if (!ok || !reader.Done() || auto_leave > 1) {
		return Status(ErrorCode::Corruption, "malformed membership of " + std::to_string(bytes.size()) +
		                                         " bytes, format " + std::to_string(format) + " (expected format " +
		                                         std::to_string(MEMBERSHIP_FORMAT) + " or " +
		                                         std::to_string(MEMBERSHIP_FORMAT_NOTES) + ")");
	}
	membership.auto_leave = auto_leave == 1;
	return membership;
}

} // namespace raft
} // namespace quack
