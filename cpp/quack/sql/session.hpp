//! One client session: a DuckDB connection, the worker thread that runs its statements one after the other, the results
//! it still holds and the streams it feeds. Never tied to a socket: requests name it by id.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "duckdb.hpp"
#include "quack/common/clock.hpp"
#include "quack/sql/client_stream.hpp"
#include "quack/sql/query_execution.hpp"
#include "quack/sql/server_context.hpp"

namespace quack {
namespace sql {

struct SessionInfo {
	std::string id; //! 32 hex digits, 128 random bits: knowing it is being allowed to use it
	QuackVersion version = QuackVersion::V3;
	uint64_t lease_s = 60;
	std::string remote_address;
	std::string peer_identity; //! certificate, empty without one
	std::string client_version;
};

//! For quack_sessions().
struct SessionStatus {
	SessionInfo info;
	std::string state; //! active, idle, finished
	std::string query;
	MonotonicNs started = 0; //! of the running statement
	MonotonicNs last_request = 0;
	uint64_t statements = 0;
	uint64_t buffered_rows = 0;
	uint64_t buffered_bytes = 0;
	bool in_transaction = false;
	uint64_t connection = 0; //! duckdb::ClientContext::GetConnectionId
};

//! Thread-safe.
class Session final : public std::enable_shared_from_this<Session> {
public:
	//! Opens the connection and selects the catalog. Throws DuckDB exceptions.
	Session(const ServerContext &context, SessionInfo info);
	~Session();

	//! The session that runs statements on this context; null for contexts that are nobody's session.
	static Session *TryGet(duckdb::ClientContext &context);

	const SessionInfo &Info() const {
		return info;
	}
	const ServerContext &Context() const {
		return server;
	}

	//! Queues a statement, or finds the one with the same non-zero uuid. Throws when the queue is full or the session
	//! is closed.
	std::shared_ptr<QueryExecution> Submit(const PrepareRequest &request, StatementOptions options);
	//! Throws InvalidInput when there is no such result.
	std::shared_ptr<QueryExecution> Find(duckdb::hugeint_t uuid);
	//! Version 1, APPEND: runs in the worker like a statement.
	std::shared_ptr<QueryExecution> SubmitAppend(AppendRequest request, StatementOptions options);

	//! Zero uuid: everything.
	void Cancel(duckdb::hugeint_t uuid);
	void Acknowledge(duckdb::hugeint_t uuid);

	//! Called while a statement binds; the same id gives the same stream.
	std::shared_ptr<ClientStream> OpenStream(const std::string &id, const duckdb::vector<duckdb::LogicalType> &types,
	                                         bool ordered);
	//! Whether the running statement reads a client stream.
	bool HasStreams() const;
	//! Throws InvalidInput when no statement reads such a stream.
	std::shared_ptr<ClientStream> FindStream(const std::string &id);

	//! Cancels everything, ends the worker, rolls back. Idempotent; any thread but the worker.
	void Close(const std::string &reason);
	//! The first part of it, which does not wait.
	void BeginClose(const std::string &reason);

	//! Why the session was closed; empty while it is open.
	std::string ClosedReason() const;

	//! A valid message arrived; the lease starts anew and holds while requests are in progress.
	void BeginRequest();
	void EndRequest();
	bool LeaseExpired(MonotonicNs now) const;
	//! Interrupts what runs past its deadline or was cancelled between two steps. Called every few 10 ms.
	void EnforceDeadlines(MonotonicNs now);

	//! The node's disk hangs, as `hung` says: answers a statement that needs it and has run since before `before`, and
	//! closes the session, whose worker is stuck in it. False when there is none.
	bool AbandonStuck(MonotonicNs before, const std::string &hung);

	SessionStatus GetStatus() const;
	//! Whether an explicit transaction was open after the last statement.
	bool InTransaction() const {
		return in_transaction;
	}

	//! For the worker and what it calls.
	duckdb::Connection &Connection() {
		return *connection;
	}

private:
	struct Job {
		std::shared_ptr<QueryExecution> execution;
		std::shared_ptr<AppendRequest> append;
	};

	std::shared_ptr<QueryExecution> Enqueue(Job job);
	void WorkerLoop();
	void RunJob(Job &job);
	void JoinWorker(std::thread &ending);
	void EndStreams(QueryExecution &execution);
	void CancelAllLocked(const std::string &reason);
	void ForgetLocked(duckdb::hugeint_t uuid);
	//! Drops the oldest finished results above the limit.
	void ForgetDoneLocked();

	const ServerContext &server;
	const SessionInfo info;
	duckdb::unique_ptr<duckdb::Connection> connection;
	uint64_t connection_number = 0;

	//! Guards everything below but the atomics; not held while a statement runs.
	mutable std::mutex lock;
	std::condition_variable work;
	std::thread worker;
	bool closed = false;
	std::string close_reason;
	std::deque<Job> queue;
	std::shared_ptr<QueryExecution> current;
	MonotonicNs current_started = 0;
	std::map<std::string, std::shared_ptr<QueryExecution>> executions;
	std::deque<std::string> execution_order;
	std::map<std::string, std::shared_ptr<ClientStream>> streams;
	uint64_t statement_count = 0;
	uint64_t next_v1_uuid = 1;

	bool worker_ended = false;
	std::atomic<bool> in_transaction {false};
	std::atomic<uint32_t> requests_in_progress {0};
	std::atomic<MonotonicNs> last_request {0};
};

} // namespace sql
} // namespace quack
