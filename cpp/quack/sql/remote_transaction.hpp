//! Statements and transactions on a node, as one DuckDB session of the client sees them. Autocommit statements are one
//! request that is sent again, under the same request id, until it has one outcome; explicit transactions live in one
//! session of one node and end with it.
#pragma once

#include <optional>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "duckdb.hpp"
#include "duckdb/transaction/transaction.hpp"
#include "duckdb/transaction/transaction_manager.hpp"

#include "quack/sql/remote_cluster.hpp"

namespace quack {
namespace sql {

class RemoteCatalog;
class RemoteSnapshot;

//! What to run and how.
struct RemoteStatement {
	std::string sql;
	std::string schema;         //! unqualified names are looked up here; empty = the node's default
	std::string consistency;    //! filled when it runs: the session's, else the attachment's
	bool effect = false;        //! may change data or schema: has a request id in autocommit
	bool describe = false;      //! bind only
	bool ddl = false;           //! changes this transaction's own view of the schema
	bool returning = false;     //! streamed rows: the statement answers with rows of its own instead of a count
	bool unbounded = false;     //! streamed rows that are still coming: the node gets no deadline
	bool counts_itself = false; //! streamed rows: the count is not the number of rows sent
};

//! The name of one write over all its repetitions.
struct RemoteRequestId {
	std::string text;     //! 32 hex digits; empty = none
	bool unknown = false; //! it was sent, and its outcome is not known
};

//! Where a result stands when reading begins.
struct RemoteStreamStart {
	duckdb::hugeint_t query_uuid = 0;
	duckdb::vector<duckdb::LogicalType> types;
	duckdb::vector<std::string> names;
	std::vector<duckdb::unique_ptr<duckdb::DataChunk>> chunks; //! already here
	bool needs_more_fetch = false;
	uint64_t first_batch = 1; //! next batch to FETCH

	static RemoteStreamStart From(PrepareResponse response);
};

//! The rows of one statement, fetched as they are read. Destroying an unfinished one cancels it. Thread-safe.
class RemoteStream {
public:
	RemoteStream(std::shared_ptr<RemoteCluster> cluster, std::shared_ptr<RemoteSession> session, bool owns_session,
	             RemoteStreamStart start);
	~RemoteStream();

	const duckdb::vector<duckdb::LogicalType> &Types() const {
		return types;
	}
	const duckdb::vector<std::string> &Names() const {
		return names;
	}
	//! The next non-empty chunk, null at the end. Throws DuckDB exceptions on remote errors and interrupt.
	duckdb::unique_ptr<duckdb::DataChunk> Next(duckdb::ClientContext &context);

private:
	void Fetch(duckdb::ClientContext &context);
	void Finish();

	std::shared_ptr<RemoteCluster> cluster;
	std::shared_ptr<RemoteSession> session;
	const bool owns_session; //! autocommit: given back at the end
	const duckdb::hugeint_t query_uuid;
	duckdb::vector<duckdb::LogicalType> types;
	duckdb::vector<std::string> names;

	std::mutex lock; //! guards the rest; held during IO by the one reader
	std::deque<duckdb::unique_ptr<duckdb::DataChunk>> chunks;
	bool more = false;
	uint64_t next_batch;
};

//! A stream that may be started when bound and is taken when executed.
struct RemoteStreamSlot {
	std::mutex lock; //! guards stream; held for moves only
	std::unique_ptr<RemoteStream> stream;

	std::unique_ptr<RemoteStream> Take() {
		std::lock_guard<std::mutex> guard(lock);
		return std::move(stream);
	}
};

//! Rows flow while the statement runs; made by RemoteTransaction::OpenSender. One thread.
class RemoteRowSender {
public:
	virtual ~RemoteRowSender() = default;
	//! Buffers rows; sends full batches.
	virtual void Append(duckdb::ClientContext &context, duckdb::DataChunk &chunk) = 0;
	//! Ends the stream and waits for the outcome; the statement's own rows (its count, or RETURNING).
	virtual std::unique_ptr<RemoteStream> Finish(duckdb::ClientContext &context) = 0;
};

class RemoteTransaction : public duckdb::Transaction {
public:
	RemoteTransaction(duckdb::TransactionManager &manager, duckdb::ClientContext &context, RemoteCatalog &catalog);
	~RemoteTransaction() override;

