//! A tiny in-memory world for the core's own tests: nodes with a log that may lag in durability, a network that is one
//! list of messages, and a clock that moves when told. No randomness of its own, no faults but those asked for.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "quack/raft/raft.hpp"

namespace quack {
namespace raft {
namespace testing {

//! A log whose durable part is a second copy, refreshed by Sync.
class MemoryLog final : public LogReader {
public:
	LogIndex FirstIndex() const override {
		return start_index + 1;
	}
	LogIndex LastIndex() const override {
		return start_index + entries.size();
	}
	Result<Term> TermAt(LogIndex index) const override {
		if (index == start_index) {
			return start_term;
		}
		if (index < start_index || index > LastIndex()) {
			return Status(ErrorCode::NotFound, "index " + std::to_string(index) + " is not in the log");
		}
		return entries[index - start_index - 1].term;
	}
	Result<std::vector<Entry>> Entries(LogIndex begin, LogIndex end, size_t bytes_max) const override {
		if (fail_reads) {
			return Status(ErrorCode::IoError, "the disk fails on purpose");
		}
		if (begin <= start_index) {
			return Status(ErrorCode::NotFound, "index " + std::to_string(begin) + " is compacted");
		}
		REQUIRE(begin < end);
		REQUIRE(end <= LastIndex() + 1);
		std::vector<Entry> result;
		size_t bytes = 0;
		for (LogIndex index = begin; index < end && (result.empty() || bytes < bytes_max); index++) {
			result.push_back(entries[index - start_index - 1]);
			bytes += result.back().payload->size();
		}
		return result;
	}

	void Append(const std::vector<Entry> &batch) {
		if (batch.empty()) {
			return;
		}
		REQUIRE(batch.front().index > start_index);
		REQUIRE(batch.front().index <= LastIndex() + 1);
		entries.resize(batch.front().index - start_index - 1);
		entries.insert(entries.end(), batch.begin(), batch.end());
	}
	void Compact(LogIndex index) {
		REQUIRE(index <= LastIndex());
		if (index <= start_index) {
			return;
		}
		auto term = TermAt(index).Value();
		entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(index - start_index));
		start_index = index;
		start_term = term;
	}
	void Reset(LogIndex index, Term term) {
		entries.clear();
		start_index = index;
		start_term = term;
	}

	LogIndex start_index = 0;
	Term start_term = 0;
	std::vector<Entry> entries;
	bool fail_reads = false;
};

inline Membership Voters(std::vector<NodeId> voters, std::vector<NodeId> learners = {}) {
	Membership membership;
	membership.voters = std::move(voters);
	membership.learners = std::move(learners);
	return membership;
}

struct TestNode {
	Config config;
	Sabotage sabotage;
	MemoryLog log;
	SnapshotMeta start; //! what the log starts from
	HardState hard_state;
	MemoryLog durable_log;
	HardState durable_hard_state;
	std::unique_ptr<Raft> core;
	//! Readies whose durable part is not synced yet, in order.
	std::deque<Ready> unsynced;
	std::vector<Entry> committed;
	LogIndex applied = 0; //! pretended durable at once
	std::vector<ReadResult> reads;
	std::vector<ProposeResult> proposals;
	std::optional<SnapshotMeta> wanted_snapshot;
	NodeId snapshot_from = NO_NODE;
	Status fatal;
	bool auto_sync = true;
	bool auto_apply = true;
};

class TestCluster {
public:
	//! Called for each message that is put on the network and for each Ready, to write traces.
	std::function<void(NodeId, const Ready &)> on_ready;

	TestNode &Add(NodeId id, const Membership &initial, Config config = Config(), Sabotage sabotage = Sabotage()) {
		auto node = std::make_unique<TestNode>();
		config.self = id;
		node->config = config;
		node->sabotage = sabotage;
		node->start.membership = initial;
		auto &added = *node;
		nodes[id] = std::move(node);
		Boot(id);
		return added;
	}

	TestNode &At(NodeId id) {
		REQUIRE(nodes.count(id) == 1);
		return *nodes.at(id);
	}
	CoreStatus Status(NodeId id) {
		return At(id).core->GetStatus();
	}
	bool IsUp(NodeId id) {
		return nodes.count(id) == 1 && nodes.at(id)->core;
	}

