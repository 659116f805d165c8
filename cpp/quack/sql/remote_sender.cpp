//! Streamed inserts: PREPARE of a statement that reads a stream, SEND_DATA batches, FETCH of the outcome.
#include <algorithm>
#include <thread>

#include "duckdb/common/exception/transaction_exception.hpp"
#include "duckdb/main/client_context.hpp"

#include "quack/common/batch_size.hpp"
#include "quack/common/limits.hpp"
#include "quack/sql/remote_catalog_entry.hpp"
#include "quack/sql/remote_transaction.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;
using duckdb::DataChunk;
using duckdb::TransactionException;

//! A batch is sent when it has this many bytes.
constexpr size_t BATCH_BYTES = 1024 * 1024;
//! Sent batches are kept for sending again up to this size.
constexpr size_t RESEND_BYTES_MAX = 64 * 1024 * 1024;
//! Rows of a deferred sender wait here.
constexpr size_t DEFERRED_BYTES_MAX = 1024 * 1024 * 1024;

//! One statement and its rows. In autocommit everything up to RESEND_BYTES_MAX can be sent again to another node under
//! the same request id; the server applies it once.
class StatementRowSender : public RemoteRowSender {
public:
	StatementRowSender(RemoteTransaction &transaction_p, RemoteStatement statement_p, std::string stream_id_p,
	                   bool deferred_p)
	    : transaction(transaction_p), cluster(transaction_p.cluster), statement(std::move(statement_p)),
	      stream_id(std::move(stream_id_p)), deferred(deferred_p), is_explicit(transaction_p.IsExplicit()),
	      query_uuid(RemoteCluster::RandomUuid()) {
		request_id.text = is_explicit ? std::string() : cluster->NewRequestId();
	}

	~StatementRowSender() override {
		if (session && !finished && !session->lost) {
			cluster->Cancel(*session, query_uuid);
			if (!is_explicit) {
				cluster->Discard(session); // whatever the node still does for it ends with the session
			}
		}
	}

	void Append(ClientContext &context, DataChunk &chunk) override {
		if (chunk.size() == 0) {
			return;
		}
		rows += chunk.size();
		for (duckdb::idx_t begin = 0; begin < chunk.size();) {
			begin += AddRows(chunk, begin);
			if (open.encoded.size() >= BATCH_BYTES) {
				CloseBatch();
				SendClosed(context);
			}
		}
	}

	std::unique_ptr<RemoteStream> Finish(ClientContext &context) override {
		if (open.chunk_count > 0) {
			CloseBatch();
		}
		complete = true;
		auto turn = deferred ? std::unique_lock<std::mutex>(transaction.sender_lock) : std::unique_lock<std::mutex>();
		auto budget = Budgeted(context);
		uint64_t pause_ms = 5;
		while (true) {
			Push(context, budget);
			auto failure = committed ? nullptr : FetchOutcome(budget);
			if (!failure) {
				finished = true;
				CheckReturned();
				if (!is_explicit) {
					RemoteTransaction::NoteCommitted(context);
				}
				return std::make_unique<RemoteStream>(cluster, session, !is_explicit, std::move(outcome));
			}
			Recover(context, *failure, budget);
			if (committed) {
				continue;
			}
			pause_ms = std::min<uint64_t>(pause_ms * 2, 200);
			std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
		}
	}

private:
	using Attempt = RemoteTransaction::Attempt;
	using Failure = std::unique_ptr<Attempt>;

	//! A stream that is still being filled is bounded by the user's own pace, its end by the deadline.
	RemoteBudget Budgeted(ClientContext &context) const {
		return is_explicit ? RemoteTransaction::StatementBudget(context) : transaction.Budget(context);
	}