	static RemoteTransaction &Get(duckdb::ClientContext &context, duckdb::Catalog &catalog);

	//! Runs one statement. Throws on every failure. With `effect` in autocommit the outcome is known when it returns: a
	//! lost answer was asked for again, on other nodes if need be, until the deadline.
	std::unique_ptr<RemoteStream> Run(duckdb::ClientContext &context, const RemoteStatement &statement);

	//! Runs `statement`, which reads scan_data_from_quack_client('<stream_id>', …), with rows from the sender.
	//! `deferred`: everything is sent by Finish, because other pieces use the session until then.
	std::unique_ptr<RemoteRowSender> OpenSender(duckdb::ClientContext &context, RemoteStatement statement,
	                                            std::string stream_id, bool deferred);

	//! From now on this transaction is explicit on the node too, although the client autocommits.
	void RequireExplicit();
	//! A statement with several remote pieces reads one snapshot: from the second piece on the transaction is explicit,
	//! and what a first piece already read is dropped through its slot, to be read again.
	//! Returns whether there are several now.
	bool RegisterPiece(duckdb::ClientContext &context, std::shared_ptr<RemoteStreamSlot> slot);
	duckdb::ErrorData Commit(duckdb::ClientContext &context);
	void Rollback();

	//! The schema as this transaction sees it. `fresh`: ask the node first whether it changed, once per statement.
	std::shared_ptr<RemoteSnapshot> Snapshot(duckdb::ClientContext &context, bool fresh);
	//! True when this statement looked `name` up before.
	bool NoteLookup(duckdb::ClientContext &context, const std::string &name);

	RemoteCluster &Cluster() {
		return *cluster;
	}
	//! Budget of one statement that starts now; interrupt included.
	RemoteBudget Budget(duckdb::ClientContext &context) const;
	//! For what may take as long as its node lives, unless the session limits its statements.
	static RemoteBudget StatementBudget(duckdb::ClientContext &context);
	//! How fresh this session's reads are.
	std::string Consistency(duckdb::ClientContext &context) const;

