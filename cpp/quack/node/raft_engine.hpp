//! The default ConsensusEngine: our own Raft core over a durable log, a transport and a state machine.
#pragma once

#include <memory>

#include "quack/node/consensus_engine.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/node/peer_gateway.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace node {

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
	void ReadBarrier(raft::GroupId group, MonotonicNs timeout, ReadCallback done) override;
	Status WaitApplied(raft::GroupId group, raft::LogIndex index, MonotonicNs timeout) override;
	void TransferLeadership(raft::GroupId group, const std::string &target_node_id, MonotonicNs timeout,
	                        DoneCallback done) override;
	//! On the leader only (else NotLeader): moves the group to these voters and learners by joint consensus. Done when
	//! the change is committed; status shows when the joint phase is over.
	void ChangeMembership(raft::GroupId group, const std::vector<std::string> &voters,
	                      const std::vector<std::string> &learners, MonotonicNs timeout, ProposeCallback done);

	//! A checkpoint of the state machine soon, if anything changed; GroupStatus::checkpoint_index shows it.
	void RequestCheckpoint();

	std::vector<GroupStatus> GetStatus() const override;
	void LatchDegraded(const std::string &reason) override;
	bool IsDegraded() const override;

private:
	void OnPeerMessage(const std::string &peer, std::string bytes) override;
	void OnPeerCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	                transport::Responder respond) override;
	void OnPeerChanged(const std::string &peer, bool is_up) override;

	class Parts;
	std::unique_ptr<Parts> parts;
};

} // namespace node
} // namespace quack
