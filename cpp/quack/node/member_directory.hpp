//! Who is who: names, incarnations, numeric ids, addresses; and who may talk to this node.
//!
//! A cluster is formed once, when all members that its nodes' files name have met: each has recorded, durably, under
//! which incarnation every other came first, and has heard from every other that its own incarnation is recorded there.
//! Only then does a node start its groups, with a membership of exactly these incarnations. So no disk can vote in the
//! place of one that was lost: whoever comes back empty finds another incarnation recorded, or a formed cluster. From
//! then on the membership in the log rules, and nodes that are not in it ask to join (DESIGN.md, "Members").
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "quack/node/engine_config.hpp"
#include "quack/node/member_record.hpp"

namespace quack {
namespace node {

//! A node that wanted in and is no member.
struct Applicant {
	MemberRecord record;
	MonotonicNs last_seen = 0;
	//! Disks of the same name that it says are gone for good.
	std::vector<uint64_t> replaces;
};

//! One row of GetMembers: record and place in the newest membership known.
struct MemberEntry {
	MemberRecord record;
	raft::NodeId node = raft::NO_NODE;
	bool is_voter = false;
	bool is_outgoing = false; //! voter of the set that is being left
	bool is_learner = false;
	bool becomes_learner = false;
};

//! Any thread.
class MemberDirectory {
public:
	//! InvalidArgument is found by Check(), not here.
	explicit MemberDirectory(const RaftEngineConfig &config);

	//! InvalidArgument when names repeat, this node is missing, or there is no voter.
	Status Check() const;

	raft::NodeId Self() const {
		return self;
	}
	const std::string &SelfName() const {
		return config.node_id;
	}
	const MemberConfig &SelfConfig() const;

	//! The name, or "node <hex id>" for an id never heard of.
	std::string NameOf(raft::NodeId node) const;
	//! Of the member of that name; of the newer one while a disk is being replaced. NO_NODE when unknown.
	raft::NodeId IdOf(const std::string &name) const;
	//! Whether a message of `node` may come from the peer of that name.
	bool MaySpeakFor(const std::string &name, raft::NodeId node) const;
	//! Whom to dial: members and, until this node is one itself, everybody in its file and every member that one of
	//! them told of, so that it knocks where it is heard.
	std::vector<transport::PeerAddress> PeerAddresses() const;
	//! Members and their places; this node included.
	std::vector<MemberEntry> Members() const;
	std::vector<Applicant> Applicants() const;
	std::optional<Applicant> FindApplicant(const std::string &name) const;
	//! Addresses by which members called themselves and that differ from their records.
	std::map<raft::NodeId, MemberRecord> MovedMembers() const;

	//! Names whose lost disk is still a member while its successor, which says so itself, asks for the place or has
	//! become a learner beside it. Never this node's own name.
	std::vector<std::string> LostDisks() const;

	//! The membership a new group of this node starts with: of a cluster whose members have all met, or the one told by
	//! a node that is a member already. Nothing while neither is known.
	std::optional<raft::Membership> StartMembership() const;
	//! What this node waits for before it can start its groups; empty once they run.
	std::string WaitingFor() const;
	//! From the root group: in force, and newest known to be committed.
	void SetMembership(const raft::Membership &in_force, const raft::Membership &committed);
	//! Newest known to be committed; empty before the groups run.
	raft::Membership CommittedMembership() const;
	//! Nodes that another group than the root group lists, as far as this node knows: a removed one among them still
	//! takes part, because its vote may be needed there to let it go.
	void SetOtherMembers(std::set<raft::NodeId> members);
	//! The words, when the committed membership says that this node was removed; else empty.
	std::string RemovedReason() const;
	//! Members that left by the newest committed membership and were not told yet; they are dialed until EndFarewell.
	std::vector<raft::NodeId> TakeFarewells();
	void EndFarewell(raft::NodeId node);
	//! A session to that peer is up, so it has seen this node's hello. True when that was all it was dialed for.
	bool HasTold(const std::string &name);

	//! What this node says of itself now.
	void FillHello(wire::Hello &hello) const;
	//! Whether the node behind `remote` may talk to this one, with the words for both sides if not. Learns what the
	//! hello tells. `now` is only for the list of applicants.
	Status CheckPeer(const wire::Hello &remote, MonotonicNs now);

private:
	Status CheckFormed(const wire::Hello &remote, const MemberRecord &record, MonotonicNs now);
	Status CheckForming(const wire::Hello &remote, const MemberRecord &record);
	Status CheckBeforeJoin(const wire::Hello &remote, const raft::Membership &membership);
	Status Meet(const wire::Hello &remote, const MemberRecord &record);
	void Learn(const raft::Membership &membership);
	void NoteApplicant(const MemberRecord &record, const wire::Hello &remote, MonotonicNs now);
	bool IsSuccessor(const std::string &name, raft::NodeId node, const std::vector<uint64_t> &replaces) const;
	void Rebuild();
	bool IsListed(raft::NodeId node) const;
	bool IsGone(raft::NodeId node, const MemberRecord &record) const;
	const MemberRecord *CurrentOf(const std::string &name, raft::NodeId &node) const;
	std::string Unmet() const;

	const RaftEngineConfig config;
	raft::NodeId self = raft::NO_NODE;

	mutable std::mutex lock; //! guards the rest
	bool is_formed = false;  //! the root group runs here
	raft::Membership in_force;
	raft::Membership committed;
	std::set<raft::NodeId> other_members;
	//! Told by other members' hellos, which may know more than the own log.
	std::map<raft::NodeId, MemberRecord> learned;
	//! All of the above together.
	std::map<raft::NodeId, MemberRecord> records;
	std::map<raft::NodeId, MemberRecord> moved;
	std::map<std::string, Applicant> applicants;
	//! What members said in their hellos: disks of their names that are gone for good.
	std::map<raft::NodeId, std::vector<uint64_t>> lost_disks;
	std::set<raft::NodeId> farewells;
	std::set<raft::NodeId> farewells_done;

	//! Forming: who came under which incarnation, and who has recorded this node.
	std::map<std::string, uint64_t> met;
	std::set<std::string> confirmed;
	std::optional<raft::Membership> join_membership;
	std::string join_refusal;
	//! Addresses of the members, as those that refused this node told them; the last word per name.
	std::map<std::string, transport::PeerAddress> doors;
	std::string told_removed;
};

} // namespace node
} // namespace quack