	//! One PREPARE and what came back. `retry`: the same request id may be sent again.
	struct Attempt {
		Status transport;
		bool is_error = false;
		bool retry = false;
		bool conflict = false; //! lost against another writer, everywhere; may be run again under a new request id
		bool unknown = false;  //! it may have been committed, or still be
		uint64_t retry_after_ms = 0;
		ErrorResponse error;
		PrepareResponse response;
	};
	//! A node without space answers at once, and the attempts that follow may end at the deadline without a word of
	//! why: what it said is kept in `cause`, and told instead of a bare deadline.
	static void TellCause(Attempt &attempt, std::optional<ErrorResponse> &cause);
	static Attempt TryPrepare(RemoteCluster &cluster, RemoteSession &session, const RemoteStatement &statement,
	                          const RemoteRequestId &request_id, duckdb::hugeint_t query_uuid,
	                          duckdb::optional_idx inline_rows, const RemoteBudget &budget);
	//! One FETCH; its chunks are added to `result`, whose needs_more_fetch is cleared at the end.
	static Attempt FetchBatch(RemoteCluster &cluster, RemoteSession &session, duckdb::hugeint_t query_uuid,
	                          uint64_t batch, const RemoteBudget &budget, RemoteStreamStart &result);
	//! Throws what an attempt that will not be repeated means for the user.
	[[noreturn]] static void ThrowFailure(const Attempt &attempt, const std::string &what,
	                                      const RemoteRequestId &request_id = RemoteRequestId());
	//! The user interrupted a write that was sent: asks the cluster what became of it. Returns when it was committed,
	//! else throws.
	static void SettleInterrupted(duckdb::ClientContext &context, RemoteCluster &cluster, const std::string &what,
	                              const RemoteRequestId &request_id);
	//! What was committed is reported so: an interrupt that comes now is too late.
	static void NoteCommitted(duckdb::ClientContext &context);

private:
	friend class StatementRowSender;
	void NoteStatement(duckdb::ClientContext &context);
	std::unique_ptr<RemoteStream> RunAutocommit(duckdb::ClientContext &context, const RemoteStatement &statement);
	std::unique_ptr<RemoteStream> RunExplicit(duckdb::ClientContext &context, const RemoteStatement &statement);
	//! The session of the explicit transaction, with BEGIN sent. Caller holds `lock`.
	std::shared_ptr<RemoteSession> Begun(const RemoteBudget &budget);
	//! Gives the node's session, whose transaction has just begun, the isolation that the client has set. `attempt` is
	//! how that went.
	bool SetIsolation(RemoteSession &node_session, const RemoteBudget &budget, Attempt &attempt);
	static Status SetSchema(RemoteCluster &cluster, RemoteSession &session, const std::string &schema,
	                        const RemoteBudget &budget);
	void Break(const std::string &reason);
	//! Fetches the rest of a result.
	Attempt Complete(RemoteSession &node_session, RemoteStreamStart &start, const RemoteBudget &budget);
	//! Fills in the failure; false when there is one.
	static bool NoteReply(const Result<RemoteReply> &reply, Attempt &attempt);
	//! Sends COMMIT; throws unless it is known to be committed.
	void CommitOnNode(duckdb::ClientContext &context, const RemoteBudget &budget);
	//! SettleInterrupted, and the answer of a statement that was committed.
	std::unique_ptr<RemoteStream> Interrupted(duckdb::ClientContext &context, const std::string &what,
	                                          const RemoteRequestId &request_id);
	//! The node that committed cannot be asked any more; any other one decides what became of the request.
	void CommitElsewhere(duckdb::ClientContext &context, const RemoteRequestId &request_id, const RemoteBudget &budget,
	                     const std::string &reason);
	bool IsExplicit() const {
		return !autocommit;
	}

	RemoteCatalog &catalog;
	std::shared_ptr<RemoteCluster> cluster;
	std::atomic<bool> autocommit;

	std::mutex sender_lock;                 //! held by one deferred sender at a time, while it sends
	std::mutex lock;                        //! guards the rest; held during requests of an explicit transaction
	std::shared_ptr<RemoteSession> session; //! explicit only, from BEGIN to the end
	std::string broken;                     //! why an explicit transaction cannot go on
	bool own_schema_changes = false;

	std::mutex schema_lock; //! guards the rest; held while the schema is loaded
	std::shared_ptr<RemoteSnapshot> snapshot;
	std::vector<std::shared_ptr<RemoteSnapshot>> kept; //! entries handed out stay valid until the end
	duckdb::idx_t statement_number = 0;
	bool fresh_in_statement = false;
	std::set<std::string> looked_up;
	std::vector<std::shared_ptr<RemoteStreamSlot>> pieces; //! of the current statement
};

class RemoteTransactionManager : public duckdb::TransactionManager {
public:
	RemoteTransactionManager(duckdb::AttachedDatabase &db, RemoteCatalog &catalog);

	duckdb::Transaction &StartTransaction(duckdb::ClientContext &context) override;
	duckdb::ErrorData CommitTransaction(duckdb::ClientContext &context, duckdb::Transaction &transaction) override;
	void RollbackTransaction(duckdb::Transaction &transaction) override;
	void Checkpoint(duckdb::ClientContext &context, bool force) override;

private:
	RemoteCatalog &catalog;
	std::mutex lock; //! guards the map; not held during IO
	duckdb::reference_map_t<duckdb::Transaction, duckdb::unique_ptr<RemoteTransaction>> transactions;
};

} // namespace sql
} // namespace quack
