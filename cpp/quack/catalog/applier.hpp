//! Applies committed entries, many to one DuckDB transaction where they cannot disturb each other.
#pragma once

#include <functional>

#include "quack/catalog/change_tee.hpp"
#include "quack/catalog/effect_apply.hpp"
#include "quack/catalog/meta_store.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

//! Apply thread only.
class Applier {
public:
	explicit Applier(ReplicaCore &core_p) : core(core_p) {
	}
	//! See node::StateMachine::Apply.
	Status Apply(const std::vector<node::CommittedEntry> &entries);
	//! The catalog file was replaced.
	void OnInstalled();

private:
	//! What one DuckDB transaction will have changed; becomes core.state after its commit.
	struct Staged {
		std::vector<EntryRow> rows;
		std::vector<StateRow> state_rows;
		std::vector<CommitOutcome> outcomes;
		std::set<std::pair<raft::GroupId, RequestId>> by_request;
		std::map<raft::GroupId, node::AppliedPosition> positions;
		std::unordered_map<std::string, SequenceUsers> sequences;
		std::map<TableInGroup, raft::LogIndex> table_changes;
		std::vector<SequenceMove> sequence_moves;
		//! Null = ended.
		std::map<StreamId, std::optional<OpenStream>> streams;
		//! Nothing of a later entry belongs into this transaction.
		bool is_closed = false;
		//! Parts that are prepared, those that are refused (index set, not Ok), and those that are released.
		std::optional<std::pair<node::TransactionId, node::PreparedPart>> prepared;
		raft::GroupId prepared_group = raft::ROOT_GROUP;
		std::vector<CommitOutcome> prepare_outcomes;
		std::optional<std::pair<raft::GroupId, node::TransactionId>> released;
		//! A copy that holds the changes, when there are any.
		std::optional<Placements> placements;
		std::optional<bool> multiraft_sql;
		//! Set when the feed is on, or is being switched.
		std::optional<ChangeTee> changes;
		std::vector<std::string> touched;
		raft::LogIndex catalog_version = 0;
		bool has_ddl = false;
		uint64_t rejected = 0;
		uint64_t foreign_conflicts = 0;
		//! Keys of tables that the transaction wrote, and whether it deleted or updated anything.
		std::set<std::string> written;
		std::set<std::string> changed;
		bool has_changes = false;
		uint64_t data_rows = 0;
		size_t bytes = 0;
		//! The last entry is a Checksum: nothing of a later one may be applied before the audit has seen it.
		std::optional<std::string> checksum;
		raft::LogIndex checksum_index = 0;
	};
	Status DecodeAt(const std::vector<node::CommittedEntry> &entries, size_t position);
	//! The entry at `position` must be rejected, but the transaction already holds its effects or those of others.
	struct Stop {
		size_t position;
		Status status;
	};

