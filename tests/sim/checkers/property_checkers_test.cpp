//! Each property checker is shown a correct run and the same run with one planted breach: silence, then the alarm.
#include <doctest/doctest.h>

#include "sim/checkers/durability_checker.hpp"
#include "sim/checkers/election_safety_checker.hpp"
#include "sim/checkers/leader_completeness_checker.hpp"
#include "sim/checkers/log_matching_checker.hpp"
#include "sim/checkers/lost_write_checker.hpp"
#include "sim/checkers/read_index_checker.hpp"
#include "sim/checkers/state_machine_safety_checker.hpp"

using namespace quack;
using namespace quack::sim;

namespace {

raft::Entry MakeEntry(raft::LogIndex index, raft::Term term, const std::string &text) {
	raft::Entry entry;
	entry.index = index;
	entry.term = term;
	entry.payload = MakeSharedBytes(text);
	return entry;
}

LogImage MakeLog(const std::vector<raft::Term> &terms) {
	LogImage log;
	for (size_t i = 0; i < terms.size(); i++) {
		log.entries.push_back(MakeEntry(i + 1, terms[i], "x"));
	}
	return log;
}

raft::HardState MakeHardState(raft::Term term, raft::NodeId voted_for) {
	raft::HardState state;
	state.term = term;
	state.voted_for = voted_for;
	return state;
}

} // namespace

TEST_CASE("election safety: a second leader of a term is noticed, also the same node after a restart") {
	ViolationSink sink;
	ElectionSafetyChecker checker(sink);
	checker.OnLeader(1, 1, 5);
	checker.OnLeader(1, 1, 5);
	checker.OnLeader(2, 1, 6);
	CHECK_FALSE(sink.Any());
	SUBCASE("another node") {
		checker.OnLeader(3, 1, 6);
	}
	SUBCASE("another life of the same node") {
		checker.OnLeader(2, 3, 6);
	}
	CHECK(sink.First().checker == "election_safety");
}

TEST_CASE("election safety: a double vote, a changed vote and a term that goes back are noticed") {
	ViolationSink sink;
	ElectionSafetyChecker checker(sink);
	checker.OnVoteGranted(3, 5, 1);
	checker.OnVoteGranted(3, 5, 1);
	checker.OnVoteGranted(3, 6, 2);
	checker.OnHardState(3, MakeHardState(5, 1), MakeHardState(6, 2));
	checker.OnHardState(3, MakeHardState(6, 0), MakeHardState(6, 2));
	CHECK_FALSE(sink.Any());
	SUBCASE("double vote") {
		checker.OnVoteGranted(3, 5, 2);
	}
	SUBCASE("changed vote") {
		checker.OnHardState(3, MakeHardState(6, 2), MakeHardState(6, 1));
	}
	SUBCASE("forgotten vote") {
		checker.OnHardState(3, MakeHardState(6, 2), MakeHardState(6, 0));
	}
	SUBCASE("term goes back") {
		checker.OnHardState(3, MakeHardState(6, 2), MakeHardState(5, 0));
	}
	CHECK(sink.First().checker == "election_safety");
}

TEST_CASE("log matching: one index and term with two contents or two predecessors is noticed") {
	ViolationSink sink;
	LogMatchingChecker checker(sink);
	checker.OnAppend(1, 0, {MakeEntry(1, 1, "a"), MakeEntry(2, 1, "b"), MakeEntry(3, 3, "c")});
	checker.OnAppend(2, 0, {MakeEntry(1, 1, "a"), MakeEntry(2, 2, "other")});
	checker.OnAppend(2, 1, {MakeEntry(2, 1, "b"), MakeEntry(3, 3, "c")});
	CHECK_FALSE(sink.Any());
	SUBCASE("other content") {
		checker.OnAppend(2, 1, {MakeEntry(2, 1, "not b")});
	}
	SUBCASE("other type") {
		raft::Entry entry = MakeEntry(2, 1, "b");
		entry.type = raft::EntryType::NoOp;
		checker.OnAppend(2, 1, {entry});
	}
	SUBCASE("other predecessor") {
		checker.OnAppend(2, 2, {MakeEntry(3, 3, "c")});
	}
	SUBCASE("terms that decrease along a log") {
		checker.OnAppend(2, 3, {MakeEntry(4, 2, "d")});
	}
	CHECK(sink.First().checker == "log_matching");
}

