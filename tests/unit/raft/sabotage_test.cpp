//! Goal: each sabotage switch breaks exactly the rule it names, and without it the rule holds; else the simulator's
//! canary would prove nothing. Method: the smallest situation in which the rule matters, once healthy and once broken.
#include "unit/raft/test_cluster.hpp"

using namespace quack;
using namespace quack::raft;
using namespace quack::raft::testing;

namespace {

Message Make(MessageType type, NodeId from, Term term, LogIndex index = 0, Term log_term = 0) {
	Message message;
	message.type = type;
	message.from = from;
	message.to = 1;
	message.term = term;
	message.log_index = index;
	message.log_term = log_term;
	return message;
}

Message MakeAppend(NodeId from, Term term, LogIndex previous, Term previous_term, size_t count, LogIndex commit = 0) {
	auto message = Make(MessageType::AppendRequest, from, term, previous, previous_term);
	message.commit_index = commit;
	for (size_t i = 1; i <= count; i++) {
		message.entries.push_back({term, previous + i, EntryType::Normal, MakeSharedBytes("x")});
	}
	return message;
}

//! A node 1 of three whose owner does what it is told; invariants are left out, they would notice first.
struct LoneNode {
	explicit LoneNode(const Sabotage &sabotage) {
		Config config;
		config.self = 1;
		config.append_entries_max = 1;
		RestoredState restored;
		restored.snapshot.membership = Voters({1, 2, 3});
		core = std::make_unique<Raft>(config, log, restored, 0, sabotage);
	}
	Ready Step(decltype(Event::body) body) {
		Event event;
		event.now = now;
		event.body = std::move(body);
		auto ready = core->Step(event);
		REQUIRE_MESSAGE(ready.fatal.IsOk(), ready.fatal.ToString());
		if (!ready.entries.empty()) {
			if (ready.entries.front().index <= log.LastIndex()) {
				cut_below = std::min(cut_below, ready.entries.front().index);
			}
			log.Append(ready.entries);
		}
		return ready;
	}
	Ready Receive(const Message &message) {
		return Step(ReceiveEvent {message});
	}
	void Sync() {
		Step(AppendCompletedEvent {log.LastIndex(), log.TermAt(log.LastIndex()).Value()});
	}
	void BecomeLeader(Term term) {
		Step(CampaignEvent {});
		auto granted = Make(MessageType::VoteResponse, 2, term);
		granted.pre_vote = true;
		Receive(granted);
		granted.pre_vote = false;
		Receive(granted);
		REQUIRE(core->GetStatus().role == Role::Leader);
	}

	MemoryLog log;
	std::unique_ptr<Raft> core;
	MonotonicNs now = 0;
	LogIndex cut_below = 1000;
};

Sabotage Broken(bool Sabotage::*rule, bool is_broken) {
	Sabotage sabotage;
	sabotage.*rule = is_broken;
	return sabotage;
}

} // namespace

TEST_CASE("votes that leave before they are durable") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::vote_without_persisted_term, is_broken));
		auto ready = node.Receive(Make(MessageType::VoteRequest, 2, 1));
		REQUIRE(ready.hard_state.has_value());
		CHECK(ready.messages.size() == (is_broken ? 1 : 0));
		CHECK(ready.messages_after_append.size() == (is_broken ? 0 : 1));
	}
}

TEST_CASE("two votes in one term") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::vote_twice_per_term, is_broken));
		node.Receive(Make(MessageType::VoteRequest, 2, 1));
		auto ready = node.Receive(Make(MessageType::VoteRequest, 3, 1));
		CHECK(ready.messages_after_append.at(0).reject == !is_broken);
	}
}

TEST_CASE("a vote for a stale log") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::vote_for_stale_log, is_broken));
		node.Receive(MakeAppend(2, 1, 0, 0, 2));
		node.now += 2 * NS_PER_SECOND;
		auto ready = node.Receive(Make(MessageType::VoteRequest, 3, 2, 1, 1));
		CHECK(ready.messages_after_append.at(0).reject == !is_broken);
	}
}

TEST_CASE("an acknowledgement before the sync") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::acknowledge_before_sync, is_broken));
		auto ready = node.Receive(MakeAppend(2, 1, 0, 0, 1));
		CHECK(ready.messages.size() == (is_broken ? 1 : 0));
		CHECK(ready.messages_after_append.size() == (is_broken ? 0 : 1));
	}
}

TEST_CASE("a late duplicate that cuts what is committed") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::truncate_committed_suffix, is_broken));
		node.Receive(MakeAppend(2, 1, 0, 0, 3, 3));
		REQUIRE(node.core->GetStatus().commit_index == 3);
		node.Receive(MakeAppend(2, 1, 0, 0, 1));
		CHECK(node.log.LastIndex() == (is_broken ? 1 : 3));
		CHECK((node.cut_below <= 3) == is_broken);
	}
}

TEST_CASE("uncommitted entries handed out") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::apply_past_commit, is_broken));
		auto ready = node.Receive(MakeAppend(2, 1, 0, 0, 3, 1));
		CHECK(ready.committed.size() == (is_broken ? 3 : 1));
	}
}

TEST_CASE("an entry of an earlier term committed by counting") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::commit_old_term_by_count, is_broken));
		node.Receive(MakeAppend(2, 1, 0, 0, 1));
		node.Sync();
		node.now += 2 * NS_PER_SECOND;
		node.BecomeLeader(2);
		REQUIRE(node.log.LastIndex() == 2);
		node.Receive(Make(MessageType::AppendResponse, 3, 2, 1));
		CHECK(node.core->GetStatus().commit_index == (is_broken ? 1 : 0));
	}
}

TEST_CASE("a lease that never ends") {
	for (bool is_broken : {false, true}) {
		LoneNode node(Broken(&Sabotage::lease_without_check_quorum, is_broken));
		node.BecomeLeader(1);
		node.Sync();
		node.Receive(Make(MessageType::AppendResponse, 3, 1, 1));
		REQUIRE(node.core->GetStatus().commit_index == 1);
		node.now += 60 * NS_PER_SECOND;
		auto ready = node.Step(ReadBarrierEvent {1});
		CHECK((ready.reads.size() == 1 && ready.reads[0].status.IsOk()) == is_broken);
		node.Step(TickEvent {});
		CHECK((node.core->GetStatus().role == Role::Leader) == is_broken);
	}
}
