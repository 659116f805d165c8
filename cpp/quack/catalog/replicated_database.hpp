//! The replicated state of a node: one DuckDB file, attached under the fixed name `cp` with DuckDB's own write-ahead
//! log switched off. Writes of sessions are captured at commit and travel through the consensus engine; committed
//! entries come back through Apply. See DESIGN.md.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/main/client_context_state.hpp"
#include "quack/catalog/object_hash.hpp"
#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/node/consensus_engine.hpp"
#include "quack/node/state_machine.hpp"

namespace quack {
namespace catalog {

//! The replicated catalog has this name on every node: default expressions and sequences bake it in.
constexpr const char *CATALOG_NAME = "cp";
//! Holds applied vector, outcomes and cluster identity; users may read it, never write it.
constexpr const char *META_SCHEMA = "__quack";
//! The ATTACH type. Only ReplicatedDatabase::Open attaches it; a user's ATTACH of this type is refused.
constexpr const char *STORAGE_TYPE = "quack_replica";

//! Registers the storage type; call once per DuckDB instance, when the extension loads, before Open.
void RegisterReplicaStorage(duckdb::DBConfig &config);

//! Names one commit attempt over all its retries. All zero = none. Bytes 0 to 9 are random; bytes 10 to 15 hold, most
//! significant first, the *base*: what RequestBaseNow() was on some node before the id was made. Entries carry the base
//! of their id, and groups remember the largest base that they forgot, so every node can tell whether the outcomes it
//! remembers reach back far enough (cpp/GROUPS.md, "Counting once").
using RequestId = std::array<uint8_t, 16>;

//! 32 lower-case hex digits.
std::string RequestIdToString(const RequestId &id);
//! InvalidArgument unless it is exactly what RequestIdToString prints.
Result<RequestId> RequestIdFromString(const std::string &text);
//! Random bits come from the operating system. `base`: see RequestId; a larger one lets a request be repeated for
//! longer.
RequestId NewRequestId(raft::LogIndex base = 0);
raft::LogIndex RequestBase(const RequestId &id);

enum class Consistency : uint8_t { Eventual = 0, Session = 1, Linearizable = 2 };

//! Who a catalog file is.
struct CatalogFileReport {
	std::string cluster_id;
	uint64_t format = 0;
	std::vector<node::AppliedPosition> positions; //! of its last checkpoint
};

//! Opens a file that no node uses, read-only, in a DuckDB instance of its own that knows the functions of `host`, and
//! reads every block in use.
//! Corruption: it is damaged. Incompatible: no catalog file of a node, or of another format. IoError: it cannot be
//! read, or a node has it open.
Result<CatalogFileReport> InspectCatalogFile(duckdb::DatabaseInstance &host, const std::string &path);

//! Makes a restored file, which no node has opened yet, that of another cluster: who the members were is forgotten, the
//! position and the outcomes of requests stay. The file is durable on return. Corruption, Incompatible, IoError as
//! above; InvalidArgument: no cluster id, or the file's own.
Status GiveToCluster(duckdb::DatabaseInstance &host, const std::string &path, const std::string &cluster_id);

//! What became of a commit.
struct CommitOutcome {
	RequestId request_id {};
	//! Ok; Conflict, SchemaChanged (nothing committed, retry the transaction); Constraint (nothing committed);
	//! Unavailable, Overloaded, DeadlineExceeded, Degraded (surely not committed); OutcomeUnknown (ask later with the
	//! request id); anything else: nothing committed, the message says why.
	Status status;
	raft::GroupId group = raft::ROOT_GROUP;
	//! The entry's log index; 0 when it never reached the log.
	raft::LogIndex index = 0;
	//! Of the entry; see RequestId.
	uint64_t base = 0;
};

//! Per-session settings that commits and reads honour, and the last outcome. One per ClientContext. Thread-safe.
class SessionState final : public duckdb::ClientContextState {
public:
	//! The session's state, created with defaults at first use.
	static SessionState &Get(duckdb::ClientContext &context);

	//! The id of the next commit; used once, then cleared. Generated when not set. `base`: of the id, or a later one
	//! that everybody who uses the id agrees on; the default says that nobody used the id before now.
	void SetNextRequestId(const RequestId &id, raft::LogIndex base = UINT64_MAX);
	//! An earlier attempt of the same transaction was rejected: groups are prepared one after the other.
	void SetInTurn(bool is_in_turn);
	bool IsInTurn() const;
	//! Absolute end (monotonic clock) of commits and fenced reads from now on; 0 = the default of 30 s per operation.
	void SetDeadline(MonotonicNs deadline);
	void SetConsistency(Consistency consistency);
	//! `session` reads wait until `index` is applied here: what this session saw or wrote on another node.
	void RaiseFloor(raft::GroupId group, raft::LogIndex index);

	Consistency GetConsistency() const;
	//! False when each operation has the default.
	bool HasDeadline() const;
	//! The end of an operation that starts now.
	MonotonicNs OperationDeadline() const;
	std::map<raft::GroupId, raft::LogIndex> Floor() const;
	//! The id, and its base if asked for.
	RequestId TakeRequestId(raft::LogIndex *base = nullptr);

