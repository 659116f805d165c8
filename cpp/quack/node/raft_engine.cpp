#include "quack/node/raft_engine.hpp"

#include <algorithm>
#include <chrono>

#include "quack/common/limits.hpp"
#include "quack/common/log.hpp"
#include "quack/node/group_start.hpp"
#include "quack/node/status_report.hpp"

namespace quack {
namespace node {

namespace {

//! A peer's clock arithmetic gone wrong must not pin memory here for ever.
constexpr MonotonicNs FORWARD_TIMEOUT_MAX = 600 * NS_PER_SECOND;

//! The pending answer to a forwarded batch: sent when its last proposal is decided.
class ForwardedBatch {
public:
	ForwardedBatch(size_t count, transport::Responder respond_p) : respond(std::move(respond_p)), missing(count) {
		answer.items.resize(count);
	}
	void Set(size_t position, const ProposeOutcome &outcome) {
		bool is_complete = false;
		{
			std::lock_guard<std::mutex> guard(lock);
			answer.items[position] = {outcome.status, outcome.index};
			missing--;
			is_complete = missing == 0;
		}
		if (is_complete) {
			respond(Encode(answer));
		}
	}

private:
	transport::Responder respond;
	std::mutex lock; //! guards the two below until the last Set
	wire::ProposeAnswer answer;
	size_t missing;
};

ConsensusEngine::TextCallback AnswerText(transport::Responder respond) {
	return [respond = std::move(respond)](Result<std::string> text) {
		wire::TextAnswer answer;
		if (text.IsOk()) {
			answer.text = std::move(text.Value());
		} else {
			answer.status = text.GetStatus();
		}
		respond(Encode(answer));
	};
}

//! Waits for callbacks, which may come later than anybody waits: shared with them.
class CallbackWait {
public:
	void Expect() {
		std::lock_guard<std::mutex> guard(lock);
		missing++;
	}
	//! Runs `note` under the lock.
	void Arrive(const std::function<void()> &note) {
		std::lock_guard<std::mutex> guard(lock);
		note();
		missing--;
		changed.notify_all();
	}
	//! Until all have come, at most so long; then runs `take` under the lock.
	void WaitFor(MonotonicNs timeout, const std::function<void()> &take) {
		std::unique_lock<std::mutex> guard(lock);
		changed.wait_for(guard, std::chrono::nanoseconds(std::max<MonotonicNs>(timeout, 0)),
		                 [this] { return missing == 0; });
		take();
	}

private:
	std::mutex lock;
	std::condition_variable changed;
	size_t missing = 0;
};

} // namespace

class RaftEngine::Parts {
public:
	Parts(const RaftEngineConfig &config_p, storage::LogStore &log_p, transport::Transport &transport_p,
	      PeerGateway &gateway_p, StateMachine &state_machine_p, const Clock &clock_p)
	    : config(config_p), directory(*gateway_p.Directory()), log(log_p), transport(transport_p), gateway(gateway_p),
	      state_machine(state_machine_p), clock(clock_p), mailbox(std::make_shared<LoopMailbox>()),
	      budget(config.pending_proposals_max, config.pending_proposal_bytes_max),
	      writer(config, directory, log, transport, clock, *mailbox, latch), disk(config, writer, state_machine),
	      apply(config, state_machine, clock, disk, *mailbox, latch),
	      fetcher(config, directory, transport, clock, apply, *mailbox, latch),
	      server(config, state_machine, clock, latch,
		         [this](raft::GroupId group) { return loop.StartMembership(group); }),
	      loop({config, directory, log, transport, gateway, state_machine, clock, mailbox, latch, writer, apply,
		        fetcher, server, disk, budget}) {
		latch.AddWatcher([this] {
			mailbox->Wake();
			writer.Wake();
			apply.WakeAll();
		});
	}

