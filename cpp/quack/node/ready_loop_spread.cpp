//! Leaders of the groups spread over the nodes, by moves that are few and far between, or at once when asked.
#include "quack/common/log.hpp"
#include "quack/node/group_start.hpp"
#include "quack/node/leader_spread.hpp"
#include "quack/node/ready_loop_step.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs LOOK_PAUSE = 200 * NS_PER_MS;
//! Of one node, for all its groups.
constexpr MonotonicNs MOVE_PAUSE = 250 * NS_PER_MS;
//! A group that comes back again and again waits up to this many times longer.
constexpr MonotonicNs PATIENCE_MAX = 64;

constexpr const char *ALL_IN_PLACE = "every group is led by the node that it belongs to";

} // namespace

//! Moves a group to the node that should lead it, when everybody has been there for a while. One that does not stay
//! there (its disk is full, say) is tried less and less often.
void ReadyLoop::SpreadLeader(GroupState &group) {
	if (config.rebalance_after == 0 || group.id == raft::ROOT_GROUP || !IsLeader(group) || group.is_frozen ||
	    now < group.spread_after) {
		return;
	}
	group.spread_after = now + LOOK_PAUSE;
	auto plan = PlanLeader(group.core.GetStatus(), context.directory.SelfConfig().election_priority);
	if (!plan.is_complete || plan.target == raft::NO_NODE) {
		group.complete_since = 0;
		return;
	}
	group.complete_since = group.complete_since == 0 ? now : group.complete_since;
	auto patience = config.rebalance_after * group.spread_patience;
	if (now - group.complete_since < patience || now < move_after) {
		return;
	}
	move_after = now + MOVE_PAUSE;
	group.complete_since = 0;
	group.spread_patience = std::min(2 * group.spread_patience, PATIENCE_MAX);
	Log(LogLevel::Info, "node", "leader_moves",
	    {{"group", std::to_string(group.id)}, {"to", context.directory.NameOf(plan.target)}});
	Step(group, raft::TransferLeadershipEvent {plan.target});
}

void ReadyLoop::On(NewRebalance &event) {
	if (groups.empty()) {
		Later([done = std::move(event.done), failure = NoGroup(raft::ROOT_GROUP)] { done(failure); });
		return;
	}
	auto gathering = std::make_shared<Gathering>(event.forwarded ? "" : ALL_IN_PLACE, std::move(event.done));
	auto definitions = DefinitionsOf(context.state_machine);
	for (auto &entry : groups) {
		auto &group = *entry.second;
		if (entry.first == raft::ROOT_GROUP || !IsLeader(group) || group.is_frozen) {
			continue;
		}
		auto target = PlanLeader(group.core.GetStatus(), context.directory.SelfConfig().election_priority).target;
		if (target == raft::NO_NODE) {
			continue;
		}
		gathering->Expect();
		auto move = "group " + std::to_string(group.id) + " '" + definitions[group.id].name + "': " + config.node_id +
		            " -> " + context.directory.NameOf(target);
		auto done = [gathering, move](const Result<std::string> &leader) {
			gathering->Add(leader.IsOk() ? move : move + " failed: " + leader.GetStatus().Message());
		};
		group.spread_patience = 1;
		auto request = group.next_transfer++;
		group.transfers[request] = {event.deadline, target, std::move(done)};
		Step(group, raft::TransferLeadershipEvent {target, request});
	}
	if (!event.forwarded) {
		AskOthersToRebalance(event.deadline - now, gathering);
	}
	Later([gathering] { gathering->Close(); });
}

void ReadyLoop::AskOthersToRebalance(MonotonicNs timeout, const std::shared_ptr<Gathering> &gathering) {
	auto body = Encode(wire::TransferRequest {raft::ROOT_GROUP, raft::NO_NODE, timeout});
	for (auto &peer : context.directory.PeerAddresses()) {
		gathering->Expect();
		Later([&transport = context.transport, name = peer.node_id, body, timeout, gathering] {
			transport.Call(name, wire::METHOD_REBALANCE, body, timeout,
			               [name, gathering](const Result<std::string> &bytes) {
				               auto answer = bytes.IsOk() ? wire::DecodeTextAnswer(bytes.Value())
							                              : Result<wire::TextAnswer>(bytes.GetStatus());
				               auto status = answer.IsOk() ? answer.Value().status : answer.GetStatus();
				               gathering->Add(status.IsOk() ? answer.Value().text
							                                : "node '" + name + "' was not asked: " + status.Message());
			               });
		});
	}
}

} // namespace node
} // namespace quack