	//! As many rows as make about a batch, however large they are; how many.
	duckdb::idx_t AddRows(DataChunk &chunk, duckdb::idx_t begin) {
		while (true) {
			auto count = batch_size.Rows(chunk.size() - begin);
			DataChunk part;
			part.InitializeEmpty(chunk.GetTypes());
			part.Reference(chunk);
			if (count < chunk.size()) {
				part.Slice(begin, count);
			}
			auto size_before = open.encoded.size();
			EncodeChunk(part, QuackVersion::V3, open.encoded);
			auto bytes = open.encoded.size() - size_before;
			auto fit = batch_size.Note(bytes, count);
			if (fit == BatchSize::Fit::Again) {
				open.encoded.resize(size_before);
				continue;
			}
			if (fit == BatchSize::Fit::RowTooLarge) {
				throw duckdb::InvalidInputException("a row takes %llu bytes, more than the %llu that one row may take; "
				                                    "store it in several rows [quack:%s]",
				                                    static_cast<unsigned long long>(bytes),
				                                    static_cast<unsigned long long>(ROW_BYTES_MAX),
				                                    ErrorCodeName(ErrorCode::InvalidArgument));
			}
			open.chunk_count++;
			return count;
		}
	}

	void SendClosed(ClientContext &context) {
		if (!deferred) {
			Push(context, Budgeted(context));
		} else if (kept_bytes > DEFERRED_BYTES_MAX) {
			throw duckdb::NotImplementedException("not supported: more than %llu MiB of rows in a statement that "
			                                      "reads and writes remote tables beside "
			                                      "local data. Split it, or copy the local rows first",
			                                      static_cast<unsigned long long>(DEFERRED_BYTES_MAX >> 20));
		}
	}

	void CloseBatch() {
		kept_bytes += open.encoded.size();
		batches.push_back(std::move(open));
		open = ChunkBatch();
	}

	//! Sends what the node does not have yet. Throws when the statement failed for good.
	void Push(ClientContext &context, const RemoteBudget &budget) {
		while (!committed) {
			auto failure = PushOnce(context, budget);
			if (!failure) {
				return;
			}
			Recover(context, *failure, budget);
		}
	}

	Failure PushOnce(ClientContext &context, const RemoteBudget &budget) {
		if (!session) {
			if (auto failure = Open(context, budget)) {
				return failure;
			}
		}
		while (!ended_early && (sent < batches.size() || (complete && !terminated))) {
			if (auto failure = SendNext(budget)) {
				return EndsEarly(*failure) ? nullptr : std::move(failure);
			}
		}
		return nullptr;
	}

	//! The statement ended without reading its rows: the node knows its outcome already, because an earlier attempt
	//! under the same request id committed, or because it failed. Its result tells which.
	bool EndsEarly(const Attempt &failure) {
		ended_early = failure.is_error && CodeOf(failure.error) == ErrorCodeName(ErrorCode::NotFound);
		return ended_early;
	}

	Failure Open(ClientContext &, const RemoteBudget &budget) {
		auto failure = std::make_unique<Attempt>();
		if (is_explicit) {
			std::lock_guard<std::mutex> guard(transaction.lock);
			session = transaction.Begun(budget);
		} else {
			auto acquired = cluster->Acquire(budget);
			if (!acquired.IsOk()) {
				failure->transport = acquired.GetStatus();
				return failure;
			}
			session = acquired.Value();
		}
		auto opened = statement;
		opened.unbounded = !complete;
		*failure = RemoteTransaction::TryPrepare(*cluster, *session, opened, request_id, query_uuid,
		                                         duckdb::optional_idx(0), budget);
		if (failure->transport.IsOk() && !failure->is_error) {
			outcome.types = failure->response.types;
			outcome.names = failure->response.names;
			if (expected_types.empty()) {
				expected_types = outcome.types;
			}
			return nullptr;
		}
		return failure;
	}