	//! The last commit that had effects; empty before the first one. A DuckDB commit error loses its type on the way to
	//! the client ("Failed to commit: ..."): the server reads it from here.
	std::optional<CommitOutcome> LastCommit() const;
	void SetLastCommit(CommitOutcome outcome);
	//! Why the open transaction can no longer commit (a committed entry needed what it held); Ok when it can. The
	//! running statement was interrupted: report this status instead of "Interrupted!", and refuse further statements
	//! of the transaction with it. Cleared when the session's next transaction begins.
	Status Doomed() const;
	//! Used by eviction only, around the steps that abort the transaction.
	void Doom(Status status);
	void DoomDelivered();
	//! Interrupts the running statement, unless it ends the transaction by itself (COMMIT, ROLLBACK): false.
	bool InterruptForEviction(duckdb::ClientContext &context);
	//! A transaction of the catalog starts inside the session's transaction `number` (MetaTransaction). The second one
	//! of a number stands in for one that was evicted, or whose database was replaced by a snapshot: what the first one
	//! did is gone, so the whole must not commit.
	void NoteStart(uint64_t number);
	//! True when more than one transaction of the catalog started inside the session's latest transaction.
	bool LostEffects() const;
	void TransactionBegin(duckdb::MetaTransaction &transaction, duckdb::ClientContext &context) override;
	void QueryBegin(duckdb::ClientContext &context) override;
	//! A serializable transaction ran a statement whose reads could not be noted: it may have read anything.
	bool ReadsWereHidden() const;
	duckdb::RebindQueryInfo OnRebindPreparedStatement(duckdb::ClientContext &context,
	                                                  duckdb::BindPreparedStatementCallbackInfo &info,
	                                                  duckdb::RebindQueryInfo current) override;

private:
	mutable std::mutex lock;
	RequestId next_request_id {};
	raft::LogIndex next_request_base = UINT64_MAX;
	MonotonicNs deadline = 0;
	Consistency consistency = Consistency::Session;
	std::map<raft::GroupId, raft::LogIndex> floor;
	std::optional<CommitOutcome> last_commit;
	Status doomed;
	bool doom_in_progress = false;
	uint64_t started_in = UINT64_MAX;
	bool started_again = false;
	bool reads_were_hidden = false;
	bool is_in_turn = false;
	bool is_ending_transaction = false; //! the latest statement is COMMIT or ROLLBACK
};

struct ReplicaOptions {
	std::string path;       //! the catalog file; created when missing
	std::string cluster_id; //! must match the one in the file; written when the file is new
	std::string node_id;    //! for messages only
	//! This node as a member; whose checksums it reports.
	raft::NodeId member = raft::NO_NODE;
	//! The leader has checksums of all nodes compared this often, or less often when they are dear (DESIGN.md, Proof of
	//! equality); 0 = never.
	MonotonicNs checksum_interval = 0;
	//! Called on the apply thread with the reason, before the node is latched because its state is wrong: from now on
	//! the catalog file must not be trusted. May be empty.
	std::function<void(const std::string &)> on_divergence;
	//! Rows and DDL of a transaction that take more than this travel in fragments (fragments.hpp).
	size_t split_bytes = 8 * 1024 * 1024;
	//! A large transaction to which nothing was added for this long is given up.
	MonotonicNs stream_patience = 60 * NS_PER_SECOND;
	//! DuckDB cannot checkpoint past an open writer, nor past an open reader that is older than a committed update. A
	//! checkpoint that meets one is postponed; it aborts writers, respectively any transaction of `cp`, that were open
	//! for this long.
	MonotonicNs checkpoint_writer_patience = 30 * NS_PER_SECOND;
	MonotonicNs checkpoint_reader_patience = 120 * NS_PER_SECOND;
};

//! A transaction of `cp` that is open on this node.
struct TransactionInfo {
	uint64_t connection = 0; //! duckdb::ClientContext::GetConnectionId
	bool is_writer = false;
	MonotonicNs opened_at = 0;
	raft::LogIndex snapshot_index = 0; //! of the root group: what it sees
	std::vector<std::string> written;  //! tables; incomplete, see TransactionRegistry
	//! The last checkpoint could not be made while it was open: log and file grow until it ends.
	bool holds_checkpoint = false;
};

struct ReplicaStatistics {
	uint64_t entries_applied = 0;
	uint64_t entries_rejected = 0;  //! conflicts, constraints, schema changes
	uint64_t foreign_conflicts = 0; //! entries of other nodes that lost against an earlier one
	uint64_t rows_applied = 0;
	uint64_t transactions_applied = 0; //! DuckDB commits of the applier: entries_applied / this = coalescing
	uint64_t local_evictions = 0;      //! local transactions aborted because an entry needed what they held
	uint64_t checkpoints = 0;
	uint64_t checkpoint_last_ms = 0; //! Apply stood still for that long
	uint64_t checkpoint_max_ms = 0;
	uint64_t checkpoints_postponed = 0;
	uint64_t waiting_commits = 0; //! sessions that wait for their entry now
	uint64_t open_streams = 0;    //! large transactions of any node that have not ended
	uint64_t open_stream_bytes = 0;
};

//! What is kept of the changes that were applied.
struct ChangeFeedStatus {
	struct Group {
		raft::GroupId group = 0;
		std::string name;
		uint64_t bytes = 0;         //! kept
		raft::LogIndex oldest = 0;  //! all changes of later entries are kept
		raft::LogIndex applied = 0; //! here
	};
	uint64_t retention = 0; //! bytes per group; 0 = off
	std::vector<Group> groups;
};

struct ReplicaCore;
class Applier;
class Placements;
struct ObjectName;
class EqualityAudit;
class StreamSweeper;
class PartSweeper;

//! Threads: see node::StateMachine; everything else from any thread. The DatabaseInstance outlives it.
class ReplicatedDatabase final : public node::StateMachine {
public:
	//! Attaches the file as `cp`. Incompatible: another cluster's file or a newer format. IoError: the file cannot be
	//! opened or is held by another process.
	static Result<std::unique_ptr<ReplicatedDatabase>> Open(duckdb::DatabaseInstance &instance, ReplicaOptions options);
	~ReplicatedDatabase() override;

