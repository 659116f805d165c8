#include "quack/node/member_directory.hpp"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "quack/common/log.hpp"
#include "quack/raft/quorum.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t APPLICANTS_MAX = 64;
constexpr size_t LOST_DISKS_MAX = 64;

std::map<raft::NodeId, MemberRecord> RecordsOf(const raft::Membership &membership) {
	std::map<raft::NodeId, MemberRecord> result;
	for (auto &note : membership.notes) {
		auto record = DecodeMemberRecord(note.second);
		if (record.IsOk()) {
			result[note.first] = std::move(record.Value());
		} else {
			Log(LogLevel::Error, "node", "bad_member_record", {{"message", record.GetStatus().Message()}});
		}
	}
	return result;
}

bool Lists(const raft::Membership &membership, raft::NodeId node) {
	return raft::IsVoter(membership, node) || raft::Contains(membership.learners, node);
}

std::string DiskWords(uint64_t incarnation) {
	return "disk " + FormatIncarnation(incarnation);
}

} // namespace

MemberDirectory::MemberDirectory(const RaftEngineConfig &config_p) : config(config_p), met(config_p.met) {
	for (auto &member : config.members) {
		if (member.node_id == config.node_id) {
			self = MakeNodeId(member.node_id, member.incarnation);
		} else if (member.incarnation != 0) {
			met[member.node_id] = member.incarnation;
			confirmed.insert(member.node_id);
		}
	}
}

Status MemberDirectory::Check() const {
	std::set<std::string> seen;
	std::set<raft::NodeId> ids;
	size_t voter_count = 0;
	for (auto &member : config.members) {
		if (member.node_id.empty() || !seen.insert(member.node_id).second) {
			return Status(ErrorCode::InvalidArgument, "member '" + member.node_id +
			                                              "' is named twice or has an empty name: give every entry of "
			                                              "cp_metadata_peers its own node id");
		}
		ids.insert(MakeNodeId(member.node_id, member.incarnation));
		voter_count += member.voter ? 1 : 0;
	}
	if (ids.size() != config.members.size()) {
		return Status(ErrorCode::InvalidArgument, "two member names have the same numeric id: rename one of them");
	}
	if (self == raft::NO_NODE) {
		return Status(ErrorCode::InvalidArgument,
		              "node '" + config.node_id + "' is not among the members: add it to cp_metadata_peers");
	}
	if (SelfConfig().incarnation == 0) {
		return Status(ErrorCode::InvalidArgument,
		              "node '" + config.node_id + "' has no incarnation: the data directory must name one");
	}
	if (voter_count == 0) {
		return Status(ErrorCode::InvalidArgument, "no member is a voter: mark at least one as voter");
	}
	return Status::Ok();
}

const MemberConfig &MemberDirectory::SelfConfig() const {
	for (auto &member : config.members) {
		if (member.node_id == config.node_id) {
			return member;
		}
	}
	QUACK_CHECK(false, "Check() passed, so this node is a member");
}

std::string MemberDirectory::NameOf(raft::NodeId node) const {
	std::lock_guard<std::mutex> guard(lock);
	if (node == self) {
		return config.node_id;
	}
	auto entry = records.find(node);
	if (entry != records.end()) {
		return entry->second.name;
	}
	for (auto &entry_met : met) {
		if (MakeNodeId(entry_met.first, entry_met.second) == node) {
			return entry_met.first;
		}
	}
	char text[32];
	std::snprintf(text, sizeof(text), "node %016llx", static_cast<unsigned long long>(node));
	return text;
}

bool MemberDirectory::IsListed(raft::NodeId node) const {
	return Lists(in_force, node) || Lists(committed, node) || other_members.count(node) != 0;
}

//! The mark counts only when no list needs the node any more: until then its vote may be needed to let it go.
bool MemberDirectory::IsGone(raft::NodeId node, const MemberRecord &record) const {
	return record.is_removed && !IsListed(node);
}