	Failure Send(const std::string &message, const RemoteBudget &budget) {
		RemoteRequest request;
		request.body = message;
		auto failure = std::make_unique<Attempt>();
		// SEND_DATA names its batch: one that got lost on the way is sent once more to the same node.
		for (int round = 0; round < 2; round++) {
			auto reply = cluster->Exchange(*session, request, budget);
			if (reply.IsOk() && !reply.Value().is_error) {
				return nullptr;
			}
			*failure = Attempt();
			(void)RemoteTransaction::NoteReply(reply, *failure);
			if (failure->transport.Code() != ErrorCode::OutcomeUnknown || round == 1) {
				break;
			}
			session->lost = false;
		}
		return failure;
	}

	//! The next batch, or the end alone; the last batch also says that it is the last.
	Failure SendNext(const RemoteBudget &budget) {
		MessageHeader header;
		header.connection_id = session->connection_id;
		SendDataRequest body;
		body.stream_id = stream_id;
		body.batch_index = sent + 1;
		bool has_rows = sent < batches.size();
		bool last = complete && sent + 1 >= batches.size();
		if (last) {
			body.total_batches = batches.size();
		}
		auto failure = Send(EncodeSendDataRequest(header, body, has_rows ? batches[sent] : ChunkBatch()), budget);
		if (last) {
			terminated = !failure;
			// Nothing of an explicit transaction can be committed before its COMMIT.
			request_id.unknown = !is_explicit && (request_id.unknown || !failure || failure->unknown);
		}
		if (!failure && has_rows) {
			sent++;
			ForgetSent();
		}
		return failure;
	}

	//! Waits for the end of the statement: only then is it known that the commit succeeded, and a node that dies before
	//! has told nothing. The count is the number of rows sent, so the batch that holds it is not even asked for.
	Failure FetchOutcome(const RemoteBudget &budget) {
		outcome.query_uuid = query_uuid;
		outcome.chunks.clear();
		outcome.needs_more_fetch = true;
		if (!statement.returning && !statement.counts_itself) {
			auto failure = FetchBatch(2, budget);
			if (!failure) {
				SetCount();
			}
			return failure;
		}
		for (uint64_t batch = 1; outcome.needs_more_fetch; batch++) {
			if (auto failure = FetchBatch(batch, budget)) {
				return failure;
			}
			outcome.first_batch = batch + 1;
		}
		return nullptr;
	}

	void SetCount() {
		auto chunk = duckdb::make_uniq<DataChunk>();
		chunk->Initialize(duckdb::Allocator::DefaultAllocator(), {duckdb::LogicalType::BIGINT});
		chunk->data[0].SetValue(0, duckdb::Value::BIGINT(static_cast<int64_t>(rows)));
		chunk->SetChildCardinality(1);
		outcome.chunks.clear();
		outcome.chunks.push_back(std::move(chunk));
		outcome.needs_more_fetch = false;
	}

	Failure FetchBatch(uint64_t batch, const RemoteBudget &budget) {
		auto attempt = std::make_unique<Attempt>(
		    RemoteTransaction::FetchBatch(*cluster, *session, query_uuid, batch, budget, outcome));
		return attempt->transport.IsOk() && !attempt->is_error ? nullptr : std::move(attempt);
	}

	//! A node that answers for a commit of another one has no RETURNING rows.
	void CheckReturned() {
		if (statement.returning && outcome.types != expected_types) {
			throw TransactionException(
			    "the statement was committed, but the node that held its RETURNING rows was lost");
		}
	}

