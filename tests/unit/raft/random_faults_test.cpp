//! Goal: safety and liveness under faults drawn by a seed. Method: lose, reorder, duplicate and delay messages, cut
//! links, crash nodes with loss of what was not synced, compact logs and change the membership; check after every step
//! that all nodes committed the same entries and that linearizable reads are not stale; then heal and demand progress.
#include <cstdlib>

#include "quack/common/prng.hpp"
#include "unit/raft/test_cluster.hpp"

using namespace quack;
using namespace quack::raft;
using namespace quack::raft::testing;

namespace {

class RandomWorld {
public:
	explicit RandomWorld(uint64_t seed, Sabotage sabotage = Sabotage()) : prng(seed) {
		Config config;
		config.append_entries_max = 1 + prng.Below(4);
		config.inflight_messages_max = 1 + prng.Below(4);
		config.append_bytes_max = 8;
		config.committed_bytes_max = 1 + prng.Below(16);
		config.lease_reads = prng.Chance(1, 2);
		size_t voters = 1 + prng.Below(5);
		std::vector<NodeId> initial;
		for (NodeId id = 1; id <= voters; id++) {
			initial.push_back(id);
		}
		for (NodeId id = 1; id <= voters + 2; id++) {
			config.random_seed = prng.Next();
			config.election_priority = static_cast<uint32_t>(50 * (1 + prng.Below(4)));
			bool is_member = id <= voters;
			cluster.Add(id, is_member ? Voters(initial) : Membership(), config, sabotage);
			cluster.At(id).auto_sync = prng.Chance(1, 2);
		}
		cluster.deliver_on_advance = false;
	}

	void Run(int steps) {
		for (int i = 0; i < steps; i++) {
			Act();
			CheckAgreement();
		}
		HealAndSettle();
	}

private:
	NodeId AnyNode() {
		return 1 + prng.Below(cluster.nodes.size());
	}

	void Act() {
		auto dice = prng.Below(100);
		if (dice < 45) {
			DeliverRandom();
		} else if (dice < 60) {
			cluster.Advance(static_cast<MonotonicNs>(prng.Below(100)) * NS_PER_MS);
		} else if (dice < 72) {
			cluster.Sync(AnyNode());
		} else if (dice < 82) {
			cluster.Propose(AnyNode(), std::to_string(++proposed));
		} else if (dice < 88) {
			StartRead();
		} else {
			ActRarely();
		}
	}

	void ActRarely() {
		auto node = AnyNode();
		switch (prng.Below(9)) {
		case 0:
			if (cluster.IsUp(node)) {
				cluster.Crash(node);
				started_reads.erase(node);
			}
			return;
		case 1:
		case 2:
			if (!cluster.IsUp(node)) {
				cluster.Restart(node);
			}
			return;
		case 3:
			cluster.cut.insert({node, AnyNode()});
			return;
		case 4:
		case 5:
			cluster.cut.clear();
			return;
		case 6:
			cluster.Step(node, TransferLeadershipEvent {});
			return;
		case 7:
			ChangeMembership(node);
			return;
		case 8:
			CompactOrInstall(node);
			return;
		}
	}

	void ChangeMembership(NodeId node) {
		ChangeMembershipEvent change;
		for (NodeId id = 1; id <= cluster.nodes.size(); id++) {
			auto dice = prng.Below(4);
			if (dice <= 1) {
				change.voters.push_back(id);
			} else if (dice == 2) {
				change.learners.push_back(id);
			}
		}
		cluster.Step(node, change);
	}

	void CompactOrInstall(NodeId node) {
		if (!cluster.IsUp(node)) {
			return;
		}
		auto &at = cluster.At(node);
		if (at.wanted_snapshot) {
			bool ok = cluster.IsUp(at.snapshot_from) && cluster.At(at.snapshot_from).applied >= at.applied &&
			          cluster.At(at.snapshot_from).applied >= at.wanted_snapshot->index;
			cluster.InstallSnapshot(node, ok);
		} else if (at.applied <= at.durable_log.LastIndex() && at.unsynced.empty()) {
			cluster.Compact(node, at.applied);
		}
	}

	void DeliverRandom() {
		if (cluster.network.empty()) {
			return;
		}
		auto position = static_cast<std::ptrdiff_t>(prng.Chance(1, 3) ? prng.Below(cluster.network.size()) : 0);
		auto message = cluster.network[static_cast<size_t>(position)];
		if (!prng.Chance(1, 20)) {
			cluster.network.erase(cluster.network.begin() + position);
		}
		if (!prng.Chance(1, 20)) {
			cluster.DeliverOne(message);
		}
	}