//! While a disk is replaced there are two of one name: the one that is no voter yet is the one that lives.
const MemberRecord *MemberDirectory::CurrentOf(const std::string &name, raft::NodeId &node) const {
	const MemberRecord *best = nullptr;
	auto rank = [this](raft::NodeId id, const MemberRecord &record) {
		return record.is_removed ? 0 : raft::IsVoter(in_force, id) ? 1 : 2;
	};
	for (auto &entry : records) {
		auto &record = entry.second;
		if (record.name != name || IsGone(entry.first, record)) {
			continue;
		}
		if (best == nullptr || rank(entry.first, record) > rank(node, *best)) {
			best = &record;
			node = entry.first;
		}
	}
	return best;
}

raft::NodeId MemberDirectory::IdOf(const std::string &name) const {
	std::lock_guard<std::mutex> guard(lock);
	if (name == config.node_id) {
		return self;
	}
	auto node = raft::NO_NODE;
	return CurrentOf(name, node) == nullptr ? raft::NO_NODE : node;
}

bool MemberDirectory::MaySpeakFor(const std::string &name, raft::NodeId node) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = records.find(node);
	return entry != records.end() && entry->second.name == name && !IsGone(node, entry->second);
}

std::vector<transport::PeerAddress> MemberDirectory::PeerAddresses() const {
	std::lock_guard<std::mutex> guard(lock);
	std::map<std::string, transport::PeerAddress> result;
	if (!is_formed || !IsListed(self)) {
		for (auto &member : config.members) {
			result[member.node_id] = {member.node_id, member.host, member.port};
		}
	}
	if (!is_formed) {
		for (auto &door : doors) {
			result[door.first] = door.second;
		}
	}
	for (auto &entry : records) {
		auto node = raft::NO_NODE;
		auto current = CurrentOf(entry.second.name, node);
		if (current != nullptr) {
			result[current->name] = current->Address();
		} else if (farewells.count(entry.first) != 0) {
			result[entry.second.name] = entry.second.Address();
		}
	}
	result.erase(config.node_id);
	std::vector<transport::PeerAddress> list;
	for (auto &entry : result) {
		list.push_back(entry.second);
	}
	return list;
}

std::vector<MemberEntry> MemberDirectory::Members() const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<MemberEntry> result;
	for (auto &entry : records) {
		MemberEntry member;
		member.record = entry.second;
		member.node = entry.first;
		member.is_voter = raft::Contains(in_force.voters, entry.first);
		member.is_outgoing = !member.is_voter && raft::Contains(in_force.outgoing, entry.first);
		member.is_learner = raft::Contains(in_force.learners, entry.first);
		member.becomes_learner = raft::Contains(in_force.learners_next, entry.first);
		result.push_back(std::move(member));
	}
	std::sort(result.begin(), result.end(), [](const MemberEntry &a, const MemberEntry &b) {
		return std::tie(a.record.name, a.record.is_removed, a.node) <
		       std::tie(b.record.name, b.record.is_removed, b.node);
	});
	return result;
}

std::vector<Applicant> MemberDirectory::Applicants() const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<Applicant> result;
	for (auto &entry : applicants) {
		result.push_back(entry.second);
	}
	return result;
}

std::optional<Applicant> MemberDirectory::FindApplicant(const std::string &name) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = applicants.find(name);
	return entry == applicants.end() ? std::nullopt : std::optional<Applicant>(entry->second);
}

std::map<raft::NodeId, MemberRecord> MemberDirectory::MovedMembers() const {
	std::lock_guard<std::mutex> guard(lock);
	return moved;
}

//! Whether a listed member of that name is one of the disks that `node` says are gone.
bool MemberDirectory::IsSuccessor(const std::string &name, raft::NodeId node,
                                  const std::vector<uint64_t> &replaces) const {
	return std::any_of(replaces.begin(), replaces.end(), [&](uint64_t incarnation) {
		auto lost = MakeNodeId(name, incarnation);
		return lost != node && IsListed(lost);
	});
}

