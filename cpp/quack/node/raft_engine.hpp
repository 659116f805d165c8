//! The default ConsensusEngine: our own Raft core over a durable log, a transport and a state machine.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "quack/node/consensus_engine.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/node/member_change.hpp"
#include "quack/node/peer_gateway.hpp"
#include "quack/node/snapshot_transfer.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/storage/log_store.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! One row of quack_members().
struct MemberStatus {
	std::string node_id;
	uint64_t incarnation = 0;
	std::string host;
	uint16_t port = 0;
	//! voter, learner, leaving (a voter of the set that is being left), removed, waiting (asks to join)
	std::string role;
	//! What the change under way makes of it: voter, learner, removed; empty = nothing.
	std::string becomes;
	bool is_leader = false;
	bool connected = false;
	//! On the leader: how far it has got. Without value elsewhere.
	std::optional<raft::LogIndex> match;
	std::optional<uint64_t> lag;
	std::string state;          //! probe, replicate, snapshot; empty elsewhere
	int64_t last_heard_ms = -1; //! ago; -1 = never, or this node
	std::string last_error;
};

//! An open image of a past state, for a backup.
struct BackupImage {
	uint64_t image = 0; //! names it on this node
	uint64_t bytes = 0;
	std::vector<AppliedPosition> positions;
};

//! Order of making: PeerGateway(config), transport over the gateway, engine over both. All outlive the engine, which
//! starts and stops the transport. Threads: DESIGN.md.
class RaftEngine final : public ConsensusEngine, private PeerTraffic {
public:
	RaftEngine(const RaftEngineConfig &config, storage::LogStore &log, transport::Transport &transport,
	           PeerGateway &gateway, StateMachine &state_machine, const Clock &clock);
	~RaftEngine() override;

	//! InvalidArgument for a bad configuration, Corruption when log and state machine do not fit together, or what the
	//! transport and the log say. On failure nothing runs. Once per object.
	Status Start() override;
	void Stop(MonotonicNs timeout) override;
	//! As a crash would, as far as that is possible inside a process: no hand-over, no flush, no checkpoint.
	void Abort();

	void Propose(raft::GroupId group, SharedBytes payload, MonotonicNs timeout, ProposeCallback done) override;
	void ReadBarriers(const std::vector<raft::GroupId> &groups, MonotonicNs timeout, PositionsCallback done) override;
	Status WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) override;
	void TransferLeadership(raft::GroupId group, const std::string &target_node_id, MonotonicNs timeout,
	                        TextCallback done) override;
	//! From any node: carried out by the leader, answered with words when the change and its joint phase are committed.
	//! What may go wrong: MemberPlan::status; OutcomeUnknown when leadership is lost meanwhile (see GetMembers()).
	void ChangeMember(raft::GroupId group, const MemberChange &change, MonotonicNs timeout, TextCallback done);
	//! Moves every group but the root group to the node that should lead it (leader_spread.hpp), as far as that node is
	//! there and caught up. From any node; answered with words: what moved, and what did not and why.
	void Rebalance(MonotonicNs timeout, TextCallback done);
	//! Members, removed ones, and nodes that ask to join, as this node knows them.
	std::vector<MemberStatus> GetMembers() const;
	using ImageCallback = std::function<void(Result<BackupImage>)>;
	//! Opens the newest checkpoint's image; it is closed by CloseImage, or when nobody read of it for
	//! snapshot_idle_timeout. Unavailable: it stands before root group index `index_min`. Overloaded: too many are
	//! open. `done` is called on an engine thread; must not block.
	void OpenImage(raft::LogIndex index_min, ImageCallback done);
	//! Bytes [offset, offset + size) of an open image, shorter only at its end. NotFound: it is not open any more.
	void ReadImage(uint64_t image, uint64_t offset, uint64_t size, TextCallback done);
	void CloseImage(uint64_t image);
	//! A checkpoint of the state machine soon, if anything changed; GroupStatus::checkpoint_index shows it.
	void RequestCheckpoint();

	std::vector<GroupStatus> GetStatus() const override;
	//! What the other nodes say of their groups now. Asks all that are connected at once and waits for the answers, at
	//! most `timeout`; who has not answered by then is missing. Not from a callback of the engine.
	std::map<std::string, wire::StatusAnswer> StatusOfPeers(MonotonicNs timeout) const;
	Result<raft::Membership> RootMembership() const override;
	//! To and from this node, also while it has no groups yet.
	std::vector<SnapshotTransfer> GetSnapshotTransfers() const;
	std::string HungDisk() const override;
	void LatchDegraded(const std::string &reason) override;
	bool IsDegraded() const override;

private:
	void OnPeerMessage(const std::string &peer, std::string bytes) override;
	void OnPeerCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	                transport::Responder respond) override;
	void OnPeerChanged(const std::string &peer, bool is_up) override;
	void OnPeersLearned() override;

	class Parts;
	std::unique_ptr<Parts> parts;
};

} // namespace node
} // namespace quack
