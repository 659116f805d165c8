//! One attempt at a transaction over several groups, as the node that executed it drives it (cpp/GROUPS.md). No thread,
//! no clock, no IO: the owner proposes what it is told to and tells what became of it.
#pragma once

#include <map>
#include <vector>

#include "quack/node/transaction_entry.hpp"

namespace quack {
namespace node {

struct TransactionPart {
	raft::GroupId group = raft::ROOT_GROUP;
	LockSet locks;
	//! As the state machine encodes it.
	std::string body;
};

//! An entry to propose.
struct TransactionProposal {
	enum class Kind : uint8_t { Entry, Void };
	Kind kind = Kind::Entry;
	raft::GroupId group = raft::ROOT_GROUP;
	//! Entry: encoded. Void: empty, the owner makes a data entry without effects under the transaction id.
	std::string payload;
};

class TransactionDriver {
public:
	enum class Phase : uint8_t {
		Preparing, //! waits for prepares
		Deciding,  //! waits for the decision, or for the void entry that took its place
		Releasing, //! decided: the releases are proposed, nobody has to wait for them
	};

	//! At least two parts, of different groups. `in_turn`: prepares one group after the other, the largest number
	//! first: with the decision in the smallest group that is one descending order, so that of transactions that clash
	//! one wins. Else all at once.
	TransactionDriver(const TransactionId &id, raft::LogIndex planned_version, std::vector<TransactionPart> parts,
	                  bool in_turn);

	//! What is to be proposed now; each is returned once. The owner repeats a proposal until it knows that it was
	//! applied here or that it gives up.
	std::vector<TransactionProposal> TakeProposals();

	//! The prepare of `group` was applied on this node.
	void OnPrepared(raft::GroupId group, raft::LogIndex index, bool is_granted);
	//! Gives up before the decision is proposed: a deadline, an interrupt, a refusal elsewhere. The transaction ends in
	//! a void entry. False when the decision is on its way already: only its outcome can tell now.
	bool GiveUp();
	//! Decision or void entry was applied on this node at that index of the coordinator.
	void OnDecided(raft::LogIndex index);

	Phase GetPhase() const {
		return phase;
	}
	raft::GroupId Coordinator() const {
		return coordinator;
	}
	//! Groups whose prepare was proposed and is not answered yet.
	std::vector<raft::GroupId> Unanswered() const;

private:
	void Prepare(TransactionPart &part);
	void PrepareMore();
	void Decide();
	void Void();

	const TransactionId id;
	const raft::LogIndex planned_version;
	const bool in_turn;
	raft::GroupId coordinator = raft::ROOT_GROUP;
	Phase phase = Phase::Preparing;
	//! By group, the coordinator's left out.
	std::map<raft::GroupId, TransactionPart> waiting;
	TransactionPart own;
	//! Proposed; 0 = not answered yet.
	std::map<raft::GroupId, raft::LogIndex> prepared;
	bool is_refused = false;
	std::vector<TransactionProposal> proposals;
};

} // namespace node
} // namespace quack
