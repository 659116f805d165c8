//! One statement of one session: where its worker puts encoded result batches and requests take them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "quack/common/clock.hpp"
#include "quack/sql/admission.hpp"
#include "quack/sql/commit_positions.hpp"
#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

struct ResultLimits {
	//! A batch is closed at this size, or earlier when a FETCH waits for it.
	uint64_t batch_bytes = 2 * 1024 * 1024;
	//! The statement pauses when so much is encoded but not acknowledged.
	uint64_t buffer_bytes_max = 64 * 1024 * 1024;
	//! It does not pause when another statement of the session waits behind it; past this it fails instead.
	uint64_t spool_bytes_max = 1024ULL * 1024 * 1024;
	//! Rows in the PREPARE answer when the client does not say.
	uint64_t inline_rows_default = 24576;
	//! Bytes of rows in the PREPARE answer; more rows are fetched, except for catalog traffic, which fails.
	uint64_t inline_bytes_max = 32 * 1024 * 1024;
};

//! What the client asked for beside the SQL text, from HTTP headers.
struct StatementOptions {
	std::string request_id;               //! 32 hex digits or empty
	std::string consistency;              //! eventual, session, linearizable or empty
	catalog::AppliedVector min_positions; //! a session read sees at least these
	MonotonicNs deadline = 0;             //! absolute; 0 = none
	bool describe_only = false;
	bool is_repeat = false; //! the client does not know what became of an earlier one with this request id
};

enum class ExecutionState : uint8_t { Queued, Running, Finished, Failed };

//! Thread-safe. The worker calls Start, SetSchema, Push, then Finish or Fail; requests call the rest.
class QueryExecution {
public:
	QueryExecution(duckdb::hugeint_t uuid, std::string sql, QuackVersion version, duckdb::optional_idx inline_rows,
	               const ResultLimits &limits, StatementOptions options, Admission &admission);
	~QueryExecution();

	const duckdb::hugeint_t uuid;
	const std::string sql;
	const QuackVersion version;
	const StatementOptions options;
	const MonotonicNs created;

	//! True when the client wants the answer before any row (streamed inserts).
	bool AnswersBeforeRows() const {
		return inline_rows == 0;
	}

	//! False when it was cancelled while it waited.
	bool Start();
	//! Releases a PREPARE that wants no rows; for the others it waits for rows or the end.
	void SetSchema(duckdb::vector<duckdb::LogicalType> types, duckdb::vector<std::string> names);
	//! Encodes and buffers; blocks while the buffer is full. Throws InterruptException after Cancel.
	void Push(duckdb::DataChunk &chunk);
	void Finish();
	void Fail(ErrorResponse error);
	//! Answers whoever waits although the worker is stuck in it; what the worker says later is ignored.
	void Abandon(ErrorResponse error);
	//! The statement needs more than what is in memory: it may be stuck when the node's disk hangs.
	void MarkNeedsDisk() {
		needs_disk = true;
	}
	bool NeedsDisk() const {
		return needs_disk;
	}
	//! Forgets schema and rows before another attempt. False when a client saw some of it already.
	bool Restart();

	//! Whether the client that waits has hung up; empty = nobody looks.
	using PeerProbe = std::function<bool()>;

	//! Blocks until the answer is known. Throws the statement's error. When the client hung up and nobody else asks for
	//! this statement within a grace time, it is cancelled: nobody will ever read it.
	PrepareResponse WaitPrepared(const PeerProbe &peer_gone);
	struct FetchedBatch {
		FetchResponse response;
		ChunkBatch batch;
		//! Where chunk objects begin in `batch.encoded` (version 1 wraps each).
		std::vector<size_t> offsets;
	};
	//! Version 3: batch `index`, dense from 1; past the end the terminal answer. Version 1: index 0 = the next one.
	//! Blocks until it exists. Throws the statement's error.
	FetchedBatch Fetch(uint64_t index, uint64_t ack_index, const PeerProbe &peer_gone);
	//! Stops buffering limits: another statement waits.
	void LiftLimit();
	void Cancel();
	//! The client needs nothing more of this result.
	void Acknowledge();

	ExecutionState State() const;
	//! Whether it failed, and how.
	bool FailedWith(ErrorResponse &out) const;
	bool IsCancelled() const;
	//! How long the worker has waited for a FETCH that nobody sends; 0 while it does not wait.
	MonotonicNs PausedFor(MonotonicNs now) const;
	uint64_t BufferedRows() const;
	uint64_t BufferedBytes() const;
	//! Finished or failed, and everything was taken.
	bool IsDone() const;

private:
	struct StoredBatch {
		std::string encoded;
		std::vector<size_t> offsets;
		uint64_t rows = 0;
	};

	//! Waits for `done`, watching the client.
	void WaitWatched(std::unique_lock<std::mutex> &guard, const std::function<bool()> &done,
	                 const PeerProbe &peer_gone);
	//! Whether the statement should wait before it produces more.
	bool MustPauseLocked() const;
	void AddBytesLocked(uint64_t bytes);
	void RemoveBytesLocked(uint64_t bytes);
	void DropBytesLocked();
	void FailLocked(ErrorResponse error);
	void CloseBatchLocked();
	void CheckFailedLocked(std::unique_lock<std::mutex> &guard) const;
	void DropAcknowledgedLocked(uint64_t ack_index);
	bool InlineIsFullLocked() const;

	const uint64_t inline_rows;
	const bool all_inline;
	const ResultLimits limits;
	Admission &admission;

	std::atomic<bool> needs_disk {false};
	mutable std::mutex lock;
	std::condition_variable changed;
	ExecutionState state = ExecutionState::Queued;
	bool has_schema = false;
	duckdb::vector<duckdb::LogicalType> types;
	duckdb::vector<std::string> names;
	std::vector<std::string> inline_chunks;
	uint64_t inline_row_count = 0;
	uint64_t inline_byte_count = 0;
	bool inline_closed = false;
	StoredBatch open;
	std::map<uint64_t, StoredBatch> batches;
	uint64_t last_batch = 0;
	uint64_t acked = 0;
	uint64_t next_v1 = 1;
	uint64_t buffered_bytes = 0;
	uint64_t buffered_rows = 0;
	//! Highest batch that a FETCH waits for now.
	uint64_t wanted = 0;
	//! When the worker began to wait or a FETCH came last; 0 = it does not wait.
	MonotonicNs paused_since = 0;
	//! Requests that wait for this statement now, and how many ever came.
	uint64_t waiting = 0;
	uint64_t arrivals = 0;
	bool limit_lifted = false;
	bool cancelled = false;
	bool acknowledged = false;
	bool answered = false;
	ErrorResponse error;
};

} // namespace sql
} // namespace quack