	//! Prepares for another round, or throws what the failure means. Sets `committed` when the statement turns out to
	//! be.
	void Recover(ClientContext &context, Attempt &failure, const RemoteBudget &budget) {
		RemoteTransaction::TellCause(failure, cause);
		auto what = std::string("the write");
		bool all_kept = forgotten == 0;
		if (failure.is_error && !failure.retry) {
			request_id.unknown = false; // the node that says so speaks for all sendings
		}
		if (failure.transport.Code() == ErrorCode::Cancelled && !is_explicit) {
			Drop(failure);
			RemoteTransaction::SettleInterrupted(context, *cluster, what, request_id);
			committed = true;
			outcome.types = {duckdb::LogicalType::BIGINT};
			SetCount();
			return;
		}
		if (is_explicit || !(failure.retry || failure.conflict) || !all_kept || budget.Expired()) {
			GiveUp(failure, what, all_kept);
		}
		if (failure.conflict) {
			request_id.text = cluster->NewRequestId(); // rolled back everywhere: what follows is a new statement
		} else if (session) {
			cluster->MoveOn(session->endpoint);
		}
		Drop(failure);
		sent = 0;
		terminated = false;
		ended_early = false;
	}

	//! Ends the node's work for this statement.
	void Drop(const Attempt &failure) {
		if (session && !session->lost) {
			if (!failure.is_error) {
				cluster->Cancel(*session, query_uuid);
			}
			cluster->Discard(session);
		}
		session.reset();
	}

	[[noreturn]] void GiveUp(const Attempt &failure, const std::string &what, bool all_kept) {
		finished = !failure.transport.IsOk() ? finished : true;
		if (session && !is_explicit && failure.is_error) {
			cluster->Release(session);
		}
		if (is_explicit && session && session->lost) {
			std::lock_guard<std::mutex> guard(transaction.lock);
			transaction.Break("node " + session->endpoint.ToString() + " was lost");
			throw TransactionException("%s; the transaction was rolled back. Run it again [quack:%s]",
			                           transaction.broken, ErrorCodeName(ErrorCode::Unavailable));
		}
		if (!is_explicit && failure.retry && !all_kept && !request_id.unknown) {
			throw TransactionException("node %s was lost in the middle of an insert larger than %llu MiB, which is not "
			                           "kept for sending again; nothing was inserted. Run it again [quack:%s]",
			                           session ? session->endpoint.ToString() : "?",
			                           static_cast<unsigned long long>(RESEND_BYTES_MAX >> 20),
			                           ErrorCodeName(ErrorCode::Unavailable));
		}
		RemoteTransaction::ThrowFailure(failure, what, request_id);
	}

	//! Above the bound the oldest batches go; after that a lost node cannot be made good.
	void ForgetSent() {
		if (kept_bytes <= RESEND_BYTES_MAX && !is_explicit) {
			return;
		}
		for (size_t i = forgotten; i < sent; i++) {
			kept_bytes -= batches[i].encoded.size();
			batches[i] = ChunkBatch();
		}
		forgotten = sent;
	}

	RemoteTransaction &transaction;
	std::shared_ptr<RemoteCluster> cluster;
	const RemoteStatement statement;
	const std::string stream_id;
	const bool deferred;
	const bool is_explicit;
	std::optional<ErrorResponse> cause; //! see RemoteTransaction::TellCause
	RemoteRequestId request_id;         //! unknown: some node may have committed it
	const duckdb::hugeint_t query_uuid;
	std::shared_ptr<RemoteSession> session;

	uint64_t rows = 0;
	BatchSize batch_size {BATCH_BYTES, STANDARD_VECTOR_SIZE};
	ChunkBatch open;
	std::deque<ChunkBatch> batches;
	size_t kept_bytes = 0;
	size_t sent = 0;      //! batches the current node has
	size_t forgotten = 0; //! batches that are no longer here
	bool complete = false;
	bool terminated = false;
	bool finished = false;
	bool committed = false; //! although it was interrupted; `outcome` has the count of rows sent
	bool ended_early = false;
	RemoteStreamStart outcome;
	duckdb::vector<duckdb::LogicalType> expected_types; //! of the first attempt
};

std::unique_ptr<RemoteRowSender> RemoteTransaction::OpenSender(ClientContext &, RemoteStatement statement,
                                                               std::string stream_id, bool deferred) {
	return std::make_unique<StatementRowSender>(*this, std::move(statement), std::move(stream_id), deferred);
}

} // namespace sql
} // namespace quack
