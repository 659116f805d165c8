#include "quack/node/status_report.hpp"

#include <algorithm>

namespace quack {
namespace node {

namespace {

std::string RoleName(raft::Role role) {
	switch (role) {
	case raft::Role::Follower:
		return "follower";
	case raft::Role::PreCandidate:
		return "pre_candidate";
	case raft::Role::Candidate:
		return "candidate";
	case raft::Role::Leader:
		return "leader";
	case raft::Role::Learner:
		return "learner";
	}
	return "unknown";
}

std::string StateName(const raft::ProgressStatus &progress) {
	switch (progress.state) {
	case raft::ProgressStatus::State::Probe:
		return "probe";
	case raft::ProgressStatus::State::Replicate:
		return "replicate";
	case raft::ProgressStatus::State::Snapshot:
		return "snapshot";
	}
	return "unknown";
}

const transport::PeerStatus *FindPeer(const std::vector<transport::PeerStatus> &peers, const std::string &name) {
	for (auto &peer : peers) {
		if (peer.node_id == name) {
			return &peer;
		}
	}
	return nullptr;
}

std::string DescribePeer(const std::string &name, const transport::PeerStatus *peer, MonotonicNs now) {
	if (peer == nullptr) {
		return name + " (no address configured)";
	}
	auto text = name + " (" + peer->address + ")";
	text += peer->connected ? " connected" : " not connected";
	text += peer->last_receive == 0
	            ? std::string(", never heard")
				: ", last heard " + std::to_string((now - peer->last_receive) / NS_PER_MS) + " ms ago";
	if (!peer->last_error.empty()) {
		text += ": " + peer->last_error;
	}
	return text;
}

void DescribePeers(const MemberDirectory &directory, const GroupView &view,
                   const std::vector<transport::PeerStatus> &peers, GroupStatus &row) {
	auto add = [&](raft::NodeId node) {
		if (node == directory.Self()) {
			return;
		}
		PeerLag lag;
		lag.node_id = directory.NameOf(node);
		auto peer = FindPeer(peers, lag.node_id);
		lag.connected = peer != nullptr && peer->connected;
		lag.last_error = peer == nullptr ? "" : peer->last_error;
		for (auto &progress : view.core.progress) {
			if (progress.node == node) {
				lag.match = progress.match;
				lag.lag = view.core.last_index - std::min(view.core.last_index, progress.match);
				lag.state = StateName(progress);
			}
		}
		row.peers.push_back(std::move(lag));
	};
	std::vector<raft::NodeId> nodes = view.core.membership.voters;
	nodes.insert(nodes.end(), view.core.membership.outgoing.begin(), view.core.membership.outgoing.end());
	nodes.insert(nodes.end(), view.core.membership.learners.begin(), view.core.membership.learners.end());
	std::sort(nodes.begin(), nodes.end());
	nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
	for (auto node : nodes) {
		add(node);
	}
	std::sort(row.peers.begin(), row.peers.end(),
	          [](const PeerLag &a, const PeerLag &b) { return a.node_id < b.node_id; });
}

void DescribeLease(const GroupView &view, MonotonicNs now, GroupStatus &row) {
	if (!row.is_leader) {
		row.lease = "none";
		return;
	}
	auto remaining = view.core.lease_until == 0 ? 0 : view.core.lease_until - now;
	// A single voter's lease has no end.
	row.lease_remaining_ms = std::clamp<int64_t>(remaining / NS_PER_MS, 0, INT64_C(1000000));
	row.lease = remaining > 0 ? "valid" : view.core.is_quiet ? "quiet" : "expired";
}

} // namespace

std::string DescribeMissing(const MemberDirectory &directory, const std::vector<transport::PeerStatus> &peers,
                            const raft::Membership &membership, MonotonicNs now) {
	std::string missing;
	std::string present;
	for (auto node : membership.voters) {
		if (node == directory.Self()) {
			continue;
		}
		auto name = directory.NameOf(node);
		auto peer = FindPeer(peers, name);
		auto &text = peer != nullptr && peer->connected ? present : missing;
		text += (text.empty() ? "" : "; ") + DescribePeer(name, peer, now);
	}
	if (missing.empty()) {
		return present.empty() ? std::string("this node is the only voter and is electing itself")
		                       : "all voters are connected, an election is under way: " + present;
	}
	return "voters out of reach: " + missing + (present.empty() ? "" : "; in reach: " + present);
}

GroupStatus DescribeGroup(const RaftEngineConfig &config, const MemberDirectory &directory, const GroupView &view,
                          const std::string &name, const std::vector<transport::PeerStatus> &peers, MonotonicNs now) {
	auto &core = view.core;
	GroupStatus row;
	row.cluster_id = config.cluster_id;
	row.group = core.group;
	row.group_name = name;
	row.node_id = config.node_id;
	row.role = RoleName(core.role);
	row.term = core.term;
	row.leader_id = core.leader == raft::NO_NODE ? std::string() : directory.NameOf(core.leader);
	row.is_leader = core.role == raft::Role::Leader;
	for (auto node : core.membership.voters) {
		row.voters.push_back(directory.NameOf(node));
	}
	for (auto node : core.membership.learners) {
		row.learners.push_back(directory.NameOf(node));
	}
	std::sort(row.voters.begin(), row.voters.end());
	std::sort(row.learners.begin(), row.learners.end());
	row.membership_change_in_progress = core.membership.IsJoint() || core.membership_index > core.commit_index;
	row.commit_index = core.commit_index;
	row.last_log_index = core.last_index;
	row.durable_index = core.durable_index;
	DescribePeers(directory, view, peers, row);
	DescribeLease(view, now, row);
	auto leader = FindPeer(peers, row.leader_id);
	row.linearizable_read_safe = row.is_leader ? row.lease != "expired" : leader != nullptr && leader->connected;
	if (core.leader == raft::NO_NODE) {
		auto waited = view.leaderless_since == 0 ? 0 : (now - view.leaderless_since) / NS_PER_MS;
		row.reason = "no leader for " + std::to_string(waited) +
		             " ms: " + DescribeMissing(directory, peers, core.membership, now);
	} else if (view.is_frozen) {
		row.reason = "its log is being made, or a snapshot is being installed";
	}
	return row;
}

GroupStatus DescribeForming(const RaftEngineConfig &config, const MemberDirectory &directory,
                            const std::vector<transport::PeerStatus> &peers, MonotonicNs now) {
	GroupStatus row;
	row.cluster_id = config.cluster_id;
	row.group_name = "root";
	row.node_id = config.node_id;
	row.role = "forming";
	row.lease = "none";
	row.reason = directory.WaitingFor();
	for (auto &peer : peers) {
		PeerLag lag;
		lag.node_id = peer.node_id;
		lag.connected = peer.connected;
		lag.last_error = peer.last_error;
		row.peers.push_back(std::move(lag));
		if (!peer.last_error.empty() && row.reason.find(peer.last_error) == std::string::npos) {
			row.reason += "; " + DescribePeer(peer.node_id, &peer, now);
		}
	}
	return row;
}

namespace {

std::string MemberRole(const MemberEntry &member) {
	if (member.is_voter) {
		return "voter";
	}
	if (member.is_outgoing) {
		return "leaving";
	}
	return member.is_learner ? "learner" : "removed";
}

std::string MemberBecomes(const MemberEntry &member, bool is_joint, const raft::Membership &membership) {
	if (!is_joint) {
		return "";
	}
	if (member.is_outgoing) {
		return member.becomes_learner ? "learner" : "removed";
	}
	auto is_new = member.is_voter && std::find(membership.outgoing.begin(), membership.outgoing.end(), member.node) ==
	                                     membership.outgoing.end();
	return is_new ? "voter" : "";
}

void DescribeContact(const std::vector<transport::PeerStatus> &peers, MonotonicNs now, MemberStatus &row) {
	auto peer = FindPeer(peers, row.node_id);
	if (peer == nullptr) {
		return;
	}
	row.connected = peer->connected;
	row.last_heard_ms = peer->last_receive == 0 ? -1 : (now - peer->last_receive) / NS_PER_MS;
	row.last_error = peer->last_error.empty() ? peer->last_inbound_refusal : peer->last_error;
}

} // namespace

std::vector<MemberStatus> DescribeMembers(const MemberDirectory &directory, const GroupView *root,
                                          const std::vector<transport::PeerStatus> &peers, MonotonicNs now) {
	std::vector<MemberStatus> rows;
	for (auto &member : directory.Members()) {
		MemberStatus row;
		row.node_id = member.record.name;
		row.incarnation = member.record.incarnation;
		row.host = member.record.host;
		row.port = member.record.port;
		row.role = MemberRole(member);
		// Of two disks under one name only the one that is dialed has a session.
		if (member.node != directory.Self() && row.role != "removed" && directory.IdOf(row.node_id) == member.node) {
			DescribeContact(peers, now, row);
		}
		row.connected = row.connected || member.node == directory.Self();
		if (root != nullptr) {
			row.becomes = MemberBecomes(member, root->core.membership.IsJoint(), root->core.membership);
			row.is_leader = root->core.leader == member.node;
			auto leads = root->core.role == raft::Role::Leader;
			if (leads && member.node == directory.Self()) {
				row.match = root->core.durable_index;
				row.lag = 0;
			}
			for (auto &progress : root->core.progress) {
				if (progress.node == member.node) {
					row.match = progress.match;
					row.lag = root->core.last_index - std::min(root->core.last_index, progress.match);
					row.state = StateName(progress);
				}
			}
		}
		rows.push_back(std::move(row));
	}
	for (auto &applicant : directory.Applicants()) {
		MemberStatus row;
		row.node_id = applicant.record.name;
		row.incarnation = applicant.record.incarnation;
		row.host = applicant.record.host;
		row.port = applicant.record.port;
		row.role = "waiting";
		row.last_heard_ms = (now - applicant.last_seen) / NS_PER_MS;
		rows.push_back(std::move(row));
	}
	return rows;
}

wire::StatusAnswer SummarizeStatus(const std::vector<GroupStatus> &rows) {
	wire::StatusAnswer answer;
	for (auto &row : rows) {
		answer.groups.push_back(
		    {row.group, row.applied_index, row.apply_queue_count, row.apply_queue_bytes, row.reason});
	}
	return answer;
}

} // namespace node
} // namespace quack