	Status OpenGroups();
	Status CreateRootGroup(std::vector<storage::RecoveredGroup> &recovered);
	void StopThreads(bool is_graceful);
	void HandOver(RaftEngine &engine, MonotonicNs timeout);
	void Refuse(Status status, ProposeCallback done);
	void TakeForwarded(const std::string &body, transport::Responder respond);
	void TakeForwardedTransfer(const std::string &body, transport::Responder respond);
	void TakeForwardedChange(const std::string &body, transport::Responder respond);
	void TakeForwardedRebalance(const std::string &body, transport::Responder respond);

	const RaftEngineConfig config;
	MemberDirectory &directory; //! the gateway's
	storage::LogStore &log;
	transport::Transport &transport;
	PeerGateway &gateway;
	StateMachine &state_machine;
	const Clock &clock;
	DegradedLatch latch;
	std::shared_ptr<LoopMailbox> mailbox;
	ProposalBudget budget;
	LogWriter writer;
	DiskWatch disk;
	ApplyLoop apply;
	SnapshotFetcher fetcher;
	SnapshotServer server;
	ReadyLoop loop;
	std::atomic<bool> is_stopping {false};
	std::mutex lifecycle; //! one Start, Stop or Abort at a time
	bool is_running = false;
};

//! The root group starts here at the first start, once it is known with whom.
Status RaftEngine::Parts::CreateRootGroup(std::vector<storage::RecoveredGroup> &recovered) {
	auto is_known = std::any_of(recovered.begin(), recovered.end(),
	                            [](const storage::RecoveredGroup &group) { return group.group == raft::ROOT_GROUP; });
	if (is_known) {
		return Status::Ok();
	}
	auto position = PositionsOf(state_machine)[raft::ROOT_GROUP];
	if (position.index > 0 && config.restored_from.empty()) {
		return Status(ErrorCode::Corruption, "the state machine holds the root group up to index " +
		                                         std::to_string(position.index) + " but the log in '" + config.log_dir +
		                                         "' does not know the group: its votes are lost; restore the log "
		                                         "directory, or empty the whole data directory, start the node "
		                                         "and run: quack cluster node replace " +
		                                         config.node_id);
	}
	auto membership = directory.StartMembership();
	if (!membership) {
		return Status::Ok();
	}
	storage::RecoveredGroup root;
	root.snapshot.membership = *membership;
	auto status = log.CreateGroup(root.group, root.snapshot);
	recovered.push_back(std::move(root));
	return status.IsOk() ? log.Sync() : status;
}

Status RaftEngine::Parts::OpenGroups() {
	auto recovered = log.Recovered();
	auto status = CreateRootGroup(recovered);
	if (status.IsOk() && !recovered.empty() && config.mark_formed) {
		status = config.mark_formed();
	}
	status = status.IsOk() ? RemoveRetired(log, recovered, state_machine) : status;
	if (!status.IsOk()) {
		return status;
	}
	if (FindGroupWithoutState(recovered, PositionsOf(state_machine)) != nullptr) {
		return loop.AwaitState(std::move(recovered));
	}
	return loop.AddGroups(std::move(recovered));
}

void RaftEngine::Parts::StopThreads(bool is_graceful) {
	is_stopping.store(true);
	loop.Stop();
	if (is_graceful) {
		writer.Stop();
		apply.Stop(!latch.IsSet());
	} else {
		writer.Abort();
		apply.Abort();
	}
	fetcher.Stop();
	server.Stop();
	transport.Stop();
	gateway.Detach();
	is_running = false;
}

//! Best effort: a node that cannot hand over in time leaves its groups to an election.
void RaftEngine::Parts::HandOver(RaftEngine &engine, MonotonicNs timeout) {
	auto deadline = clock.Now() + timeout;
	auto wait = std::make_shared<CallbackWait>();
	for (auto &view : loop.View()) {
		auto has_successor =
		    std::any_of(view.core.progress.begin(), view.core.progress.end(), [](const raft::ProgressStatus &progress) {
			    return progress.recent_active && !progress.is_learner;
		    });
		if (view.core.role != raft::Role::Leader || !has_successor || latch.IsSet()) {
			continue;
		}
		wait->Expect();
		engine.TransferLeadership(view.core.group, "", timeout,
		                          [wait](const Result<std::string> &) { wait->Arrive([] {}); });
	}
	wait->WaitFor(deadline - clock.Now(), [] {});
}

//! Callbacks run on an engine thread even for an immediate refusal, because callers may hold locks in Propose.
void RaftEngine::Parts::Refuse(Status status, ProposeCallback done) {
	LoopEvent event(AnswerLater {[done, status] { done({status, 0}); }});
	if (!mailbox->Push(std::move(event))) {
		done({std::move(status), 0});
	}
}

RaftEngine::RaftEngine(const RaftEngineConfig &config, storage::LogStore &log, transport::Transport &transport,
                       PeerGateway &gateway, StateMachine &state_machine, const Clock &clock)
    : parts(std::make_unique<Parts>(config, log, transport, gateway, state_machine, clock)) {
}

RaftEngine::~RaftEngine() {
	Abort();
}

Status RaftEngine::Start() {
	std::lock_guard<std::mutex> guard(parts->lifecycle);
	QUACK_CHECK(!parts->is_running && !parts->is_stopping.load(), "an engine starts once");
	auto status = parts->directory.Check();
	if (status.IsOk() && parts->config.heartbeat_interval * 3 > parts->config.election_timeout) {
		status = Status(ErrorCode::InvalidArgument, "heartbeat_interval must be at most a third of election_timeout");
	}
	if (status.IsOk()) {
		status = parts->fetcher.PrepareDirectory();
	}
	if (status.IsOk()) {
		// Before the first cut of the log: it keeps what their receivers need.
		parts->server.Prepare();
		status = parts->OpenGroups();
	}
	if (!status.IsOk()) {
		return status;
	}
	parts->loop.SetStatusSource([this] { return Encode(SummarizeStatus(GetStatus())); });
	parts->gateway.Attach(*this);
	parts->apply.Start();
	parts->writer.Start();
	parts->server.Start();
	parts->fetcher.Start();
	parts->loop.Start();
	parts->is_running = true;
	status = parts->transport.Start();
	if (!status.IsOk()) {
		parts->StopThreads(false);
		return status;
	}
	parts->transport.SetPeers(parts->directory.PeerAddresses());
	return Status::Ok();
}

void RaftEngine::Stop(MonotonicNs timeout) {
	std::lock_guard<std::mutex> guard(parts->lifecycle);
	if (!parts->is_running) {
		return;
	}
	parts->HandOver(*this, timeout);
	parts->StopThreads(true);
}

void RaftEngine::Abort() {
	std::lock_guard<std::mutex> guard(parts->lifecycle);
	if (parts->is_running) {
		parts->StopThreads(false);
	}
}

void RaftEngine::Propose(raft::GroupId group, SharedBytes payload, MonotonicNs timeout, ProposeCallback done) {
	QUACK_CHECK(payload != nullptr, "a proposal needs a payload");
	auto size = CheckEntryBytes(payload->size(), "proposal");
	if (!size.IsOk()) {
		parts->Refuse(size, std::move(done));
		return;
	}
	Proposal proposal;
	proposal.bytes = payload->size();
	proposal.payload = std::move(payload);
	proposal.deadline = parts->clock.Now() + timeout;
	proposal.done = std::move(done);
	auto bytes = proposal.bytes;
	if (!parts->budget.Take(bytes)) {
		parts->Refuse(Status(ErrorCode::Overloaded, "node '" + parts->config.node_id + "' has " +
		                                                std::to_string(parts->budget.Count()) +
		                                                " proposals pending; retry later"),
		              std::move(proposal.done));
		return;
	}
	NewProposals event;
	event.group = group;
	event.proposals.push_back(std::move(proposal));
	LoopEvent wrapped(std::move(event));
	if (!parts->mailbox->Push(std::move(wrapped))) {
		parts->budget.GiveBack(bytes);
		std::get<NewProposals>(wrapped).proposals[0].done(
		    {Status(ErrorCode::Unavailable, "node '" + parts->config.node_id + "' is stopped"), 0});
	}
}

void RaftEngine::ReadBarriers(const std::vector<raft::GroupId> &groups, MonotonicNs timeout, PositionsCallback done) {
	LoopEvent event(NewRead {groups, parts->clock.Now() + timeout, std::move(done)});
	if (!parts->mailbox->Push(std::move(event))) {
		std::get<NewRead>(event).done(
		    Status(ErrorCode::Unavailable, "node '" + parts->config.node_id + "' is stopped"));
	}
}

Status RaftEngine::WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) {
	return parts->apply.WaitApplied(group, index, timeout);
}

void RaftEngine::TransferLeadership(raft::GroupId group, const std::string &target_node_id, MonotonicNs timeout,
                                    TextCallback done) {
	NewTransfer transfer;
	transfer.group = group;
	transfer.deadline = parts->clock.Now() + timeout;
	transfer.done = std::move(done);
	LoopEvent event;
	if (!target_node_id.empty()) {
		transfer.target = parts->directory.IdOf(target_node_id);
		if (transfer.target == raft::NO_NODE) {
			event = AnswerLater {[done_p = transfer.done, target_node_id] {
				done_p(Status(ErrorCode::NotFound,
				              "node '" + target_node_id + "' is not a member of the cluster; see quack_members()"));
			}};
			parts->mailbox->Push(std::move(event));
			return;
		}
	}
	auto fallback = transfer.done;
	event = std::move(transfer);
	if (!parts->mailbox->Push(std::move(event))) {
		fallback(Status(ErrorCode::Unavailable, "node '" + parts->config.node_id + "' is stopped"));
	}
}

void RaftEngine::ChangeMember(raft::GroupId group, const MemberChange &change, MonotonicNs timeout, TextCallback done) {
	auto fallback = done;
	NewMemberChange event {group, change, parts->clock.Now() + timeout, std::move(done), false};
	if (!parts->mailbox->Push(LoopEvent(std::move(event)))) {
		fallback(Status(ErrorCode::Unavailable, "node '" + parts->config.node_id + "' is stopped"));
	}
}

void RaftEngine::Rebalance(MonotonicNs timeout, TextCallback done) {
	auto fallback = done;
	if (!parts->mailbox->Push(LoopEvent(NewRebalance {parts->clock.Now() + timeout, std::move(done), false}))) {
		fallback(Status(ErrorCode::Unavailable, "node '" + parts->config.node_id + "' is stopped"));
	}
}

std::vector<MemberStatus> RaftEngine::GetMembers() const {
	auto views = parts->loop.View();
	auto root = std::find_if(views.begin(), views.end(),
	                         [](const GroupView &view) { return view.core.group == raft::ROOT_GROUP; });
	return DescribeMembers(parts->directory, root == views.end() ? nullptr : &*root, parts->transport.GetPeers(),
	                       parts->clock.Now());
}

std::map<std::string, wire::StatusAnswer> RaftEngine::StatusOfPeers(MonotonicNs timeout) const {
	struct Answers {
		CallbackWait wait;
		std::map<std::string, wire::StatusAnswer> by_peer;
	};
	auto answers = std::make_shared<Answers>();
	for (auto &peer : parts->transport.GetPeers()) {
		if (!peer.connected) {
			continue;
		}
		answers->wait.Expect();
		parts->transport.Call(peer.node_id, wire::METHOD_STATUS, std::string(), timeout,
		                      [answers, name = peer.node_id](const Result<std::string> &bytes) {
			                      auto answer = bytes.IsOk() ? wire::DecodeStatusAnswer(bytes.Value())
								                             : Result<wire::StatusAnswer>(bytes.GetStatus());
			                      answers->wait.Arrive([&] {
				                      if (answer.IsOk()) {
					                      answers->by_peer[name] = std::move(answer.Value());
				                      }
			                      });
		                      });
	}
	std::map<std::string, wire::StatusAnswer> result;
	answers->wait.WaitFor(timeout, [&] { result = answers->by_peer; });
	return result;
}

Result<raft::Membership> RaftEngine::RootMembership() const {
	auto membership = parts->directory.CommittedMembership();
	if (membership.voters.empty() || membership.IsJoint()) {
		return Status(ErrorCode::Unavailable, "the members of the cluster are being changed; retry");
	}
	return membership;
}

std::vector<GroupStatus> RaftEngine::GetStatus() const {
	std::vector<GroupStatus> rows;
	auto now = parts->clock.Now();
	auto peers = parts->transport.GetPeers();
	auto log_status = parts->log.GetStatus();
	auto disk_alarm = parts->loop.Alarm();
	auto apply_alarm = parts->apply.Alarm();
	auto fetch_error = parts->fetcher.LastError();
	auto definitions = DefinitionsOf(parts->state_machine);
	definitions[raft::ROOT_GROUP].name = "root";
	for (auto &view : parts->loop.View()) {
		auto &name = definitions[view.core.group].name;
		auto row = DescribeGroup(parts->config, parts->directory, view, name, peers, now);
		row.applied_index = parts->apply.AppliedIndex(row.group);
		row.checkpoint_index = parts->apply.CheckpointIndex(row.group);
		row.proposal_queue_count = parts->budget.Count();
		row.proposal_queue_bytes = parts->budget.Bytes();
		auto queue = parts->apply.QueueOf(row.group);
		row.apply_queue_count = queue.count;
		row.apply_queue_bytes = queue.bytes;
		if (!queue.waiting_for.empty()) {
			row.reason += (row.reason.empty() ? "" : "; ") + queue.waiting_for;
		}
		row.log_disk_bytes = log_status.disk_bytes;
		auto receiving = parts->fetcher.Transfer();
		row.snapshot_bytes_done = receiving ? receiving->bytes_done : parts->server.Shelf().BytesDone();
		row.snapshot_bytes_total = receiving ? receiving->bytes_total : parts->server.Shelf().BytesTotal();
		for (auto alarm : {&disk_alarm, &apply_alarm, &fetch_error}) {
			if (!alarm->empty()) {
				row.reason += (row.reason.empty() ? "" : "; ") + *alarm;
			}
		}
		if (parts->latch.IsSet()) {
			row.degraded = true;
			row.reason = parts->latch.Reason();
			row.is_leader = false;
			row.linearizable_read_safe = false;
			row.lease = "none";
			row.lease_remaining_ms = 0;
		}
		rows.push_back(std::move(row));
	}
	if (rows.empty()) {
		rows.push_back(DescribeForming(parts->config, parts->directory, peers, now));
		auto &row = rows.front();
		auto awaiting = parts->loop.AwaitingReason();
		if (!awaiting.empty()) {
			row.role = "reseeding";
			row.reason = awaiting + (fetch_error.empty() ? "" : "; " + fetch_error) + row.reason;
			auto receiving = parts->fetcher.Transfer().value_or(SnapshotTransfer());
			row.snapshot_bytes_done = receiving.bytes_done;
			row.snapshot_bytes_total = receiving.bytes_total;
		}
		row.degraded = parts->latch.IsSet();
		row.reason = row.degraded ? parts->latch.Reason() : row.reason;
	}
	return rows;
}

std::vector<SnapshotTransfer> RaftEngine::GetSnapshotTransfers() const {
	auto rows = parts->server.Transfers();
	if (auto receiving = parts->fetcher.Transfer()) {
		rows.push_back(std::move(*receiving));
	}
	return rows;
}

std::string RaftEngine::HungDisk() const {
	return parts->disk.Describe(parts->clock.Now());
}

void RaftEngine::OpenImage(raft::LogIndex index_min, ImageCallback done) {
	wire::SnapshotOpenRequest request;
	request.cluster_id = parts->config.cluster_id;
	request.index_min = index_min;
	parts->server.OpenForBackup(Encode(request), [done = std::move(done)](const Result<std::string> &bytes) {
		auto answer = bytes.IsOk() ? wire::DecodeSnapshotOpenAnswer(bytes.Value())
		                           : Result<wire::SnapshotOpenAnswer>(bytes.GetStatus());
		if (!answer.IsOk() || !answer.Value().status.IsOk()) {
			done(answer.IsOk() ? answer.Value().status : answer.GetStatus());
			return;
		}
		BackupImage image {answer.Value().image, answer.Value().bytes, {}};
		for (auto &position : answer.Value().positions) {
			image.positions.push_back(
			    {position.group, position.meta.index, position.meta.term, position.meta.membership});
		}
		done(std::move(image));
	});
}

void RaftEngine::ReadImage(uint64_t image, uint64_t offset, uint64_t size, TextCallback done) {
	auto body = Encode(wire::SnapshotChunkRequest {image, offset, size});
	parts->server.ChunkForBackup(std::move(body), [done = std::move(done)](const Result<std::string> &bytes) {
		auto answer = bytes.IsOk() ? wire::DecodeSnapshotChunkAnswer(bytes.Value())
		                           : Result<wire::SnapshotChunkAnswer>(bytes.GetStatus());
		if (!answer.IsOk() || !answer.Value().status.IsOk()) {
			done(answer.IsOk() ? answer.Value().status : answer.GetStatus());
			return;
		}
		done(std::move(answer.Value().data));
	});
}

void RaftEngine::CloseImage(uint64_t image) {
	parts->server.Close(image);
}

void RaftEngine::RequestCheckpoint() {
	parts->apply.RequestCheckpoint();
}

void RaftEngine::LatchDegraded(const std::string &reason) {
	parts->latch.Latch(reason);
}

bool RaftEngine::IsDegraded() const {
	return parts->latch.IsSet();
}

void RaftEngine::OnPeerMessage(const std::string &peer, std::string bytes) {
	auto size = bytes.size();
	if (!parts->latch.IsSet() && parts->loop.TakeInboundBytes(size)) {
		parts->mailbox->Push(LoopEvent(PeerBytes {peer, std::move(bytes)}));
	}
}

void RaftEngine::OnPeerChanged(const std::string &peer, bool is_up) {
	parts->mailbox->Push(LoopEvent(PeerChanged {peer, is_up}));
}

void RaftEngine::OnPeersLearned() {
	parts->mailbox->Push(LoopEvent(PeersLearned {}));
}

void RaftEngine::OnPeerCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
                            transport::Responder respond) {
	static_cast<void>(timeout);
	if (method == wire::METHOD_STATUS) {
		LoopEvent event(StatusAsked {[respond](std::string answer) { respond(std::move(answer)); }});
		if (!parts->mailbox->Push(std::move(event))) {
			respond(Status(ErrorCode::Unavailable, "the node is stopping"));
		}
		return;
	}
	// Once degraded, the loop and the snapshot server refuse by themselves.
	if (method == wire::METHOD_PROPOSE) {
		parts->TakeForwarded(body, std::move(respond));
	} else if (method == wire::METHOD_REBALANCE) {
		parts->TakeForwardedRebalance(body, std::move(respond));
	} else if (method == wire::METHOD_TRANSFER) {
		parts->TakeForwardedTransfer(body, std::move(respond));
	} else if (method == wire::METHOD_MEMBER) {
		parts->TakeForwardedChange(body, std::move(respond));
	} else if (method == wire::METHOD_SNAPSHOT_OPEN) {
		if (!parts->state_machine.Groups().empty()) {
			// The receiver stands still until it gets an image that is as new as its state in every group.
			parts->apply.RequestCheckpoint();
		}
		parts->server.Open(peer, std::move(body), std::move(respond));
	} else if (method == wire::METHOD_SNAPSHOT_CHUNK) {
		parts->server.Chunk(peer, std::move(body), std::move(respond));
	} else {
		respond(Status(ErrorCode::NotSupported, "node '" + parts->config.node_id + "' has no call '" + method +
		                                            "', asked by node '" + peer + "': run the same release on both"));
	}
}

