//! The one thread that owns all Raft cores: takes events, steps cores, hands their Readies on.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "quack/node/group_state.hpp"
#include "quack/node/log_writer.hpp"
#include "quack/node/node_beats.hpp"
#include "quack/node/peer_gateway.hpp"
#include "quack/node/snapshot_fetcher.hpp"
#include "quack/node/snapshot_server.hpp"

namespace quack {
namespace node {

//! Everything the loop works with; all outlive it.
struct LoopContext {
	const RaftEngineConfig &config;
	MemberDirectory &directory;
	storage::LogStore &log;
	transport::Transport &transport;
	PeerGateway &gateway;
	StateMachine &state_machine;
	const Clock &clock;
	//! Shared, so that an answer of the transport that comes after the engine is gone finds a closed mailbox.
	std::shared_ptr<LoopMailbox> mailbox;
	DegradedLatch &latch;
	LogWriter &writer;
	ApplyLoop &apply;
	SnapshotFetcher &fetcher;
	SnapshotServer &server;
	const DiskWatch &disk;
	ProposalBudget &budget;
};

//! One group as the loop sees it, for status.
struct GroupView {
	raft::CoreStatus core;
	raft::SoftState soft;
	MonotonicNs leaderless_since = 0;
	bool is_frozen = false;
};

class Gathering;

class ReadyLoop {
public:
	explicit ReadyLoop(LoopContext context);
	~ReadyLoop();

	//! Before Start. Opens the groups that the log knows, at what the state machine holds of them. Those that it does
	//! not hold (yet, or any more) wait for the entries of the root group that say what became of them.
	Status AddGroups(std::vector<storage::RecoveredGroup> recovered);
	//! Before Start, instead of AddGroups: the state these groups had is gone and is fetched from a peer. Corruption
	//! when there is no other member.
	Status AwaitState(std::vector<storage::RecoveredGroup> recovered);
	void Start();
	//! Joins, then answers everything that is still pending. Idempotent.
	void Stop();

	//! Any thread.
	std::vector<GroupView> View() const;
	//! The loop's own alarm: a full or hung disk; empty = none.
	std::string Alarm() const;
	//! Why no group runs although the log has some; empty = they run, or there are none yet.
	std::string AwaitingReason() const;
	//! Membership at the start of the group's log.
	raft::Membership StartMembership(raft::GroupId group) const;
	//! Called on the loop thread to answer StatusAsked; set before Start.
	void SetStatusSource(std::function<std::string()> source) {
		status_source = std::move(source);
	}
	//! Counted by whoever pushes PeerBytes: false = too many wait, drop it.
	bool TakeInboundBytes(size_t bytes);

private:
	// ready_loop.cpp: the thread, the events of raft, disk and state machine
	void Run();
	void RunOnce();
	void RunLive();
	void RunDegraded();
	MonotonicNs WaitTime() const;
	void Handle(LoopEvent &event);
	void On(PeerBytes &event);
	void On(SelfMessages &event);
	void On(EntriesDurable &event);
	void On(LogWasReset &event);
	void On(DiskState &event);
	void On(EntriesApplied &event);
	void On(StateDurable &event);
	void On(SnapshotInstalled &event);
	void On(SnapshotFailed &event);
	void On(PeerChanged &event);
	Status OpenGroup(const storage::RecoveredGroup &recovered, const AppliedPosition &applied);
	void Receive(raft::Message message);
	void DrainDeferred(GroupState &group);
	void WakeForSilentNodes();
	void TickGroups();
	MonotonicNs TickTime(const GroupState &group) const;
	void Truncate(GroupState &group, raft::LogIndex limit);
	void CutLater(GroupState &group);
	void HandOverWhenDiskFails(GroupState &group);

	// ready_loop_step.cpp: one step of a core and what becomes of its Ready
	template <class Body>
	void Step(GroupState &group, Body body);
	void HandleReady(GroupState &group, raft::Ready ready);
	bool HandleCommitted(GroupState &group, std::vector<raft::Entry> committed);
	void HandleSoftState(GroupState &group, const raft::SoftState &soft);
	void PersistReady(GroupState &group, raft::Ready &ready);

	// ready_loop_groups.cpp: which groups run
	void On(GroupsChanged &event);
	void On(LogWasMade &event);
	Status OpenRecovered(std::vector<storage::RecoveredGroup> recovered);
	void AlignGroups();
	void MakeGroup(const GroupDefinition &definition, const AppliedPosition &applied);
	void OpenFrozen(const storage::RecoveredGroup &recovered, const AppliedPosition &applied, LogCommand::Kind kind);
	void Thaw(GroupState &group);
	void CampaignInNewGroup(GroupState &group);
	void Retire(GroupState &group);
	void MoveToState(GroupState &group, const AppliedPosition &applied);
	void PauseApplying();
	void AskForWhatIsGone();
	void RemoveLog(raft::GroupId group);