	Result<size_t> ApplySome(const std::vector<node::CommittedEntry> &entries, size_t begin);
	size_t Attempt(const std::vector<node::CommittedEntry> &entries, size_t begin, size_t limit);
	bool MustStartTransaction(ApplySession &session, const DecodedEntry &entry, const Staged &staged) const;
	void ApplyEntry(ApplySession &session, const node::CommittedEntry &committed, size_t position, Staged &staged);
	void ApplyNormal(ApplySession &session, const node::CommittedEntry &committed, size_t position, Staged &staged);
	bool IsRepeated(const node::CommittedEntry &committed, const RequestId &id, const Staged &staged) const;
	void Conclude(const node::CommittedEntry &committed, const EntryHeader &header, CommitOutcome outcome,
	              Staged &staged);
	//! Transactions over several groups: applier_groups.cpp.
	void ApplyTransaction(ApplySession &session, const node::CommittedEntry &committed, size_t position,
	                      Staged &staged);
	void ApplyPrepare(ApplySession &session, const node::CommittedEntry &committed, size_t position, Staged &staged);
	void ApplyDecision(ApplySession &session, const node::CommittedEntry &committed, size_t position, Staged &staged);
	void ApplyRelease(const node::CommittedEntry &committed, const node::TransactionEntry &release, Staged &staged);
	std::unique_ptr<DecodedEntry> MergeParts(const node::TransactionEntry &decision, const DecodedEntry &own,
	                                         Status &status);
	Status CheckEntry(ApplySession &session, const node::CommittedEntry &committed, const DecodedEntry &entry,
	                  const node::TransactionEntry *decision, node::LockSet &locks, const Staged &staged) const;
	Status CheckGroups(raft::GroupId group, const DecodedEntry &entry, const node::TransactionEntry *decision) const;
	bool HoldsTable(const node::TransactionEntry &decision, const std::string &table) const;
	Status CheckPlacement(const Effect &effect) const;
	void StageGroups(const Effect &effect, raft::LogIndex index, Staged &staged) const;
	void StagePlacement(const Effect &effect, raft::LogIndex index, Staged &staged) const;
	void PublishGroups(Staged &staged);
	const OpenStream *FindStream(const StreamId &id, const Staged &staged) const;
	std::vector<OpenStream> StreamsOf(const RequestId &request, const Staged &staged) const;
	void ApplyFragment(ApplySession &session, const node::CommittedEntry &committed, const DecodedEntry &entry,
	                   Staged &staged);
	template <class APPLIER>
	void Execute(APPLIER &effects, const node::CommittedEntry &committed, const DecodedEntry &entry, size_t position,
	             Staged &staged, CommitOutcome &outcome);
	ChangeTee *BeginChanges(const node::CommittedEntry &committed, const EntryHeader &header, Staged &staged) const;
	void StageSetting(const Effect &effect, raft::LogIndex index, Staged &staged) const;
	void ExecuteStream(ApplySession &session, const node::CommittedEntry &committed, const DecodedEntry &entry,
	                   size_t position, Staged &staged, CommitOutcome &outcome);
	void EndStreams(ApplySession &session, const node::CommittedEntry &committed, const RequestId &id, Staged &staged);
	void EndStream(ApplySession &session, const OpenStream &open, raft::LogIndex index, Staged &staged);
	bool EndsStreams(const DecodedEntry &entry, const Staged &staged) const;
	Status CheckWindow(const node::CommittedEntry &committed, const DecodedEntry &entry, const Staged &staged) const;
	Status Check(const node::CommittedEntry &committed, const DecodedEntry &entry,
	             const node::TransactionEntry *decision, const Staged &staged) const;
	Status CheckReads(raft::GroupId group, const DecodedEntry &entry, const Staged &staged) const;
	raft::LogIndex LastChange(const TableInGroup &table, const Staged &staged) const;
	Status CheckSequences(const DecodedEntry &entry, const Staged &staged) const;
	void Stage(const node::CommittedEntry &committed, const DecodedEntry &entry, std::vector<SequenceMove> moves,
	           Staged &staged);
	void StageSequence(const DecodedEntry &entry, raft::LogIndex index, SequenceMove move, Staged &staged);
	void Publish(Staged &staged);
	void OnLocalConflict(int attempt);
	void EvictLocal(int attempt);
	void RestoreMainTables();
	void AwaitOldSnapshots(const DecodedEntry &entry, const std::function<void()> &close_gate);
	void NoteRowChanges(const Staged &staged);
	void CompactWhenLong();
	void TellAudit();

	ReplicaCore &core;
	//! Of the current Apply call.
	std::vector<std::unique_ptr<DecodedEntry>> decoded;
	//! Entries of transactions over several groups; their parts are in `decoded`.
	std::map<size_t, node::TransactionEntry> transactions;
	//! Prepared parts that the decision under way executes.
	std::vector<std::unique_ptr<DecodedEntry>> merged;
	std::map<size_t, Status> rejections;
	//! What the current attempt writes, by key.
	std::map<std::string, ObjectName> attempt_objects;
	//! Of the transaction that was committed last; see Staged.
	std::optional<std::string> checksum;
	raft::LogIndex checksum_index = 0;
	uint64_t rows_since_compaction = 0;
	//! DuckDB commit number of the last delete or update of a table.
	std::unordered_map<std::string, uint64_t> row_changes;
};

} // namespace catalog
} // namespace quack