	void Step(NodeId id, decltype(Event::body) body) {
		auto &node = At(id);
		if (!node.core || !node.fatal.IsOk()) {
			return;
		}
		Event event;
		event.now = now;
		event.body = std::move(body);
		auto ready = node.core->Step(event);
		ProcessReady(id, std::move(ready));
	}

	void Propose(NodeId id, const std::string &payload, uint64_t request = 0) {
		ProposeEvent event;
		event.items.push_back({request, MakeSharedBytes(payload)});
		Step(id, event);
	}
	void Receive(NodeId id, const Message &message) {
		Step(id, ReceiveEvent {message});
	}

	//! Everything handed out becomes durable: messages held back leave, the core is told.
	void Sync(NodeId id) {
		auto &node = At(id);
		while (node.core && !node.unsynced.empty()) {
			SyncOne(id);
		}
	}
	//! The oldest unsynced Ready only.
	void SyncOne(NodeId id) {
		auto &node = At(id);
		auto ready = std::move(node.unsynced.front());
		node.unsynced.pop_front();
		if (ready.hard_state) {
			node.durable_hard_state = *ready.hard_state;
		}
		node.durable_log.Append(ready.entries);
		for (auto &message : ready.messages_after_append) {
			network.push_back(std::move(message));
		}
		if (!ready.entries.empty()) {
			Step(id, AppendCompletedEvent {ready.entries.back().index, ready.entries.back().term});
		}
	}

	//! Loses what was not synced. The state machine keeps what it applied.
	void Crash(NodeId id) {
		auto &node = At(id);
		node.core.reset();
		node.unsynced.clear();
		node.log = node.durable_log;
		node.hard_state = node.durable_hard_state;
		node.wanted_snapshot.reset();
		node.reads.clear();
		node.proposals.clear();
	}
	void Restart(NodeId id) {
		if (At(id).core) {
			Crash(id);
		}
		Boot(id);
	}

	//! Moves the clock and ticks every node that is due.
	void Advance(MonotonicNs duration, MonotonicNs tick = 10 * NS_PER_MS) {
		MonotonicNs end = now + duration;
		while (now < end) {
			now = std::min(end, now + tick);
			for (auto &item : nodes) {
				if (item.second->core && item.second->core->NextDeadline() <= now) {
					Step(item.first, TickEvent {});
				}
			}
			if (deliver_on_advance) {
				Deliver();
			}
		}
	}

	//! Delivers until nothing is under way. Messages over a cut link or to a node that is down vanish.
	void Deliver() {
		size_t budget = 200000;
		while (!network.empty()) {
			REQUIRE(budget-- > 0);
			auto message = std::move(network.front());
			network.pop_front();
			DeliverOne(message);
		}
	}
	void DeliverOne(const Message &message) {
		bool is_cut = cut.count({message.from, message.to}) > 0 || (drop && drop(message));
		if (!is_cut && IsUp(message.to)) {
			Receive(message.to, message);
		}
	}
	void Cut(NodeId a, NodeId b) {
		cut.insert({a, b});
		cut.insert({b, a});
	}
	void Isolate(NodeId id) {
		for (auto &item : nodes) {
			if (item.first != id) {
				Cut(id, item.first);
			}
		}
	}
	void Heal() {
		cut.clear();
		drop = nullptr;
	}

	//! Answers a wanted snapshot with the applied state of its source.
	void InstallSnapshot(NodeId id, bool ok = true) {
		auto &node = At(id);
		REQUIRE(node.wanted_snapshot.has_value());
		SnapshotInstalledEvent event;
		event.ok = ok;
		auto &source = At(node.snapshot_from);
		node.wanted_snapshot.reset();
		if (ok) {
			Sync(id);
			event.snapshot.index = source.applied;
			event.snapshot.term = source.log.TermAt(source.applied).Value();
			event.snapshot.membership = MembershipAt(source, source.applied);
			node.log.Reset(event.snapshot.index, event.snapshot.term);
			node.durable_log = node.log;
			node.start = event.snapshot;
			node.applied = event.snapshot.index;
			node.committed = source.committed;
		}
		Step(id, event);
	}
	//! The owner's checkpoint: forgets log entries up to `index`.
	void Compact(NodeId id, LogIndex index) {
		auto &node = At(id);
		REQUIRE(index <= node.applied);
		node.start.membership = MembershipAt(node, index);
		node.log.Compact(index);
		node.durable_log.Compact(index);
		node.start.index = index;
		node.start.term = node.log.start_term;
	}

