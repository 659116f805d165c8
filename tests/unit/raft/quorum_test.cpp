//! Goal: the majority arithmetic is right. Method: compare with definitions spelled out over all subsets of voters, on
//! random memberships and values.
#include <doctest/doctest.h>

#include "quack/common/prng.hpp"
#include "quack/raft/quorum.hpp"

using namespace quack;
using namespace quack::raft;

namespace {

std::vector<NodeId> RandomVoters(Prng &prng, size_t max) {
	std::vector<NodeId> voters;
	for (NodeId id = 1; id <= 8; id++) {
		if (voters.size() < max && prng.Chance(1, 2)) {
			voters.push_back(id);
		}
	}
	return voters;
}

//! Some majority of the voters consists of nodes for which the predicate holds: tries every subset.
bool SomeMajority(const std::vector<NodeId> &voters, const std::function<bool(NodeId)> &holds) {
	if (voters.empty()) {
		return true;
	}
	for (uint32_t subset = 0; subset < (1U << voters.size()); subset++) {
		size_t size = 0;
		bool all_hold = true;
		for (size_t i = 0; i < voters.size(); i++) {
			if ((subset >> i) & 1) {
				size++;
				all_hold = all_hold && holds(voters[i]);
			}
		}
		if (all_hold && 2 * size > voters.size()) {
			return true;
		}
	}
	return false;
}

} // namespace

TEST_CASE("the joint value is the largest one that a majority of both sets reached") {
	Prng prng(1);
	for (int round = 0; round < 3000; round++) {
		Membership membership;
		membership.voters = RandomVoters(prng, 7);
		membership.outgoing = prng.Chance(1, 2) ? RandomVoters(prng, 7) : std::vector<NodeId>();
		std::map<NodeId, uint64_t> values;
		for (NodeId id = 1; id <= 8; id++) {
			values[id] = prng.Below(6);
		}
		auto value = JointValue(membership, [&](NodeId node) { return values[node]; });
		uint64_t expected = UINT64_MAX;
		if (!membership.voters.empty() || !membership.outgoing.empty()) {
			expected = 0;
			for (uint64_t candidate = 0; candidate < 6; candidate++) {
				auto reached = [&](NodeId node) {
					return values[node] >= candidate;
				};
				if (SomeMajority(membership.voters, reached) && SomeMajority(membership.outgoing, reached)) {
					expected = candidate;
				}
			}
		}
		REQUIRE(value == expected);
	}
}

TEST_CASE("an election is won, lost or open exactly as the outcomes still possible say") {
	Prng prng(2);
	for (int round = 0; round < 3000; round++) {
		Membership membership;
		membership.voters = RandomVoters(prng, 6);
		membership.outgoing = prng.Chance(1, 2) ? RandomVoters(prng, 6) : std::vector<NodeId>();
		std::map<NodeId, bool> votes;
		for (NodeId id = 1; id <= 8; id++) {
			if (prng.Chance(2, 3)) {
				votes[id] = prng.Chance(1, 2);
			}
		}
		auto granted = [&](NodeId node) {
			return votes.count(node) > 0 && votes[node];
		};
		auto may_grant = [&](NodeId node) {
			return votes.count(node) == 0 || votes[node];
		};
		bool is_won = SomeMajority(membership.voters, granted) && SomeMajority(membership.outgoing, granted);
		bool is_possible = SomeMajority(membership.voters, may_grant) && SomeMajority(membership.outgoing, may_grant);
		auto expected = is_won ? VoteOutcome::Won : (is_possible ? VoteOutcome::Pending : VoteOutcome::Lost);
		REQUIRE(CountVotes(membership, votes) == expected);
	}
}

TEST_CASE("two majorities of one membership always share a voter") {
	// What every safety argument rests on; over all subsets of up to six voters.
	for (size_t count = 1; count <= 6; count++) {
		std::vector<NodeId> voters;
		for (NodeId id = 1; id <= count; id++) {
			voters.push_back(id);
		}
		Membership membership;
		membership.voters = voters;
		for (uint32_t first = 0; first < (1U << count); first++) {
			std::map<NodeId, bool> votes;
			std::map<NodeId, bool> complement;
			for (size_t i = 0; i < count; i++) {
				votes[voters[i]] = ((first >> i) & 1) != 0;
				complement[voters[i]] = !votes[voters[i]];
			}
			bool both = CountVotes(membership, votes) == VoteOutcome::Won &&
			            CountVotes(membership, complement) == VoteOutcome::Won;
			REQUIRE_FALSE(both);
		}
	}
}
