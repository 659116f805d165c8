//! Goal: the small parts of the engine keep their contracts alone. Method: direct calls, no threads.
#include <doctest/doctest.h>

#include "quack/node/group_start.hpp"
#include "quack/node/group_state.hpp"
#include "quack/node/log_view.hpp"
#include "quack/node/member_change.hpp"
#include "quack/node/member_directory.hpp"
#include "quack/node/member_id.hpp"
#include "quack/node/node_beats.hpp"
#include "quack/node/peer_gateway.hpp"
#include "quack/node/proposal_router.hpp"
#include "quack/node/status_report.hpp"
#include "quack/storage/memory_log_store.hpp"

using namespace quack;
using namespace quack::node;

namespace {

raft::Entry MakeEntry(raft::LogIndex index, raft::Term term, const std::string &payload = "p") {
	return {term, index, raft::EntryType::Normal, MakeSharedBytes(payload)};
}

//! Entries first..last in the memory log, all of `term`.
void Store(storage::MemoryLogStore &log, raft::LogIndex first, raft::LogIndex last, raft::Term term) {
	storage::GroupAppend append;
	for (auto index = first; index <= last; index++) {
		append.entries.push_back(MakeEntry(index, term));
	}
	REQUIRE(log.Append({append}).IsOk());
}

struct Outcomes {
	std::vector<ProposeOutcome> list;
	Proposal Make(MonotonicNs deadline = 1000, bool forwarded = false) {
		Proposal proposal;
		proposal.payload = MakeSharedBytes("payload");
		proposal.bytes = 7;
		proposal.deadline = deadline;
		proposal.forwarded = forwarded;
		proposal.done = [this](const ProposeOutcome &outcome) {
			list.push_back(outcome);
		};
		return proposal;
	}
	void Run(Completions &completions) {
		for (auto &call : completions) {
			call();
		}
		completions.clear();
	}
};

} // namespace

TEST_CASE("numeric ids are those of the first release") {
	CHECK(MakeNodeId("n0", 1) == 10801852419936917801ULL);
	CHECK(MakeNodeId("n1", 1) == 7675177152108698305ULL);
	CHECK(MakeNodeId("n0", 2) == 12774155927430245846ULL);
	CHECK(MakeNodeId("", 0) == 18426177448367287922ULL);
	CHECK(MakeNodeId("a-rather-long-node-name.example", 4294967296ULL) == 15603795759784735886ULL);
}

