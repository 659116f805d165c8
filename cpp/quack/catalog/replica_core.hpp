//! State that the database, its transaction manager and its applier share. Internal to `catalog`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>

#include "duckdb.hpp"
#include "quack/catalog/change_feed.hpp"
#include "quack/catalog/fragments.hpp"
#include "quack/catalog/outcome_window.hpp"
#include "quack/catalog/placements.hpp"
#include "quack/catalog/position_text.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/catalog/sync_watch.hpp"
#include "quack/catalog/transaction_registry.hpp"
#include "quack/node/prepared_parts.hpp"

namespace quack {
namespace catalog {

class CommitWaiter;
enum class WaitFor : uint8_t;

//! Who used a sequence last, to find uses that overlap (DESIGN.md, Sequences).
struct SequenceUsers {
	uint64_t last_user = 0;
	raft::LogIndex last_index = 0;
	//! Largest index of a use by anyone else.
	raft::LogIndex other_index = 0;
	//! Largest usage count of the last user since it became that. Sessions of one node may commit in another order than
	//! they drew values.
	uint64_t usage_count = 0;

	//! True when the sequence must move to the counter of this use.
	bool Record(uint64_t user, raft::LogIndex index, uint64_t use) {
		bool newest = user != last_user || use > usage_count;
		if (user != last_user) {
			other_index = last_index;
			last_user = user;
		}
		last_index = index;
		usage_count = newest ? use : usage_count;
		return newest;
	}
	raft::LogIndex LastForeign(uint64_t user) const {
		return user == last_user ? other_index : last_index;
	}
};

using TableInGroup = std::pair<raft::GroupId, std::string>;

//! The part of the replicated state that lives outside user tables. Owned by the apply thread; `lock` guards it only
//! against readers. Persisted in `__quack` (meta_store.hpp) inside the transactions that change it.
struct ReplicatedState {
	std::map<raft::GroupId, node::AppliedPosition> positions;
	OutcomeWindow outcomes;
	//! Root index of the last DDL entry, and of the last one that touched a name (ObjectName::Key).
	raft::LogIndex catalog_version = 0;
	std::unordered_map<std::string, raft::LogIndex> object_versions;
	std::unordered_map<std::string, SequenceUsers> sequences;
	//! Per group the index of the last entry that changed rows or definition of a table, by ObjectName::Key; and of any
	//! table.
	std::map<TableInGroup, raft::LogIndex> table_changes;
	std::map<raft::GroupId, raft::LogIndex> last_changes;
	Placements placements;
	//! Parts of transactions over several groups (cpp/GROUPS.md).
	node::PreparedParts prepared;
	//! quack_multiraft_sql_set_enabled.
	bool is_multiraft_sql_enabled = false;
	ChangeFeed changes;
	//! Large transactions that have not ended.
	std::map<StreamId, OpenStream> streams;

	//! Whether DDL touched a name (ObjectName::Key) in an entry behind `version`.
	bool IsChangedSince(const std::string &key, raft::LogIndex version) const;
	//! SchemaChanged when it touched the object behind what the transaction was planned on.
	Status CheckUnchanged(const ObjectName &name, raft::LogIndex planned_version) const;
};

class EqualityAudit;

struct ReplicaCore {
	ReplicaCore(duckdb::DatabaseInstance &instance_p, ReplicaOptions options_p)
	    : instance(instance_p), options(std::move(options_p)) {
	}

	duckdb::DatabaseInstance &instance;
	const ReplicaOptions options;
	//! This life of the database: random, never 0.
	uint64_t incarnation = 0;
	std::atomic<node::ConsensusEngine *> engine {nullptr};
	std::atomic<bool> closing {false};

	mutable std::mutex state_lock;
	ReplicatedState state;
	//! Copies for readers that must not wait.
	std::atomic<raft::LogIndex> catalog_version {0};
	std::atomic<raft::LogIndex> root_applied {0};
	std::atomic<uint64_t> request_base {0};
	std::atomic<uint64_t> groups_version {0};
	std::shared_ptr<const AppliedVector> applied_vector = std::make_shared<AppliedVector>(); //! guarded by state_lock
	std::shared_ptr<const Placements> placements = std::make_shared<Placements>();           //! guarded by state_lock
	std::vector<node::AppliedPosition> durable;                                              //! guarded by state_lock

	TransactionRegistry transactions;
	//! The applier's own session: its commits pass through.
	std::atomic<duckdb::ClientContext *> apply_context {nullptr};

	//! Told by the apply thread; outlives it.
	EqualityAudit *audit = nullptr;

	std::mutex waiters_lock;
	//! A request that was sent twice may have several.
	std::unordered_multimap<RequestId, std::shared_ptr<CommitWaiter>, RequestIdHash> waiters;

	//! Shared with the file system that DuckDB was given for the catalog's files.
	const std::shared_ptr<SyncWatch> syncs = std::make_shared<SyncWatch>();
	const std::shared_ptr<BlockJournal> journal = std::make_shared<BlockJournal>(options.path);

	//! A descriptor of the catalog file, kept open while attached: closing any descriptor of a file drops DuckDB's
	//! POSIX lock on it. -1 when detached.
	int file = -1;

	//! Copies of the file under way; they hold the checkpoint lock shared.
	std::atomic<int> snapshot_copies {0};

	std::atomic<uint64_t> entries_applied {0};
	std::atomic<uint64_t> entries_rejected {0};
	std::atomic<uint64_t> foreign_conflicts {0};
	std::atomic<uint64_t> rows_applied {0};
	std::atomic<uint64_t> transactions_applied {0};
	std::atomic<uint64_t> local_evictions {0};
	std::atomic<uint64_t> checkpoints {0};
	std::atomic<uint64_t> checkpoint_last_ms {0};
	std::atomic<uint64_t> checkpoint_max_ms {0};
	std::atomic<uint64_t> checkpoints_postponed {0};
	//! When open transactions kept the last checkpoint from being made; 0 = it was made.
	std::atomic<MonotonicNs> postponed_at {0};

	//! After a change of `state`, with its lock held: brings the copies up to date.
	void PublishCopies();
	//! What is applied now.
	std::shared_ptr<const AppliedVector> Vector() const;
	//! This node leads the group and is in service.
	bool Leads(raft::GroupId group) const;
	//! Of an entry that this node makes by itself, planned on what it has applied; the request id is left to the
	//! caller.
	EntryHeader OwnHeader() const;
	//! Null when the catalog is not attached.
	duckdb::shared_ptr<duckdb::AttachedDatabase> Attached() const;
	std::string GroupName(raft::GroupId group) const;
	//! It does not exist, as far as is applied here. A group that was just created may not run here yet.
	bool IsGroupGone(raft::GroupId group) const;
	//! Tells sessions that wait for these outcomes.
	void DeliverOutcomes(const std::vector<CommitOutcome> &outcomes);
	//! Tells sessions that wait for these parts: Ok = granted.
	void DeliverPrepared(const std::vector<CommitOutcome> &prepared);

private:
	void Deliver(const CommitOutcome &outcome, WaitFor kind);
};

//! What became of a request, if it is remembered.
std::optional<CommitOutcome> KnownOutcome(const ReplicaCore &core, const RequestId &id);

//! Fulfils the session's consistency before a snapshot is taken; throws TransactionException naming the group and the
//! reason when that is not possible in time.
void WaitForConsistency(ReplicaCore &core, duckdb::ClientContext &context);

} // namespace catalog
} // namespace quack