	//! The engine outlives this object or is taken away again with nullptr. Without one, writes fail Unavailable.
	void SetEngine(node::ConsensusEngine *engine);

	//! Stops commits, checkpoints and detaches. Stop the engine first. Idempotent.
	void Close();

	Status Apply(const std::vector<node::CommittedEntry> &entries) override;
	std::vector<node::Position> Needs(const node::CommittedEntry &entry) const override;
	std::vector<node::GroupDefinition> Groups() const override;
	uint64_t GroupsVersion() const override;
	std::vector<node::AppliedPosition> Applied() const override;
	std::vector<node::AppliedPosition> Durable() const override;
	//! Unavailable = postponed by an open transaction (see ReplicaOptions), which the message names; try again soon.
	MonotonicNs SyncingSince() const override;
	std::string Place() const override;
	Status Checkpoint() override;
	Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() override;
	std::vector<std::unique_ptr<SnapshotImage>> RetainedSnapshots() override;
	Status InstallSnapshot(const std::string &path) override;

	//! One consistent read of all tables outside `__quack`, sorted by schema, type and object.
	Result<std::vector<ObjectHash>> StateHash();

	//! The last comparisons of checksums between nodes, as this node saw them since it was opened.
	std::vector<ChecksumRow> Checksums() const;
	//! Gives up the comparison under way, whose snapshot would hold back the last checkpoint.
	void StopAudit();

	//! Oldest first.
	std::vector<TransactionInfo> Transactions() const;

	//! The outcome of a request, if one of the groups remembers it (for 65,536 entries).
	std::optional<CommitOutcome> Outcome(const RequestId &id) const;

	//! Makes the outcome of a request final. Where no entry under this id was applied yet, one without effects is put
	//! into the log under it, in every group: whichever comes first decides, on every node, and for a request that
	//! never arrives the outcome is Cancelled. OutcomeUnknown: too many entries ago to tell, or no quorum before
	//! `deadline` (absolute).
	CommitOutcome ResolveOutcome(const RequestId &id, raft::LogIndex base, MonotonicNs deadline);

	//! Root index of the last entry that changed the catalog.
	raft::LogIndex CatalogVersion() const;

	//! Whether statements that place tables in groups are allowed; a setting of the cluster.
	bool IsMultiraftSqlEnabled() const;
	//! Ok when it is committed and applied here.
	Status SetMultiraftSql(bool is_enabled, MonotonicNs deadline);
	//! How much of the changes each group keeps (DESIGN.md, "Change feed"); 0 = nothing, and what was kept goes. Ok
	//! when it is committed and applied here.
	Status SetChangesRetention(uint64_t bytes, MonotonicNs deadline);
	ChangeFeedStatus ChangesStatus() const;
	//! Groups and where tables live, as of what is applied here; keys are ObjectName::Key().
	std::shared_ptr<const Placements> GetPlacements() const;
	//! Of every table, by ObjectName::Key(): its name as it was written. Empty while the catalog cannot be read.
	std::map<std::string, ObjectName> TableNames();

	//! The base of a request id that is made now: what is applied here, summed over all groups. Never falls.
	uint64_t RequestBaseNow() const;

	ReplicaStatistics Statistics() const;

private:
	explicit ReplicatedDatabase(std::shared_ptr<ReplicaCore> core_p);

	std::shared_ptr<ReplicaCore> core;
	std::unique_ptr<Applier> applier;
	std::unique_ptr<EqualityAudit> audit;
	std::unique_ptr<StreamSweeper> sweeper;
	std::unique_ptr<PartSweeper> part_sweeper;
};

} // namespace catalog
} // namespace quack