TEST_CASE("leader completeness: a later leader without a committed entry is noticed, an earlier one is not") {
	ViolationSink sink;
	LeaderCompletenessChecker checker(sink);
	checker.OnFirstCommit(1, 1, 1);
	checker.OnFirstCommit(2, 1, 3);
	checker.OnLeader(1, 4, MakeLog({1, 1, 3}));
	checker.OnLeader(2, 2, MakeLog({1}));
	LogImage compacted;
	compacted.base.index = 2;
	compacted.base.term = 1;
	checker.OnLeader(3, 5, compacted);
	CHECK_FALSE(sink.Any());
	SUBCASE("missing") {
		checker.OnLeader(2, 4, MakeLog({1}));
	}
	SUBCASE("replaced") {
		checker.OnLeader(2, 4, MakeLog({1, 2, 2}));
	}
	SUBCASE("commit of an entry of an earlier term by counting") {
		checker.OnLeaderCommit(1, 4, 3, 4);
		CHECK_FALSE(sink.Any());
		checker.OnLeaderCommit(1, 4, 2, 1);
	}
	SUBCASE("a leader that replaces its own log") {
		checker.OnLeaderAppend(1, 3, 4);
		CHECK_FALSE(sink.Any());
		checker.OnLeaderAppend(1, 3, 3);
	}
	CHECK(sink.First().checker == "leader_completeness");
}

TEST_CASE("state machine safety: two entries at one index, a gap and a cut below commit are noticed") {
	ViolationSink sink;
	StateMachineSafetyChecker checker(sink);
	checker.OnCommitted(1, 1, MakeEntry(1, 1, "a"), 3);
	checker.OnCommitted(2, 1, MakeEntry(1, 1, "a"), 3);
	checker.OnCommitted(1, 2, MakeEntry(2, 1, "b"), 3);
	checker.OnAppend(1, 2, 3);
	checker.OnSameIndex(1, 77, 2, 77);
	CHECK_FALSE(sink.Any());
	SUBCASE("not committed by any leader") {
		checker.OnCommitted(1, 3, MakeEntry(3, 1, "c"), 2);
	}
	SUBCASE("other term") {
		checker.OnCommitted(2, 2, MakeEntry(2, 2, "b"), 3);
	}
	SUBCASE("other content") {
		checker.OnCommitted(2, 2, MakeEntry(2, 1, "not b"), 3);
	}
	SUBCASE("gap") {
		checker.OnCommitted(2, 2, MakeEntry(3, 1, "c"), 3);
	}
	SUBCASE("twice") {
		checker.OnCommitted(1, 3, MakeEntry(2, 1, "b"), 3);
	}
	SUBCASE("cut below commit") {
		checker.OnAppend(1, 2, 2);
	}
	SUBCASE("same index, other history") {
		checker.OnSameIndex(1, 77, 2, 78);
	}
	CHECK(sink.First().checker == "state_machine_safety");
}

TEST_CASE("lost write: an acknowledged operation that is missing, doubled, or refused but applied is noticed") {
	ViolationSink sink;
	LostWriteChecker checker(sink);
	checker.OnAcknowledged(1);
	checker.OnAcknowledged(3);
	checker.OnRefused(4);
	// Operation 2 has no known outcome: both is fine.
	checker.CheckFinal(1, {1, 3});
	checker.CheckFinal(1, {3, 2, 1});
	CHECK_FALSE(sink.Any());
	SUBCASE("lost") {
		checker.CheckFinal(2, {1, 2});
	}
	SUBCASE("doubled") {
		checker.CheckFinal(2, {1, 3, 1});
	}
	SUBCASE("unknown but doubled") {
		checker.CheckFinal(2, {1, 3, 2, 2});
	}
	SUBCASE("refused but applied") {
		checker.CheckFinal(2, {1, 3, 4});
	}
	CHECK(sink.First().checker == "lost_write");
}

