#include "quack/sql/query_execution.hpp"

#include <chrono>

#include "duckdb/common/exception.hpp"

namespace quack {
namespace sql {

using duckdb::InvalidInputException;

namespace {

//! How often a waiting request looks whether its client is still there, and how long a client that lost its connection
//! has to come back for the same statement.
constexpr auto PEER_PROBE_INTERVAL = std::chrono::milliseconds(200);
constexpr MonotonicNs PEER_GONE_GRACE = NS_PER_SECOND;
constexpr auto PAUSE_POLL_INTERVAL = std::chrono::milliseconds(20);

uint64_t InlineRows(duckdb::optional_idx asked, const ResultLimits &limits) {
	return asked.IsValid() ? asked.GetIndex() : limits.inline_rows_default;
}

} // namespace

QueryExecution::QueryExecution(duckdb::hugeint_t uuid_p, std::string sql_p, QuackVersion version_p,
                               duckdb::optional_idx inline_rows_p, const ResultLimits &limits_p,
                               StatementOptions options_p, Admission &admission_p)
    : uuid(uuid_p), sql(std::move(sql_p)), version(version_p), options(std::move(options_p)),
      created(SystemClock().Now()), inline_rows(InlineRows(inline_rows_p, limits_p)),
      // Stock clients read only inline rows of what they send with uuid 0 (catalog traffic).
      all_inline(version_p == QuackVersion::V3 && uuid_p == duckdb::hugeint_t(0)), limits(limits_p),
      admission(admission_p) {
}

QueryExecution::~QueryExecution() {
	DropBytesLocked();
}

void QueryExecution::AddBytesLocked(uint64_t bytes) {
	buffered_bytes += bytes;
	admission.AddBytes(bytes);
}

void QueryExecution::RemoveBytesLocked(uint64_t bytes) {
	buffered_bytes -= bytes;
	admission.RemoveBytes(bytes);
}

void QueryExecution::DropBytesLocked() {
	RemoveBytesLocked(buffered_bytes);
}

bool QueryExecution::MustPauseLocked() const {
	if (cancelled || limit_lifted || acknowledged || wanted > last_batch) {
		return false;
	}
	// However full the node is, one batch may be ready, so that every reader gets on.
	return buffered_bytes >= limits.buffer_bytes_max ||
	       (buffered_bytes >= limits.batch_bytes && admission.IsOverBytes());
}

bool QueryExecution::Start() {
	std::lock_guard<std::mutex> guard(lock);
	if (cancelled) {
		return false;
	}
	state = ExecutionState::Running;
	return true;
}

void QueryExecution::SetSchema(duckdb::vector<duckdb::LogicalType> types_p, duckdb::vector<std::string> names_p) {
	std::lock_guard<std::mutex> guard(lock);
	types = std::move(types_p);
	names = std::move(names_p);
	has_schema = true;
	changed.notify_all();
}

bool QueryExecution::Restart() {
	std::lock_guard<std::mutex> guard(lock);
	if (answered || cancelled) {
		return false;
	}
	has_schema = false;
	inline_chunks.clear();
	inline_row_count = 0;
	inline_byte_count = 0;
	inline_closed = false;
	open = StoredBatch();
	batches.clear();
	last_batch = 0;
	DropBytesLocked();
	buffered_rows = 0;
	return true;
}

bool QueryExecution::InlineIsFullLocked() const {
	if (all_inline) {
		return false;
	}
	return inline_row_count >= inline_rows || inline_byte_count >= limits.inline_bytes_max;
}

void QueryExecution::CloseBatchLocked() {
	if (open.offsets.empty()) {
		return;
	}
	batches.emplace(++last_batch, std::move(open));
	open = StoredBatch();
	changed.notify_all();
}

void QueryExecution::Push(duckdb::DataChunk &chunk) {
	std::string encoded;
	EncodeChunk(chunk, version, encoded);
	std::unique_lock<std::mutex> guard(lock);
	if (cancelled) {
		throw duckdb::InterruptException();
	}
	if (!inline_closed && !InlineIsFullLocked()) {
		inline_row_count += chunk.size();
		inline_byte_count += encoded.size();
		inline_chunks.push_back(std::move(encoded));
		if (all_inline && inline_byte_count > limits.spool_bytes_max) {
			throw InvalidInputException("A result asked for inline (query uuid 0) exceeds %llu bytes",
			                            limits.spool_bytes_max);
		}
		return;
	}
	inline_closed = true;
	AddBytesLocked(encoded.size());
	buffered_rows += chunk.size();
	open.offsets.push_back(open.encoded.size());
	open.encoded += encoded;
	open.rows += chunk.size();
	if (open.encoded.size() >= limits.batch_bytes || wanted > last_batch) {
		CloseBatchLocked();
	}
	changed.notify_all();
	paused_since = SystemClock().Now();
	while (MustPauseLocked()) {
		changed.wait_for(guard, PAUSE_POLL_INTERVAL); // nobody tells when other results made room
	}
	paused_since = 0;
	if (cancelled) {
		throw duckdb::InterruptException();
	}
	if (acknowledged) {
		open = StoredBatch();
		batches.clear();
		DropBytesLocked();
		buffered_rows = 0;
	}
	if (buffered_bytes > limits.spool_bytes_max) {
		throw duckdb::OutOfMemoryException("The result of a query holds %llu bytes that the client did not fetch while "
		                                   "it runs another statement in the "
		                                   "same session; fetch it first, use another connection, or raise "
		                                   "result_spool_bytes_max",
		                                   buffered_bytes);
	}
}

void QueryExecution::Finish() {
	std::lock_guard<std::mutex> guard(lock);
	if (state == ExecutionState::Failed) {
		return; // abandoned
	}
	CloseBatchLocked();
	inline_closed = true;
	state = ExecutionState::Finished;
	changed.notify_all();
}

void QueryExecution::Fail(ErrorResponse error_p) {
	std::lock_guard<std::mutex> guard(lock);
	FailLocked(std::move(error_p));
}

void QueryExecution::Abandon(ErrorResponse error_p) {
	std::lock_guard<std::mutex> guard(lock);
	cancelled = true;
	FailLocked(std::move(error_p));
}

void QueryExecution::FailLocked(ErrorResponse error_p) {
	if (state == ExecutionState::Failed || state == ExecutionState::Finished) {
		return; // abandoned, or it ended just before that
	}
	error = std::move(error_p);
	open = StoredBatch();
	batches.clear();
	inline_chunks.clear();
	DropBytesLocked();
	buffered_rows = 0;
	state = ExecutionState::Failed;
	changed.notify_all();
}

void QueryExecution::CheckFailedLocked(std::unique_lock<std::mutex> &guard) const {
	if (state == ExecutionState::Failed) {
		auto copy = error;
		guard.unlock();
		ThrowErrorResponse(copy);
	}
}

void QueryExecution::WaitWatched(std::unique_lock<std::mutex> &guard, const std::function<bool()> &done,
                                 const PeerProbe &peer_gone) {
	auto arrival = ++arrivals;
	waiting++;
	MonotonicNs gone_since = 0;
	SystemClock clock;
	while (!changed.wait_for(guard, PEER_PROBE_INTERVAL, done)) {
		if (!peer_gone || cancelled) {
			continue;
		}
		guard.unlock();
		auto is_gone = gone_since != 0 || peer_gone();
		guard.lock();
		if (!is_gone || arrivals != arrival || waiting > 1) {
			// Present, or somebody came after: then it is theirs.
			continue;
		}
		gone_since = gone_since == 0 ? clock.Now() : gone_since;
		if (clock.Now() - gone_since >= PEER_GONE_GRACE) {
			cancelled = true;
			changed.notify_all();
		}
	}
	waiting--;
}

PrepareResponse QueryExecution::WaitPrepared(const PeerProbe &peer_gone) {
	std::unique_lock<std::mutex> guard(lock);
	auto is_prepared = [&] {
		if (state == ExecutionState::Finished || state == ExecutionState::Failed) {
			return true;
		}
		return has_schema && (inline_closed || InlineIsFullLocked());
	};
	WaitWatched(guard, is_prepared, peer_gone);
	CheckFailedLocked(guard);
	inline_closed = true;
	answered = true;
	PrepareResponse response;
	response.types = types;
	response.names = names;
	response.encoded_chunks = inline_chunks;
	response.query_uuid = uuid;
	response.needs_more_fetch =
	    state != ExecutionState::Finished || last_batch != 0 || (AnswersBeforeRows() && !all_inline);
	return response;
}

void QueryExecution::DropAcknowledgedLocked(uint64_t ack_index) {
	ack_index = std::min(ack_index, last_batch);
	while (acked < ack_index) {
		acked++;
		auto entry = batches.find(acked);
		if (entry != batches.end()) {
			RemoveBytesLocked(entry->second.encoded.size());
			buffered_rows -= entry->second.rows;
			batches.erase(entry);
		}
	}
	changed.notify_all();
}

QueryExecution::FetchedBatch QueryExecution::Fetch(uint64_t index, uint64_t ack_index, const PeerProbe &peer_gone) {
	std::unique_lock<std::mutex> guard(lock);
	bool is_v1 = version == QuackVersion::V1;
	if (is_v1) {
		index = next_v1++;
	} else if (index == 0) {
		throw InvalidInputException("FETCH_REQUEST is missing its batch index");
	}
	DropAcknowledgedLocked(ack_index);
	if (index <= acked) {
		throw InvalidInputException("Batch %llu of the result was acknowledged before and is gone", index);
	}
	wanted = std::max(wanted, index);
	paused_since = paused_since == 0 ? 0 : SystemClock().Now();
	if (index == last_batch + 1) {
		CloseBatchLocked();
	}
	changed.notify_all();
	auto is_there = [&] {
		if (state == ExecutionState::Finished || state == ExecutionState::Failed) {
			return true;
		}
		// A streamed insert's client takes its first batch for the outcome: it leaves only after the commit, unless the
		// result is so large that it has to leave before.
		return last_batch >= index && (!AnswersBeforeRows() || buffered_bytes >= limits.buffer_bytes_max / 2);
	};
	WaitWatched(guard, is_there, peer_gone);
	CheckFailedLocked(guard);
	FetchedBatch result;
	auto entry = batches.find(index);
	if (entry == batches.end()) {
		if (!is_v1) {
			result.response.total_batches = duckdb::optional_idx(last_batch);
		}
		return result;
	}
	result.response.batch_index = duckdb::optional_idx(index);
	result.batch.chunk_count = entry->second.offsets.size();
	if (is_v1) {
		// Nobody can ask for it again.
		result.batch.encoded = std::move(entry->second.encoded);
		result.offsets = std::move(entry->second.offsets);
		RemoveBytesLocked(result.batch.encoded.size());
		buffered_rows -= entry->second.rows;
		batches.erase(entry);
		changed.notify_all();
	} else {
		result.batch.encoded = entry->second.encoded;
	}
	return result;
}

void QueryExecution::LiftLimit() {
	std::lock_guard<std::mutex> guard(lock);
	limit_lifted = true;
	changed.notify_all();
}

void QueryExecution::Cancel() {
	std::lock_guard<std::mutex> guard(lock);
	cancelled = true;
	changed.notify_all();
}

void QueryExecution::Acknowledge() {
	std::lock_guard<std::mutex> guard(lock);
	acknowledged = true;
	if (state == ExecutionState::Finished) {
		batches.clear();
		inline_chunks.clear();
		DropBytesLocked();
		buffered_rows = 0;
	}
	changed.notify_all();
}

ExecutionState QueryExecution::State() const {
	std::lock_guard<std::mutex> guard(lock);
	return state;
}

bool QueryExecution::FailedWith(ErrorResponse &out) const {
	std::lock_guard<std::mutex> guard(lock);
	if (state != ExecutionState::Failed) {
		return false;
	}
	out = error;
	return true;
}

bool QueryExecution::IsCancelled() const {
	std::lock_guard<std::mutex> guard(lock);
	return cancelled;
}

MonotonicNs QueryExecution::PausedFor(MonotonicNs now) const {
	std::lock_guard<std::mutex> guard(lock);
	return paused_since == 0 ? 0 : now - paused_since;
}

uint64_t QueryExecution::BufferedRows() const {
	std::lock_guard<std::mutex> guard(lock);
	return buffered_rows;
}

uint64_t QueryExecution::BufferedBytes() const {
	std::lock_guard<std::mutex> guard(lock);
	return buffered_bytes + inline_byte_count;
}

bool QueryExecution::IsDone() const {
	std::lock_guard<std::mutex> guard(lock);
	if (state == ExecutionState::Failed) {
		return answered || cancelled;
	}
	return state == ExecutionState::Finished && answered && batches.empty();
}

} // namespace sql
} // namespace quack