std::vector<std::string> MemberDirectory::LostDisks() const {
	std::lock_guard<std::mutex> guard(lock);
	std::set<std::string> names;
	for (auto &entry : applicants) {
		auto &applicant = entry.second;
		if (IsSuccessor(entry.first, applicant.record.Node(), applicant.replaces)) {
			names.insert(entry.first);
		}
	}
	for (auto &entry : lost_disks) {
		auto record = records.find(entry.first);
		if (record != records.end() && IsListed(entry.first) &&
		    IsSuccessor(record->second.name, entry.first, entry.second)) {
			names.insert(record->second.name);
		}
	}
	names.erase(config.node_id);
	return {names.begin(), names.end()};
}

std::string MemberDirectory::Unmet() const {
	std::string names;
	for (auto &member : config.members) {
		if (member.node_id == config.node_id || (met.count(member.node_id) && confirmed.count(member.node_id))) {
			continue;
		}
		names +=
		    (names.empty() ? "" : ", ") + member.node_id + " (" + member.host + ":" + std::to_string(member.port) + ")";
	}
	return names;
}

std::optional<raft::Membership> MemberDirectory::StartMembership() const {
	std::lock_guard<std::mutex> guard(lock);
	if (join_membership) {
		return join_membership;
	}
	if (!Unmet().empty()) {
		return std::nullopt;
	}
	raft::Membership membership;
	for (auto &member : config.members) {
		MemberRecord record;
		record.name = member.node_id;
		record.incarnation = member.node_id == config.node_id ? member.incarnation : met.at(member.node_id);
		record.host = member.host;
		record.port = member.port;
		(member.voter ? membership.voters : membership.learners).push_back(record.Node());
		membership.notes[record.Node()] = EncodeMemberRecord(record);
	}
	std::sort(membership.voters.begin(), membership.voters.end());
	std::sort(membership.learners.begin(), membership.learners.end());
	return membership;
}

std::string MemberDirectory::WaitingFor() const {
	std::lock_guard<std::mutex> guard(lock);
	if (is_formed) {
		return "";
	}
	if (!join_refusal.empty()) {
		return join_refusal;
	}
	return "the cluster is formed when all members named in cp_metadata_peers have met once; node '" + config.node_id +
	       "' waits for " + Unmet();
}

void MemberDirectory::Rebuild() {
	records = learned;
	for (auto membership : {&committed, &in_force}) {
		for (auto &entry : RecordsOf(*membership)) {
			records[entry.first] = entry.second;
		}
	}
	for (auto entry = moved.begin(); entry != moved.end();) {
		auto record = records.find(entry->first);
		auto is_done = record == records.end() ||
		               (record->second.host == entry->second.host && record->second.port == entry->second.port);
		entry = is_done ? moved.erase(entry) : std::next(entry);
	}
}

raft::Membership MemberDirectory::CommittedMembership() const {
	std::lock_guard<std::mutex> guard(lock);
	return committed;
}

void MemberDirectory::SetMembership(const raft::Membership &in_force_p, const raft::Membership &committed_p) {
	std::lock_guard<std::mutex> guard(lock);
	auto before = records;
	is_formed = true;
	join_refusal.clear();
	in_force = in_force_p;
	committed = committed_p;
	Rebuild();
	for (auto &entry : records) {
		auto known = before.find(entry.first);
		auto has_left = entry.second.is_removed && known != before.end() && !known->second.is_removed;
		if (has_left && entry.first != self) {
			farewells.insert(entry.first);
		}
	}
	for (auto &entry : before) {
		// A change that was taken back.
		auto record = records.find(entry.first);
		if (record == records.end() || !record->second.is_removed) {
			farewells.erase(entry.first);
		}
	}
	for (auto entry = applicants.begin(); entry != applicants.end();) {
		entry = records.count(entry->second.record.Node()) ? applicants.erase(entry) : std::next(entry);
	}
	auto &own = SelfConfig();
	auto record = records.find(self);
	if (record != records.end() && (record->second.host != own.host || record->second.port != own.port)) {
		moved[self] = {own.node_id, own.incarnation, own.host, own.port, false};
	}
}