TEST_CASE("a log view shows entries that wait for the writer, replaces suffixes, and lets durable ones go") {
	storage::MemoryLogStore log;
	REQUIRE(log.CreateGroup(raft::ROOT_GROUP, {}).IsOk());
	Store(log, 1, 5, 1);
	LogView view(log.Reader(raft::ROOT_GROUP), {}, 5);
	view.Append({MakeEntry(6, 2, "six"), MakeEntry(7, 2, "seven")});
	CHECK(view.LastIndex() == 7);
	CHECK(view.DurableIndex() == 5);
	CHECK(view.TermAt(5).Value() == 1);
	CHECK(view.TermAt(7).Value() == 2);
	CHECK(view.TermAt(8).GetStatus().Code() == ErrorCode::NotFound);
	auto all = view.Entries(4, 8, 1 << 20);
	REQUIRE(all.IsOk());
	REQUIRE(all.Value().size() == 4);
	CHECK(*all.Value()[3].payload == "seven");
	CHECK(view.Entries(1, 8, 1).Value().size() == 1);
	// 1 byte each from the store, then the bound is reached before the tail.
	CHECK(view.Entries(1, 8, 5).Value().size() == 5);
	CHECK(view.Entries(6, 8, 3).Value().size() == 1);

	// Another leader replaces index 5 on; the batch that ended at 7 then means nothing any more.
	view.Append({MakeEntry(5, 3, "five")});
	CHECK(view.LastIndex() == 5);
	CHECK(view.TermAt(5).Value() == 3);
	view.Flushed(7, 2);
	CHECK(view.DurableIndex() == 4);
	CHECK(*view.Entries(5, 6, 100).Value()[0].payload == "five");
	Store(log, 5, 5, 3);
	view.Flushed(5, 3);
	CHECK(view.DurableIndex() == 5);
	CHECK(view.TailBytes() == 0);
	CHECK(view.TermAt(5).Value() == 3);

	view.Compact({3, 1, {}});
	CHECK(view.FirstIndex() == 4);
	CHECK(view.TermAt(3).Value() == 1);
	CHECK(view.TermAt(2).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(view.Entries(3, 5, 100).GetStatus().Code() == ErrorCode::NotFound);
	view.Reset({100, 9, {}});
	CHECK(view.FirstIndex() == 101);
	CHECK(view.LastIndex() == 100);
	CHECK(view.TermAt(100).Value() == 9);
}

TEST_CASE("a proposal is committed only when its index commits with its term") {
	ProposalBudget budget(10, 1000);
	ProposalRouter router(budget);
	Outcomes outcomes;
	Completions out;
	for (int i = 0; i < 3; i++) {
		REQUIRE(budget.Take(7));
		router.Add(outcomes.Make());
	}
	auto event = router.TakeForAppend(14);
	REQUIRE(event.items.size() == 2);
	CHECK(!router.OnResults({{event.items[0].request, Status::Ok(), 2, 10},
	                         {event.items[1].request, Status::Ok(), 2, 11}},
	                        out));
	event = router.TakeForAppend(100);
	REQUIRE(event.items.size() == 1);
	CHECK(router.OnResults({{event.items[0].request, Status(ErrorCode::Overloaded, "full"), 0, 0}}, out));
	CHECK(router.HasWaiting());
	router.OnCommitted({MakeEntry(9, 2), MakeEntry(10, 2), MakeEntry(11, 3)}, out);
	outcomes.Run(out);
	REQUIRE(outcomes.list.size() == 2);
	CHECK(outcomes.list[0].status.IsOk());
	CHECK(outcomes.list[0].index == 10);
	CHECK(outcomes.list[1].status.Code() == ErrorCode::Unavailable);
	CHECK(budget.Count() == 1);
	router.Expire(1000, Status(ErrorCode::Unavailable, "no leader"), out);
	outcomes.Run(out);
	REQUIRE(outcomes.list.size() == 3);
	CHECK(outcomes.list[2].status.Message() == "no leader");
	CHECK(budget.Count() == 0);
	CHECK(budget.Bytes() == 0);
	CHECK(router.Empty());
}

TEST_CASE("two terms may wait at one index after a lost leadership; each gets its own answer") {
	ProposalBudget budget(10, 1000);
	ProposalRouter router(budget);
	Outcomes outcomes;
	Completions out;
	for (raft::Term term = 2; term <= 4; term += 2) {
		REQUIRE(budget.Take(7));
		router.Add(outcomes.Make());
		auto event = router.TakeForAppend(100);
		CHECK(!router.OnResults({{event.items[0].request, Status::Ok(), term, 10}}, out));
	}
	router.OnCommitted({MakeEntry(10, 4)}, out);
	outcomes.Run(out);
	REQUIRE(outcomes.list.size() == 2);
	CHECK(outcomes.list[0].status.Code() == ErrorCode::Unavailable);
	CHECK(outcomes.list[1].status.IsOk());
}

TEST_CASE("forwarded batches: retried when surely not appended, unknown when the answer is lost or short") {
	ProposalBudget budget(10, 1000);
	ProposalRouter router(budget);
	Outcomes outcomes;
	Completions out;
	for (int i = 0; i < 4; i++) {
		REQUIRE(budget.Take(7));
		router.Add(outcomes.Make(1000, i == 3));
	}
	wire::ProposeRequest request;
	auto batch = router.TakeForForward(400, 1000, "n2", request, out);
	CHECK(batch != 0);
	REQUIRE(request.items.size() == 3);
	CHECK(request.items[0].timeout == 600);
	outcomes.Run(out);
	// What a peer forwarded is not forwarded again.
	REQUIRE(outcomes.list.size() == 1);
	CHECK(outcomes.list[0].status.Code() == ErrorCode::NotLeader);
	CHECK(outcomes.list[0].status.Message().find("'n2'") != std::string::npos);

	wire::ProposeAnswer answer;
	answer.items = {{Status::Ok(), 5}, {Status(ErrorCode::NotLeader, "moved"), 0}};
	CHECK(router.OnForwardAnswer(batch, Status::Ok(), answer, out));
	outcomes.Run(out);
	REQUIRE(outcomes.list.size() == 3);
	CHECK(outcomes.list[1].index == 5);
	CHECK(outcomes.list[2].status.Code() == ErrorCode::OutcomeUnknown);
	CHECK(router.HasWaiting());

	wire::ProposeRequest again;
	batch = router.TakeForForward(400, 1000, "n2", again, out);
	CHECK(router.OnForwardAnswer(batch, Status(ErrorCode::Unavailable, "not connected"), {}, out));
	batch = router.TakeForForward(400, 1000, "n2", again, out);
	CHECK(!router.OnForwardAnswer(batch, Status(ErrorCode::OutcomeUnknown, "session lost"), {}, out));
	outcomes.Run(out);
	REQUIRE(outcomes.list.size() == 4);
	CHECK(outcomes.list[3].status.Code() == ErrorCode::OutcomeUnknown);
	CHECK(!router.OnForwardAnswer(batch, Status::Ok(), answer, out));
	CHECK(budget.Count() == 0);
}

TEST_CASE("a log that lacks what the state holds, or holds something else there, starts anew at the state") {
	auto open = [](storage::MemoryLogStore &log) {
		raft::SnapshotMeta start;
		start.membership.voters = {1, 2, 3};
		REQUIRE(log.CreateGroup(raft::ROOT_GROUP, start).IsOk());
		Store(log, 1, 10, 2);
		auto group = log.Groups().front();
		group.hard_state.term = 3;
		group.hard_state.voted_for = 2;
		return group;
	};
	AppliedPosition applied;
	applied.group = raft::ROOT_GROUP;
	applied.index = 7;
	applied.term = 2;
	{
		storage::MemoryLogStore log;
		auto group = open(log);
		REQUIRE(CatchUpLog(log, group, applied).IsOk());
		CHECK(log.Groups().front().last_index == 10);
		CHECK(group.hard_state.voted_for == 2);
	}
	{
		// Entries 6 to 10 were never committed: the state has another entry 7, of a later term.
		storage::MemoryLogStore log;
		auto group = open(log);
		applied.term = 3;
		REQUIRE(CatchUpLog(log, group, applied).IsOk());
		CHECK(log.Groups().front().snapshot.index == 7);
		CHECK(log.Groups().front().last_index == 7);
		CHECK(group.last_index == 7);
		CHECK(group.hard_state.voted_for == 2); // in term 3 it did vote
	}
	{
		storage::MemoryLogStore log;
		auto group = open(log);
		applied.index = 12;
		applied.term = 5;
		REQUIRE(CatchUpLog(log, group, applied).IsOk());
		CHECK(log.Groups().front().snapshot.index == 12);
		CHECK(group.hard_state.term == 5);
		CHECK(group.hard_state.voted_for == raft::NO_NODE);
		CHECK(group.hard_state.commit_index == 12);
	}
}

TEST_CASE("a lost disk's successor that was lost too gives way to the next; a living disk to nobody") {
	auto record = [](uint64_t incarnation) {
		MemberRecord result;
		result.name = "n2";
		result.incarnation = incarnation;
		return result;
	};
	auto entry = [&](uint64_t incarnation, bool is_voter) {
		MemberEntry result;
		result.record = record(incarnation);
		result.node = result.record.Node();
		result.is_voter = is_voter;
		result.is_learner = !is_voter;
		return result;
	};
	raft::CoreStatus core;
	core.self = 10;
	core.last_index = 50;
	core.membership.voters = {10, 11, record(1).Node()};
	core.membership.learners = {record(2).Node()};
	core.committed_membership = core.membership;
	auto heard = [](raft::NodeId node) {
		raft::ProgressStatus progress;
		progress.node = node;
		progress.match = 50;
		progress.recent_active = true;
		progress.state = raft::ProgressStatus::State::Replicate;
		return progress;
	};
	core.progress = {heard(11)};
	std::vector<MemberEntry> members = {entry(1, true), entry(2, false)};
	MemberChange change;
	change.action = MemberAction::Replace;
	change.name = "n2";
	change.is_by_itself = true;
	Applicant applicant;
	applicant.record = record(3);
	auto plan = PlanMemberChange(change, {core, members, applicant, 0, NS_PER_SECOND});
	REQUIRE_MESSAGE(plan.status.IsOk(), plan.status.ToString());
	CHECK(plan.voters == core.membership.voters);
	CHECK(plan.learners == std::vector<raft::NodeId> {record(3).Node()});

	// The successor lives: it goes on with that one.
	core.progress = {heard(11), heard(record(2).Node())};
	plan = PlanMemberChange(change, {core, members, std::nullopt, 0, NS_PER_SECOND});
	REQUIRE_MESSAGE(plan.status.IsOk(), plan.status.ToString());
	CHECK(plan.voters == std::vector<raft::NodeId> {10, 11, record(2).Node()});
	CHECK(plan.learners.empty());

	// So does the disk that is said to be gone.
	core.progress = {heard(11), heard(record(1).Node())};
	plan = PlanMemberChange(change, {core, members, applicant, 0, NS_PER_SECOND});
	CHECK(plan.status.Code() == ErrorCode::Conflict);
}

TEST_CASE("a node may give its data up when the others alone are a majority that is heard of and caught up") {
	raft::CoreStatus core;
	core.self = 10;
	core.last_index = 5000;
	core.membership.voters = {10, 11, 12};
	core.committed_membership = core.membership;
	raft::ProgressStatus other;
	other.node = 11;
	other.state = raft::ProgressStatus::State::Replicate;
	other.match = 5000;
	other.recent_active = true;
	core.progress = {other};
	MemberEntry asking;
	asking.node = 12;
	asking.record.name = "n2";
	asking.is_voter = true;
	MemberEntry leading;
	leading.node = 10;
	leading.record.name = "n0";
	leading.is_voter = true;
	std::vector<MemberEntry> members = {leading, asking};
	MemberChange change;
	change.action = MemberAction::Reseed;
	change.name = "n2";
	auto plan_of = [&] {
		return PlanMemberChange(change, {core, members, std::nullopt, 0, NS_PER_SECOND});
	};
	CHECK(plan_of().status.IsOk());
	CHECK(plan_of().is_done);

	core.progress[0].match = 10;
	CHECK(plan_of().status.Code() == ErrorCode::Unavailable);
	core.progress[0].match = 5000;
	core.progress[0].recent_active = false;
	CHECK(plan_of().status.Code() == ErrorCode::Unavailable);
	// A learner is not needed.
	members[1].is_voter = false;
	members[1].is_learner = true;
	CHECK(plan_of().status.IsOk());
	core.progress[0].recent_active = true;
	change.name = "n0";
	CHECK(plan_of().status.Message().find("leads") != std::string::npos);
	change.name = "n7";
	CHECK(plan_of().status.Code() == ErrorCode::NotFound);
}

TEST_CASE("who asks again for a removal hears that it is done") {
	raft::CoreStatus core;
	core.self = 10;
	core.membership.voters = {10, 11, 12};
	core.committed_membership = core.membership;
	MemberEntry gone;
	gone.record = {"n3", 7, "h", 1, true};
	gone.node = gone.record.Node();
	MemberChange change;
	change.action = MemberAction::Remove;
	change.name = "n3";
	auto plan = PlanMemberChange(change, {core, {gone}, std::nullopt, 0, NS_PER_SECOND});
	REQUIRE_MESSAGE(plan.status.IsOk(), plan.status.ToString());
	CHECK(plan.is_done);
	CHECK(plan.words == "node 'n3' is removed already");

	change.name = "n4";
	plan = PlanMemberChange(change, {core, {gone}, std::nullopt, 0, NS_PER_SECOND});
	CHECK(plan.status.Code() == ErrorCode::NotFound);

	change.name = "n3";
	change.action = MemberAction::Demote;
	plan = PlanMemberChange(change, {core, {gone}, std::nullopt, 0, NS_PER_SECOND});
	CHECK(plan.status.Code() == ErrorCode::NotFound);
}

TEST_CASE("membership history answers for indexes from its start on") {
	MembershipHistory history;
	raft::Membership first;
	first.voters = {1};
	raft::Membership second;
	second.voters = {1, 2};
	history.Reset(5, first);
	raft::Entry change {3, 9, raft::EntryType::Membership, MakeSharedBytes(raft::EncodeMembership(second))};
	REQUIRE(history.Record({MakeEntry(8, 3), change, MakeEntry(10, 3)}).IsOk());
	CHECK(!history.At(4).has_value());
	CHECK(history.At(5) == first);
	CHECK(history.At(8) == first);
	CHECK(history.At(9) == second);
	history.Prune(9);
	CHECK(!history.At(8).has_value());
	CHECK(history.At(50) == second);
	raft::Entry broken {3, 11, raft::EntryType::Membership, MakeSharedBytes("not a membership")};
	CHECK(history.Record({broken}).Code() == ErrorCode::Corruption);
}

TEST_CASE("the gateway lets only known members in, under the identity they were configured with") {
	RaftEngineConfig config;
	config.cluster_id = "c1";
	config.node_id = "n0";
	config.duckdb_version = "v2.0.1";
	config.storage_version = 68;
	config.members = {{"n0", 1, true, "h", 1, 100}, {"n1", 1, true, "h", 2, 100}};
	PeerGateway gateway(config);
	auto as = [&](const std::string &name, uint64_t incarnation) {
		auto hello = gateway.OwnHello();
		hello.node_name = name;
		hello.incarnation = incarnation;
		hello.node = MakeNodeId(name, incarnation);
		return wire::EncodeHello(hello);
	};
	CHECK(gateway.CheckHello("n1", as("n1", 1)).IsOk());
	auto stranger = gateway.CheckHello("n7", as("n7", 1));
	CHECK(stranger.Code() == ErrorCode::Unauthorized);
	CHECK(stranger.Message().find("not a member") != std::string::npos);
	CHECK(gateway.CheckHello("n1", as("n7", 1)).Message().find("certificate") != std::string::npos);
	auto reborn = gateway.CheckHello("n1", as("n1", 2));
	CHECK(reborn.Code() == ErrorCode::Incompatible);
	CHECK(reborn.Message().find(FormatIncarnation(2)) != std::string::npos);
	CHECK(reborn.Message().find(FormatIncarnation(1)) != std::string::npos);
	CHECK(gateway.CheckHello("n1", "garbage").Code() == ErrorCode::Incompatible);
}

TEST_CASE("records of members come back equal, and nothing else passes for one") {
	MemberRecord record {"n3", 0x0102030405060708ULL, "10.0.0.3", 9494, true};
	auto bytes = EncodeMemberRecord(record);
	CHECK(DecodeMemberRecord(bytes).Value() == record);
	for (size_t size = 0; size < bytes.size(); size++) {
		CHECK(DecodeMemberRecord(ByteView(bytes).substr(0, size)).GetStatus().Code() == ErrorCode::Corruption);
	}
	CHECK_FALSE(DecodeMemberRecord(bytes + "x").IsOk());
	bytes.back() = 2;
	CHECK_FALSE(DecodeMemberRecord(bytes).IsOk());
	CHECK(FormatIncarnation(record.incarnation) == "0102030405060708");
}

TEST_CASE("a node that members removed is refused, and one that only the newest log knows is not") {
	auto record_of = [](const std::string &name, uint64_t incarnation, bool is_removed) {
		return MemberRecord {name, incarnation, "h", 1, is_removed};
	};
	RaftEngineConfig config;
	config.cluster_id = "c1";
	config.node_id = "n0";
	config.members = {{"n0", 1, true, "h", 1, 100}, {"n1", 1, true, "h", 2, 100}};
	MemberDirectory directory(config);
	auto membership = *directory.StartMembership();
	auto gone = record_of("n4", 7, true);
	membership.notes[gone.Node()] = EncodeMemberRecord(gone);
	directory.SetMembership(membership, membership);
	CHECK(directory.WaitingFor().empty());
	auto say = [&](const MemberRecord &record, const raft::Membership &told) {
		wire::Hello hello;
		hello.node_name = record.name;
		hello.incarnation = record.incarnation;
		hello.node = record.Node();
		hello.membership = raft::EncodeMembership(told);
		return directory.CheckPeer(hello, 5);
	};
	CHECK(say(gone, membership).Message().find("was removed") != std::string::npos);
	CHECK(directory.Applicants().empty());
	auto newer = membership;
	auto added = record_of("n5", 9, false);
	newer.learners.push_back(added.Node());
	newer.notes[added.Node()] = EncodeMemberRecord(added);
	CHECK(directory.IdOf("n5") == raft::NO_NODE);
	CHECK(say(added, newer).IsOk());
	CHECK(directory.MaySpeakFor("n5", added.Node()));
	// The removed one is dialed until it has been told.
	CHECK(directory.PeerAddresses().size() == 3);
	CHECK_FALSE(directory.HasTold("n5"));
	CHECK(directory.HasTold("n4"));
	CHECK(directory.PeerAddresses().size() == 2);
	// Knocking is noted, and answered with the command.
	CHECK(say(record_of("n6", 3, false), raft::Membership()).Message().find("voter add n6") != std::string::npos);
	REQUIRE(directory.FindApplicant("n6").has_value());
	CHECK(directory.FindApplicant("n6")->last_seen == 5);
	// This node learns of its own removal from a member.
	auto without = newer;
	without.voters = {MakeNodeId("n1", 1)};
	without.notes[directory.Self()] = EncodeMemberRecord(record_of("n0", 1, true));
	CHECK(directory.RemovedReason().empty());
	CHECK(say(record_of("n1", 1, false), without).IsOk());
	CHECK(directory.RemovedReason().find("voter add n0") != std::string::npos);
}

TEST_CASE("the reason names who is missing, since when, and what was said") {
	RaftEngineConfig config;
	config.node_id = "n0";
	config.members = {{"n0", 1, true, "h", 1, 100}, {"n1", 1, true, "h", 2, 100}, {"n2", 1, true, "h", 3, 100}};
	MemberDirectory directory(config);
	transport::PeerStatus up;
	up.node_id = "n1";
	up.address = "h:2";
	up.connected = true;
	up.last_receive = 90 * NS_PER_MS;
	transport::PeerStatus down;
	down.node_id = "n2";
	down.address = "h:3";
	down.last_receive = 40 * NS_PER_MS;
	down.last_error = "certificate expired";
	auto text = DescribeMissing(directory, {up, down}, *directory.StartMembership(), 100 * NS_PER_MS);
	CHECK(text ==
	      "voters out of reach: n2 (h:3) not connected, last heard 60 ms ago: certificate expired; in reach: n1 "
	      "(h:2) connected, last heard 10 ms ago");
}

TEST_CASE("the members of another group follow: learners first, voters in one step, never without a majority") {
	auto make = [](raft::NodeId self, const raft::Membership &membership, const std::vector<raft::NodeId> &heard) {
		raft::CoreStatus core;
		core.self = self;
		core.role = raft::Role::Leader;
		core.last_index = 5000;
		core.commit_index = 5000;
		core.membership = membership;
		core.committed_membership = membership;
		for (auto node : heard) {
			raft::ProgressStatus progress;
			progress.node = node;
			progress.state = raft::ProgressStatus::State::Replicate;
			progress.match = 5000;
			progress.recent_active = true;
			core.progress.push_back(progress);
		}
		return core;
	};
	raft::Membership three;
	three.voters = {1, 2, 3};
	CHECK(PlanFollowing(make(1, three, {2, 3}), three).is_settled);
	auto noted = three;
	noted.notes[1] = "moved";
	auto plan = PlanFollowing(make(1, three, {2, 3}), noted);
	REQUIRE(plan.change);
	CHECK(plan.change->voters == three.voters);
	CHECK(plan.change->notes == noted.notes);

	raft::Membership replaced;
	replaced.voters = {1, 2, 4};
	replaced.learners = {5};
	plan = PlanFollowing(make(1, three, {2}), replaced);
	REQUIRE(plan.change);
	CHECK(plan.change->voters == three.voters);
	CHECK(plan.change->learners == std::vector<raft::NodeId> {4, 5});
	auto learning = three;
	learning.learners = {4, 5};
	auto core = make(1, learning, {2, 4, 5});
	core.progress[1].match = 1000;
	CHECK(!PlanFollowing(core, replaced).change);
	core.progress[1].match = 4900;
	plan = PlanFollowing(core, replaced);
	REQUIRE(plan.change);
	CHECK(plan.change->voters == replaced.voters);
	CHECK(plan.change->learners == replaced.learners);
	// One that leaves hands over to one that stays; with nobody in reach it waits.
	core = make(3, learning, {2, 4});
	plan = PlanFollowing(core, replaced);
	CHECK(plan.successor == 2);
	CHECK(!plan.change);
	CHECK(!PlanFollowing(make(1, learning, {4}), replaced).change);
	auto joint = learning;
	joint.outgoing = {1, 2, 3};
	CHECK(!PlanFollowing(make(1, joint, {2, 3, 4, 5}), replaced).change);
}

TEST_CASE("the log of a group that the state has retired is removed at start, and only then") {
	class FixedState final : public StateMachine {
	public:
		Status Apply(const std::vector<CommittedEntry> &) override {
			return Status::Ok();
		}
		std::vector<GroupDefinition> Groups() const override {
			return groups;
		}
		std::vector<AppliedPosition> Applied() const override {
			return positions;
		}
		std::vector<AppliedPosition> Durable() const override {
			return positions;
		}
		Status Checkpoint() override {
			return Status::Ok();
		}
		Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() override {
			return Status(ErrorCode::NotSupported, "none");
		}
		std::vector<std::unique_ptr<SnapshotImage>> RetainedSnapshots() override {
			return {};
		}
		Status InstallSnapshot(const std::string &) override {
			return Status::Ok();
		}
		std::vector<GroupDefinition> groups;
		std::vector<AppliedPosition> positions;
	};
	storage::MemoryLogStore log;
	std::vector<storage::RecoveredGroup> recovered;
	for (raft::GroupId group = 1; group <= 3; group++) {
		REQUIRE(log.CreateGroup(group, {}).IsOk());
		storage::RecoveredGroup found;
		found.group = group;
		found.last_index = 5;
		recovered.push_back(found);
	}
	FixedState state;
	state.groups = {{2, "two", {}}};
	state.positions = {{1, 4, 1, {}}};
	// The last entry of the root group may be the one that creates it.
	REQUIRE(RemoveRetired(log, recovered, state).IsOk());
	CHECK(recovered.size() == 3);
	state.positions = {{1, 5, 1, {}}};
	REQUIRE(RemoveRetired(log, recovered, state).IsOk());
	REQUIRE(recovered.size() == 2);
	CHECK(recovered[1].group == 2);
	CHECK(log.CreateGroup(2, {}).Code() == ErrorCode::AlreadyExists);
	CHECK(log.CreateGroup(3, {}).IsOk());
}

TEST_CASE("a beat is due where nothing was sent for an interval, and who says nothing for longer is silent") {
	NodeBeats beats(40);
	CHECK(beats.NextDeadline(100) == INT64_MAX);
	beats.Watch({1, 2}, 104);
	CHECK(beats.TakeDue(104) == std::vector<raft::NodeId> {1, 2});
	CHECK(beats.TakeDue(109).empty());
	CHECK(beats.NextDeadline(109) == 110);
	beats.Sent(1, 110);
	CHECK(beats.TakeDue(112) == std::vector<raft::NodeId> {2});
	CHECK(beats.NextDeadline(112) == 120);
	CHECK(beats.TakeDue(120).size() == 2);

	beats.Heard(2, 120);
	beats.Heard(7, 120); // nobody
	CHECK(beats.Silent(143).empty());
	CHECK(beats.Silent(144) == std::map<raft::NodeId, MonotonicNs> {{1, 104}});
	CHECK(beats.TakeDue(155).size() == 2);
	beats.Heard(2, 116);
	CHECK(beats.NextDeadline(155) == 156); // node 2 falls silent before a beat is due
	// One that is watched anew counts as heard of now, one that is not any more is forgotten.
	beats.Watch({1, 3}, 160);
	CHECK(beats.Silent(199) == std::map<raft::NodeId, MonotonicNs> {{1, 104}});
	CHECK(beats.Silent(200) == std::map<raft::NodeId, MonotonicNs> {{1, 104}, {3, 160}});
}