void RaftEngine::Parts::TakeForwarded(const std::string &body, transport::Responder respond) {
	auto decoded = wire::DecodeProposeRequest(body);
	if (!decoded.IsOk()) {
		respond(decoded.GetStatus());
		return;
	}
	auto &items = decoded.Value().items;
	if (items.empty()) {
		respond(Encode(wire::ProposeAnswer()));
		return;
	}
	auto batch = std::make_shared<ForwardedBatch>(items.size(), std::move(respond));
	auto now = clock.Now();
	NewProposals event;
	event.group = decoded.Value().group;
	for (size_t i = 0; i < items.size(); i++) {
		Proposal proposal;
		proposal.bytes = items[i].payload->size();
		proposal.payload = std::move(items[i].payload);
		proposal.deadline = now + std::min(items[i].timeout, FORWARD_TIMEOUT_MAX);
		proposal.done = [batch, i](const ProposeOutcome &outcome) {
			batch->Set(i, outcome);
		};
		proposal.forwarded = true;
		if (budget.Take(proposal.bytes)) {
			event.proposals.push_back(std::move(proposal));
		} else {
			proposal.done({Status(ErrorCode::Overloaded, "the leader's queue is full; retry later"), 0});
		}
	}
	if (event.proposals.empty()) {
		return;
	}
	LoopEvent wrapped(std::move(event));
	if (!mailbox->Push(std::move(wrapped))) {
		for (auto &proposal : std::get<NewProposals>(wrapped).proposals) {
			budget.GiveBack(proposal.bytes);
			proposal.done({Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping"), 0});
		}
	}
}

void RaftEngine::Parts::TakeForwardedTransfer(const std::string &body, transport::Responder respond) {
	auto decoded = wire::DecodeTransferRequest(body);
	if (!decoded.IsOk()) {
		respond(decoded.GetStatus());
		return;
	}
	NewTransfer transfer;
	transfer.group = decoded.Value().group;
	transfer.target = decoded.Value().target;
	transfer.deadline = clock.Now() + std::min(decoded.Value().timeout, FORWARD_TIMEOUT_MAX);
	transfer.forwarded = true;
	transfer.done = AnswerText(respond);
	LoopEvent event(std::move(transfer));
	if (!mailbox->Push(std::move(event))) {
		respond(Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping"));
	}
}

void RaftEngine::Parts::TakeForwardedRebalance(const std::string &body, transport::Responder respond) {
	auto decoded = wire::DecodeTransferRequest(body);
	if (!decoded.IsOk()) {
		respond(decoded.GetStatus());
		return;
	}
	auto deadline = clock.Now() + std::min(decoded.Value().timeout, FORWARD_TIMEOUT_MAX);
	if (!mailbox->Push(LoopEvent(NewRebalance {deadline, AnswerText(respond), true}))) {
		respond(Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping"));
	}
}

void RaftEngine::Parts::TakeForwardedChange(const std::string &body, transport::Responder respond) {
	auto decoded = wire::DecodeMemberRequest(body);
	if (!decoded.IsOk()) {
		respond(decoded.GetStatus());
		return;
	}
	auto &request = decoded.Value();
	NewMemberChange event;
	event.group = request.group;
	event.change.action = static_cast<MemberAction>(std::min<uint32_t>(request.action, UINT8_MAX));
	event.change.name = request.name;
	event.change.incarnation = request.incarnation;
	event.change.host = request.host;
	event.change.port = request.port;
	event.deadline = clock.Now() + std::min(request.timeout, FORWARD_TIMEOUT_MAX);
	event.forwarded = true;
	event.done = AnswerText(respond);
	if (!mailbox->Push(LoopEvent(std::move(event)))) {
		respond(Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping"));
	}
}

} // namespace node
} // namespace quack