void MemberDirectory::SetOtherMembers(std::set<raft::NodeId> members) {
	std::lock_guard<std::mutex> guard(lock);
	other_members = std::move(members);
}

std::string MemberDirectory::RemovedReason() const {
	std::lock_guard<std::mutex> guard(lock);
	auto record = records.find(self);
	auto is_removed = is_formed && record != records.end() && IsGone(self, record->second);
	if (!is_removed && told_removed.empty()) {
		return "";
	}
	return "node '" + config.node_id + "' (" + DiskWords(SelfConfig().incarnation) +
	       ") was removed from the cluster; it takes no part any more. To let this machine join again: stop the node, "
	       "empty its data_dir, start it, and run: quack cluster voter add " +
	       config.node_id;
}

std::vector<raft::NodeId> MemberDirectory::TakeFarewells() {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<raft::NodeId> result;
	for (auto node : farewells) {
		if (!IsListed(node) && farewells_done.insert(node).second) {
			result.push_back(node);
		}
	}
	return result;
}

void MemberDirectory::EndFarewell(raft::NodeId node) {
	std::lock_guard<std::mutex> guard(lock);
	farewells.erase(node);
}

bool MemberDirectory::HasTold(const std::string &name) {
	std::lock_guard<std::mutex> guard(lock);
	for (auto node = farewells.begin(); node != farewells.end(); ++node) {
		auto record = records.find(*node);
		if (record != records.end() && record->second.name == name && !IsListed(*node)) {
			farewells.erase(node);
			return true;
		}
	}
	return false;
}

void MemberDirectory::FillHello(wire::Hello &hello) const {
	auto &own = SelfConfig();
	hello.node_name = config.node_id;
	hello.node = self;
	hello.incarnation = own.incarnation;
	hello.host = own.host;
	hello.port = own.port;
	hello.replaces = config.replaces;
	std::lock_guard<std::mutex> guard(lock);
	auto told = committed;
	for (auto &entry : records) {
		// Nobody is told of its removal while a group needs it.
		if (entry.second.is_removed && IsListed(entry.first) && told.notes.count(entry.first) != 0) {
			auto record = entry.second;
			record.is_removed = false;
			told.notes[entry.first] = EncodeMemberRecord(record);
		}
	}
	hello.membership = is_formed ? raft::EncodeMembership(told) : std::string();
	hello.met = is_formed ? std::map<std::string, uint64_t>() : met;
	hello.restored_from = is_formed ? std::string() : config.restored_from;
}

//! Another member may know newer members than the own log, whose messages are needed to learn of them.
void MemberDirectory::Learn(const raft::Membership &membership) {
	for (auto &entry : RecordsOf(membership)) {
		if (records.count(entry.first) == 0 && !entry.second.is_removed) {
			learned[entry.first] = entry.second;
		}
	}
	auto own = membership.notes.find(self);
	if (own != membership.notes.end() && !Lists(membership, self)) {
		auto record = DecodeMemberRecord(own->second);
		if (record.IsOk() && record.Value().is_removed) {
			told_removed = "told by a member";
		}
	}
	Rebuild();
}

void MemberDirectory::NoteApplicant(const MemberRecord &record, const wire::Hello &remote, MonotonicNs now) {
	if (applicants.count(record.name) == 0 && applicants.size() >= APPLICANTS_MAX) {
		auto oldest = std::min_element(applicants.begin(), applicants.end(),
		                               [](auto &a, auto &b) { return a.second.last_seen < b.second.last_seen; });
		applicants.erase(oldest);
	}
	applicants[record.name] = {record, now, remote.replaces};
}

Status MemberDirectory::CheckPeer(const wire::Hello &remote, MonotonicNs now) {
	MemberRecord record;
	record.name = remote.node_name;
	record.incarnation = remote.incarnation;
	record.host = remote.host;
	record.port = remote.port;
	if (remote.node != record.Node()) {
		return Status(ErrorCode::Incompatible, "node '" + remote.node_name +
		                                           "' names itself by an id that does not "
		                                           "fit its name and disk: run the same release on both nodes");
	}
	std::lock_guard<std::mutex> guard(lock);
	return is_formed ? CheckFormed(remote, record, now) : CheckForming(remote, record);
}