TEST_CASE("read index: an answer below what was committed when the read was asked for is noticed") {
	ViolationSink sink;
	ReadIndexChecker checker(sink);
	checker.OnAsked(9, 4);
	checker.OnAnswered(1, 9, 4);
	CHECK_FALSE(sink.Any());
	checker.OnAnswered(1, 9, 3);
	CHECK(sink.First().checker == "read_index");
}

TEST_CASE("durability: a vote and an acknowledgement that leave before their bytes are synced are noticed") {
	ViolationSink sink;
	DurabilityChecker checker(sink);
	LogImage synced = MakeLog({1, 1});
	synced.hard_state = MakeHardState(3, 2);
	raft::Message vote;
	vote.type = raft::MessageType::VoteResponse;
	vote.from = 1;
	vote.to = 2;
	vote.term = 3;
	raft::Message acknowledgement;
	acknowledgement.type = raft::MessageType::AppendResponse;
	acknowledgement.from = 1;
	acknowledgement.to = 2;
	acknowledgement.term = 3;
	acknowledgement.log_index = 2;
	raft::Message request;
	request.type = raft::MessageType::VoteRequest;
	request.from = 2;
	request.to = 1;
	request.term = 3;
	raft::Message heartbeat;
	heartbeat.type = raft::MessageType::HeartbeatRequest;
	heartbeat.from = 2;
	heartbeat.to = 1;
	heartbeat.term = 3;
	checker.OnSend(vote, synced);
	checker.OnSend(acknowledgement, synced);
	checker.OnSend(request, synced);
	checker.OnSend(heartbeat, synced);
	CHECK_FALSE(sink.Any());
	SUBCASE("vote for another") {
		vote.to = 3;
		checker.OnSend(vote, synced);
	}
	SUBCASE("vote in a term that is not durable") {
		vote.term = 4;
		checker.OnSend(vote, synced);
	}
	SUBCASE("own vote") {
		request.term = 4;
		checker.OnSend(request, synced);
	}
	SUBCASE("own term") {
		heartbeat.term = 4;
		checker.OnSend(heartbeat, synced);
	}
	SUBCASE("acknowledgement") {
		acknowledgement.log_index = 3;
		checker.OnSend(acknowledgement, synced);
	}
	CHECK(sink.First().checker == "durability");
}

TEST_CASE("durability: a commit needs the synced disks of a quorum, of both majorities while joint") {
	std::vector<LogImage> logs = {MakeLog({1, 1}), MakeLog({1, 1}), MakeLog({1}), MakeLog({1, 2})};
	auto synced = [&](raft::NodeId node) {
		return node <= logs.size() ? &logs[node - 1] : nullptr;
	};
	raft::Membership simple;
	simple.voters = {1, 2, 3};
	raft::Membership joint;
	joint.voters = {1, 2, 3};
	joint.outgoing = {2, 3, 4};
	ViolationSink sink;
	DurabilityChecker checker(sink);
	checker.OnFirstCommit(2, 1, {simple}, synced);
	CHECK_FALSE(sink.Any());
	SUBCASE("another term does not count") {
		checker.OnFirstCommit(2, 2, {simple}, synced);
	}
	SUBCASE("only one of the two majorities") {
		checker.OnFirstCommit(2, 1, {joint}, synced);
	}
	SUBCASE("a disk that is gone does not count") {
		simple.voters = {1, 7, 8};
		checker.OnFirstCommit(2, 1, {simple}, synced);
	}
	CHECK(sink.First().checker == "durability");
}