	// ready_loop_follow.cpp: the members of the other groups
	void On(RootEndKnown &event);
	void FollowRoot(GroupState &group);
	void TakeFromDeparted(GroupState &group, GroupState &root);
	void AskForRootEnd(GroupState &group, GroupState &root, raft::Term term);
	std::string GroupsBehindRoot() const;
	void NoteOtherMembers();

	// ready_loop_spread.cpp: which node leads what
	void On(NewRebalance &event);
	void SpreadLeader(GroupState &group);
	void AskOthersToRebalance(MonotonicNs timeout, const std::shared_ptr<Gathering> &gathering);

	// ready_loop_members.cpp: who takes part
	void On(PeersLearned &event);
	void On(NewMemberChange &event);
	void On(MemberChangeCommitted &event);
	void StartGroups(const raft::Membership &membership);
	void NoteMembership(const GroupState &group);
	void ActOnMembers();
	void DialMembers();
	void LeaveCluster(const std::string &reason);
	void SayHelloAgain(const std::string &peer, std::function<void()> then);
	Status LetGo(GroupState &group, const std::string &name);
	void ForwardMemberChange(GroupState &group, NewMemberChange &event);
	void HandOverThenChange(GroupState &group, NewMemberChange &event);
	void ProposePlan(GroupState &group, MemberPlan plan, MonotonicNs deadline, ConsensusEngine::TextCallback done);
	void CheckMembers(GroupState &group);
	void UpdateAddresses(GroupState &group);
	void ReplaceLostDisks(GroupState &group);

	// ready_loop_state.cpp: a node that has lost its state, not its log
	void AskForState();
	void StateFetched();
	void StateNotFetched();

	// ready_loop_requests.cpp: proposals, reads, transfers, changes
	void On(NewProposals &event);
	void On(NewRead &event);
	void On(NewTransfer &event);
	void On(StatusAsked &event);
	void On(AnswerLater &event);
	void On(ForwardAnswered &event);
	void Route(GroupState &group);
	void Append(GroupState &group);
	void Forward(GroupState &group);
	void AskReads(GroupState &group);
	void ForwardTransfer(GroupState &group, NewTransfer &event);
	//! Asks the known leader; `done` gets the text of its answer, or why there is none.
	void CallLeader(const GroupState &group, const char *method, std::string body, MonotonicNs timeout,
	                ConsensusEngine::TextCallback done);
	void AnswerTransfer(GroupState &group, const raft::TransferResult &result);
	Status TransferFailure(const raft::TransferResult &result) const;
	Status NoGroup(raft::GroupId group) const;
	void Expire(GroupState &group);
	void FailPending(const Status &failure);
	void FailRequests(GroupState &group, const Status &failure);
	void RefuseProposals(std::vector<Proposal> &proposals, const Status &failure);
	//! Why this node takes no proposals of its own now; Ok = it does.
	Status DiskFailure() const;
	void RefuseEvent(LoopEvent &event, const Status &failure);
	Status WaitingFailure(const GroupState &group) const;
	bool HasRequests(const GroupState &group) const;

	bool IsLeader(const GroupState &group) const {
		return group.soft.role == raft::Role::Leader;
	}
	bool DiskIsFull() const {
		return !disk_alarm.empty();
	}
	bool TakesEntries() const;
	GroupState *Find(raft::GroupId group);
	//! Runs after the lock is released.
	void Later(std::function<void()> call) {
		completions.push_back(std::move(call));
	}

	LoopContext context;
	const RaftEngineConfig &config;
	LoopMailbox &mailbox;
	Outbox outbox;
	NodeBeats beats;
	std::function<std::string()> status_source;

	//! Guards the members below; held by the loop while it handles one round of events, and by readers of status. Never
	//! held while sending, waiting or calling back.
	mutable std::mutex lock;
	std::map<raft::GroupId, std::unique_ptr<GroupState>> groups;
	//! Another number whenever the membership of the root group is another, in force or committed.
	uint64_t root_version = 0;
	//! What the log holds of groups that the state does not know; decided when the root group has applied up to
	//! root_replay_end.
	std::map<raft::GroupId, storage::RecoveredGroup> shelved;
	raft::LogIndex root_replay_end = 0;
	//! What the log holds of groups that wait for their state; `groups` is empty meanwhile.
	std::vector<storage::RecoveredGroup> awaiting;
	std::string awaiting_words;
	//! Until then nothing is applied, so that an image that is being fetched does not become older than the state.
	MonotonicNs paused_until = 0;
	MonotonicNs ask_gone_after = 0;
	MonotonicNs move_after = 0; //! of the next leader, by itself
	bool is_state_asked = false;
	size_t state_peer = 0;
	MonotonicNs ask_state_after = 0;
	std::string disk_alarm;
	MonotonicNs now = 0;
	//! Events of the running round, and the next one to handle: a panic in between leaves the rest for the next round.
	std::vector<LoopEvent> round;
	size_t round_next = 0;
	MonotonicNs expired_at = 0;
	uint64_t refused_messages = 0;
	Completions completions;

	std::atomic<size_t> inbound_bytes {0};
	std::atomic<bool> is_stopping {false};
	std::thread thread;
};

} // namespace node
} // namespace quack