Status MemberDirectory::CheckFormed(const wire::Hello &remote, const MemberRecord &record, MonotonicNs now) {
	auto theirs = raft::DecodeMembership(remote.membership);
	auto known = records.find(remote.node);
	if (known != records.end() && IsGone(remote.node, known->second)) {
		// It came back without knowing. Dialing it tells it: our hello shows its mark.
		farewells.insert(remote.node);
		return Status(ErrorCode::Unauthorized,
		              "node '" + record.name + "' (" + DiskWords(record.incarnation) +
		                  ") was removed from the cluster. To let its machine join again: stop the node, empty its "
		                  "data_dir, start it, and run: quack cluster voter add " +
		                  record.name);
	}
	if (known != records.end()) {
		if (!record.host.empty() && (record.host != known->second.host || record.port != known->second.port)) {
			moved[remote.node] = record;
		}
		if (!remote.replaces.empty() && (lost_disks.count(remote.node) || lost_disks.size() < LOST_DISKS_MAX)) {
			lost_disks[remote.node] = remote.replaces;
		}
		if (theirs.IsOk()) {
			Learn(theirs.Value());
		}
		return Status::Ok();
	}
	if (theirs.IsOk() && Lists(theirs.Value(), self) && Lists(theirs.Value(), remote.node)) {
		// A member that this node's own log does not reach yet.
		Learn(theirs.Value());
		return Status::Ok();
	}
	if (!remote.restored_from.empty()) {
		return Status(ErrorCode::Incompatible,
		              "node '" + record.name + "' holds the restored backup " + remote.restored_from +
		                  ", but cluster '" + config.cluster_id +
		                  "' was formed without it: its state is not this cluster's. Stop it, empty its data_dir and "
		                  "start it to let it join");
	}
	NoteApplicant(record, remote, now);
	auto node = raft::NO_NODE;
	auto current = CurrentOf(record.name, node);
	if (current != nullptr && IsSuccessor(record.name, remote.node, remote.replaces)) {
		return Status(ErrorCode::Unavailable,
		              "node '" + record.name + "' moved a damaged log aside and comes with the new " +
		                  DiskWords(record.incarnation) + "; the leader lets it take the place of " +
		                  DiskWords(current->incarnation) +
		                  " by itself as soon as a majority of the voters is in reach");
	}
	if (current != nullptr) {
		return Status(ErrorCode::Incompatible,
		              "node '" + record.name + "' comes with " + DiskWords(record.incarnation) +
		                  ", the cluster knows it with " + DiskWords(current->incarnation) +
		                  ": an empty or foreign data_dir is a new member, it must not vote in the place of the old "
		                  "one. Start it with its old data_dir, or let the new one take its place: quack cluster node "
		                  "replace " +
		                  record.name);
	}
	return Status(ErrorCode::Unauthorized, "node '" + record.name + "' (" + DiskWords(record.incarnation) +
	                                           ") is not a member of cluster '" + config.cluster_id +
	                                           "'. To let it in: quack cluster voter add " + record.name);
}

Status MemberDirectory::CheckForming(const wire::Hello &remote, const MemberRecord &record) {
	if (!remote.membership.empty()) {
		auto membership = raft::DecodeMembership(remote.membership);
		return membership.IsOk() ? CheckBeforeJoin(remote, membership.Value()) : membership.GetStatus();
	}
	auto is_configured = std::any_of(config.members.begin(), config.members.end(),
	                                 [&](const MemberConfig &member) { return member.node_id == record.name; });
	if (!is_configured) {
		return Status(ErrorCode::Unauthorized, "node '" + record.name + "' is not a member of cluster '" +
		                                           config.cluster_id + "' as node '" + config.node_id +
		                                           "' knows it: add it to cp_metadata_peers of all nodes");
	}
	return Meet(remote, record);
}