	//! A read must see everything that was committed anywhere before it was asked for.
	void StartRead() {
		auto node = AnyNode();
		if (cluster.IsUp(node)) {
			auto request = ++read_count;
			started_reads[node][request] = history.size();
			cluster.Step(node, ReadBarrierEvent {request});
		}
	}

	void CheckAgreement() {
		for (auto &item : cluster.nodes) {
			auto &node = *item.second;
			REQUIRE_MESSAGE(node.fatal.IsOk(), node.fatal.ToString());
			// Compares only what is new on this node since the last look.
			auto &looked = checked[item.first];
			looked = std::min(looked, node.committed.size());
			for (; looked < node.committed.size(); looked++) {
				auto &entry = node.committed[looked];
				REQUIRE(entry.index == looked + 1);
				if (looked == history.size()) {
					history.push_back(entry);
				}
				REQUIRE(history[looked].term == entry.term);
				REQUIRE(*history[looked].payload == *entry.payload);
			}
			for (auto &read : node.reads) {
				if (read.status.IsOk()) {
					REQUIRE(read.read_index >= started_reads[item.first][read.request]);
					reads_answered++;
				}
			}
			node.reads.clear();
		}
	}

	void HealAndSettle() {
		cluster.Heal();
		cluster.deliver_on_advance = true;
		for (auto &item : cluster.nodes) {
			item.second->auto_sync = true;
			if (!item.second->core) {
				cluster.Restart(item.first);
			}
			cluster.Sync(item.first);
		}
		for (int i = 0; i < 2000; i++) {
			cluster.Advance(50 * NS_PER_MS);
			for (auto &item : cluster.nodes) {
				if (item.second->wanted_snapshot) {
					CompactOrInstall(item.first);
				}
			}
			CheckAgreement();
			if (Settled()) {
				return;
			}
		}
		FAIL("no progress after all faults were healed" << Describe());
	}

	std::string Describe() {
		std::string text;
		for (auto &item : cluster.nodes) {
			auto status = cluster.Status(item.first);
			text += "\n" + std::to_string(item.first) + ": role " + std::to_string(int(status.role)) + " term " +
			        std::to_string(status.term) + " leader " + std::to_string(status.leader) + " commit " +
			        std::to_string(status.commit_index) + " applied " + std::to_string(item.second->applied) +
			        " last " + std::to_string(status.last_index) + " durable " + std::to_string(status.durable_index) +
			        " first " + std::to_string(item.second->log.FirstIndex()) +
			        (item.second->wanted_snapshot ? " wants snapshot" : "") + " voters";
			for (auto node : status.membership.voters) {
				text += " " + std::to_string(node);
			}
			text += " outgoing";
			for (auto node : status.membership.outgoing) {
				text += " " + std::to_string(node);
			}
			for (auto &row : status.progress) {
				text += "\n   peer " + std::to_string(row.node) + " state " + std::to_string(int(row.state)) +
				        " match " + std::to_string(row.match) + " next " + std::to_string(row.next);
			}
		}
		return text;
	}

	bool Settled() {
		auto leader = cluster.Leader();
		if (leader == NO_NODE) {
			return false;
		}
		auto status = cluster.Status(leader);
		if (status.membership.IsJoint() || status.commit_index < status.last_index) {
			return false;
		}
		if (proposed < 1000000) {
			proposed = 1000000;
			cluster.Propose(leader, "last");
			return false;
		}
		for (auto &row : status.progress) {
			if (cluster.At(row.node).applied < status.commit_index) {
				return false;
			}
		}
		return cluster.At(leader).applied == status.commit_index;
	}

	Prng prng;
	TestCluster cluster;
	std::vector<Entry> history;
	std::map<NodeId, size_t> checked;
	std::map<NodeId, std::map<uint64_t, LogIndex>> started_reads;
	uint64_t proposed = 0;
	uint64_t read_count = 0;
	uint64_t reads_answered = 0;
};

} // namespace

TEST_CASE("random faults: committed entries agree, reads are fresh, and progress resumes") {
	auto given = std::getenv("RAFT_SEED");
	auto count = std::getenv("RAFT_SEEDS");
	uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1;
	uint64_t seeds = given ? 1 : (count ? std::strtoull(count, nullptr, 10) : 60);
	for (uint64_t seed = first; seed < first + seeds; seed++) {
		CAPTURE(seed);
		RandomWorld world(seed);
		world.Run(3000);
	}
}
