#include "quack/catalog/part_sweeper.hpp"

#include <algorithm>
#include <set>

#include "quack/catalog/group_commit.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr MonotonicNs LOOK_INTERVAL = 50 * NS_PER_MS;
//! A session that lives proposes its decision within a few round trips of the last prepare.
constexpr MonotonicNs PATIENCE = 2 * NS_PER_SECOND;
constexpr MonotonicNs GRACE = 200 * NS_PER_MS;
constexpr MonotonicNs REPEAT = NS_PER_SECOND;

} // namespace

PartSweeper::PartSweeper(ReplicaCore &core_p)
    : core(core_p), finisher(PATIENCE, GRACE, REPEAT), thread(LOOK_INTERVAL, [this] { Look(); }) {
}

void PartSweeper::Look() {
	for (auto &proposal : finisher.Step(clock.Now(), Prepared())) {
		Propose(proposal);
	}
}

std::vector<node::PreparedAtLeader> PartSweeper::Prepared() const {
	std::vector<node::PreparedAtLeader> parts;
	{
		std::lock_guard<std::mutex> guard(core.state_lock);
		for (auto &part : core.state.prepared.List()) {
			node::PreparedAtLeader found;
			found.group = part.group;
			found.id = part.id;
			found.index = part.index;
			found.coordinator = part.coordinator;
			if (auto *outcome = core.state.outcomes.Find(part.id, part.coordinator, 0)) {
				found.decided = outcome->index;
			}
			parts.push_back(found);
		}
	}
	auto *engine = core.engine.load();
	if (parts.empty() || engine == nullptr || engine->IsDegraded()) {
		return {};
	}
	std::set<raft::GroupId> led;
	for (auto &group : engine->GetStatus()) {
		if (group.is_leader) {
			led.insert(group.group);
		}
	}
	parts.erase(std::remove_if(parts.begin(), parts.end(),
	                           [&](const node::PreparedAtLeader &part) { return led.count(part.group) == 0; }),
	            parts.end());
	return parts;
}

void PartSweeper::Propose(node::FinisherProposal &proposal) {
	auto *engine = core.engine.load();
	if (engine == nullptr || core.closing) {
		return;
	}
	auto is_void = proposal.proposal.kind == node::TransactionProposal::Kind::Void;
	auto payload = is_void ? VoidEntry(core, proposal.id, RequestBase(proposal.id))
	                       : MakeSharedBytes(std::move(proposal.proposal.payload));
	if (is_void) {
		Log(LogLevel::Warn, "catalog", "transaction_given_up", {{"request", RequestIdToString(proposal.id)}});
	}
	engine->Propose(proposal.proposal.group, std::move(payload), REPEAT, [](const node::ProposeOutcome &) {});
}

} // namespace catalog
} // namespace quack