	NodeId Leader() {
		NodeId found = NO_NODE;
		Term best = 0;
		for (auto &item : nodes) {
			if (item.second->core) {
				auto status = item.second->core->GetStatus();
				if (status.role == Role::Leader && status.term > best) {
					found = item.first;
					best = status.term;
				}
			}
		}
		return found;
	}
	//! Advances until some node leads.
	NodeId WaitForLeader() {
		for (int i = 0; i < 1000; i++) {
			Deliver();
			auto leader = Leader();
			if (leader != NO_NODE && Status(leader).commit_index >= Status(leader).last_index) {
				return leader;
			}
			Advance(10 * NS_PER_MS);
		}
		FAIL("no leader within ten virtual seconds");
		return NO_NODE;
	}
	std::string Payloads(NodeId id) {
		std::string text;
		for (auto &entry : At(id).committed) {
			if (entry.type == EntryType::Normal) {
				text += (text.empty() ? "" : " ") + *entry.payload;
			}
		}
		return text;
	}

	std::map<NodeId, std::unique_ptr<TestNode>> nodes;
	std::deque<Message> network;
	std::set<std::pair<NodeId, NodeId>> cut;
	std::function<bool(const Message &)> drop;
	MonotonicNs now = NS_PER_SECOND;
	bool deliver_on_advance = true;

private:
	void Boot(NodeId id) {
		auto &node = At(id);
		RestoredState restored;
		restored.hard_state = node.hard_state;
		restored.snapshot = node.start;
		restored.applied_index = node.applied;
		node.fatal = quack::Status();
		node.core = std::make_unique<Raft>(node.config, node.log, restored, now, node.sabotage);
	}

	static Membership MembershipAt(const TestNode &node, LogIndex index) {
		Membership membership = node.start.membership;
		for (auto &entry : node.log.entries) {
			if (entry.index <= index && entry.type == EntryType::Membership) {
				membership = DecodeMembership(*entry.payload).Value();
			}
		}
		return membership;
	}

	void ProcessReady(NodeId id, Ready ready) {
		auto &node = At(id);
		if (on_ready) {
			on_ready(id, ready);
		}
		if (!ready.fatal.IsOk()) {
			node.fatal = ready.fatal;
			return;
		}
		node.log.Append(ready.entries);
		if (ready.hard_state) {
			node.hard_state = *ready.hard_state;
		}
		node.core->CheckInvariants();
		network.insert(network.end(), ready.messages.begin(), ready.messages.end());
		node.reads.insert(node.reads.end(), ready.reads.begin(), ready.reads.end());
		node.proposals.insert(node.proposals.end(), ready.proposals.begin(), ready.proposals.end());
		if (ready.install_snapshot) {
			node.wanted_snapshot = ready.install_snapshot;
			node.snapshot_from = ready.snapshot_from;
		}
		auto committed = std::move(ready.committed);
		ready.committed.clear();
		if (ready.hard_state || !ready.entries.empty() || !ready.messages_after_append.empty()) {
			node.unsynced.push_back(std::move(ready));
		}
		for (auto &entry : committed) {
			REQUIRE(entry.index == node.applied + (node.auto_apply ? 1 : Handed(node) + 1));
			node.committed.push_back(entry);
			if (node.auto_apply) {
				node.applied = entry.index;
			}
		}
		if (node.auto_sync) {
			Sync(id);
		}
		if (node.auto_apply && !committed.empty()) {
			Step(id, AppliedEvent {node.applied});
		}
	}
	static LogIndex Handed(const TestNode &node) {
		return node.committed.empty() ? 0 : node.committed.back().index - node.applied;
	}
};

//! Voters 1..count with the same configuration.
inline void AddVoters(TestCluster &cluster, size_t count, const Config &config = Config()) {
	std::vector<NodeId> voters;
	for (NodeId id = 1; id <= count; id++) {
		voters.push_back(id);
	}
	for (auto id : voters) {
		cluster.Add(id, Voters(voters), config);
	}
}

} // namespace testing
} // namespace raft
} // namespace quack