//! This node has no log; the other one is a member of a formed cluster.
Status MemberDirectory::CheckBeforeJoin(const wire::Hello &remote, const raft::Membership &membership) {
	if (Lists(membership, self)) {
		join_membership = membership;
		Learn(membership);
		return Status::Ok();
	}
	for (auto &entry : RecordsOf(membership)) {
		if (Lists(membership, entry.first)) {
			doors[entry.second.name] = entry.second.Address();
		}
	}
	for (auto &entry : RecordsOf(membership)) {
		auto is_own_name = entry.second.name == config.node_id && Lists(membership, entry.first);
		auto is_lost = std::count(config.replaces.begin(), config.replaces.end(), entry.second.incarnation) != 0;
		if (is_own_name && is_lost) {
			join_refusal = "the log of node '" + config.node_id + "' was damaged and moved aside with " +
			               DiskWords(entry.second.incarnation) + "; the new " + DiskWords(SelfConfig().incarnation) +
			               " takes its place by itself as soon as a majority of the voters is in reach";
			return Status(ErrorCode::Unavailable, join_refusal);
		}
		if (is_own_name) {
			join_refusal = "the cluster knows node '" + config.node_id + "' with " +
			               DiskWords(entry.second.incarnation) + ", this data_dir is new (" +
			               DiskWords(SelfConfig().incarnation) +
			               "): it is a new member and must not vote in the place of the old one. Start the node with "
			               "its old data_dir, or let this one take its place: quack cluster node replace " +
			               config.node_id;
			return Status(ErrorCode::Incompatible, join_refusal);
		}
	}
	join_refusal = "node '" + config.node_id + "' (" + DiskWords(SelfConfig().incarnation) +
	               ") is not a member of cluster '" + config.cluster_id + "', which is formed as node '" +
	               remote.node_name + "' says. To let it in: quack cluster voter add " + config.node_id;
	return Status(ErrorCode::Unauthorized, join_refusal);
}

//! Both have no log yet.
Status MemberDirectory::Meet(const wire::Hello &remote, const MemberRecord &record) {
	if (remote.restored_from != config.restored_from) {
		auto words = [](const std::string &restored) {
			return restored.empty() ? std::string("nothing") : "backup " + restored;
		};
		return Status(ErrorCode::Incompatible,
		              "the first members of a cluster must hold the same state: node '" + config.node_id + "' holds " +
		                  words(config.restored_from) + ", node '" + record.name + "' holds " +
		                  words(remote.restored_from) +
		                  ". Stop the nodes, empty their data_dirs and run on each: quack restore LOCATION --config "
		                  "FILE");
	}
	auto own = remote.met.find(config.node_id);
	auto own_incarnation = SelfConfig().incarnation;
	if (own != remote.met.end() && own->second != own_incarnation) {
		confirmed.erase(record.name);
		return Status(ErrorCode::Incompatible,
		              "node '" + config.node_id + "' comes with " + DiskWords(own_incarnation) + ", node '" +
		                  record.name + "' met it with " + DiskWords(own->second) +
		                  " while the cluster was being formed: start it with that data_dir, or, as there are no data "
		                  "yet, stop all nodes and empty the data_dir of each");
	}
	auto known = met.find(record.name);
	if (known != met.end() && known->second != record.incarnation) {
		confirmed.erase(record.name); // what the lost disk had recorded is gone
		return Status(ErrorCode::Incompatible,
		              "node '" + record.name + "' comes with " + DiskWords(record.incarnation) + ", node '" +
		                  config.node_id + "' met it with " + DiskWords(known->second) +
		                  " while the cluster was being formed: start it with that data_dir, or, as there are no data "
		                  "yet, stop all nodes and empty the data_dir of each");
	}
	if (known == met.end()) {
		met[record.name] = record.incarnation;
		auto status = config.save_met ? config.save_met(met) : Status::Ok();
		if (!status.IsOk()) {
			met.erase(record.name);
			return status;
		}
	}
	if (own != remote.met.end()) {
		confirmed.insert(record.name);
	}
	return Status::Ok();
}

} // namespace node
} // namespace quack
