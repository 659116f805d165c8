#include "quack/sql/statement_runner.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "duckdb/common/exception.hpp"
#include "duckdb/main/query_result_stream.hpp"
#include "duckdb/parser/parser.hpp"
#include "duckdb/parser/sql_statement.hpp"
#include "quack/catalog/detached.hpp"
#include "quack/catalog/placements.hpp"
#include "quack/common/prng.hpp"
#include "quack/sql/degraded_gate.hpp"
#include "quack/sql/read_barrier.hpp"
#include "quack/sql/session_settings.hpp"
#include "quack/sql/sql_error.hpp"
#include "quack/sql/status_query.hpp"

namespace quack {
namespace sql {

using catalog::Consistency;
using catalog::RequestId;
using catalog::SessionState;
using duckdb::InvalidInputException;

namespace {

constexpr MonotonicNs RETRY_DELAY_MIN = 2 * NS_PER_MS;
constexpr MonotonicNs RETRY_DELAY_MAX = 200 * NS_PER_MS;
constexpr MonotonicNs BARRIER_TIMEOUT = 5 * NS_PER_SECOND;
constexpr MonotonicNs RESOLVE_TIMEOUT = 5 * NS_PER_SECOND;
//! A longer condition is left out of a message.
constexpr size_t SHOWN_CONDITION_BYTES = 200;
//! The alias of streamed rows in statements of clients.
constexpr const char *STREAMED_ROWS = "quack_change";

duckdb::vector<std::string> NamesOf(const duckdb::vector<duckdb::Identifier> &identifiers) {
	duckdb::vector<std::string> names;
	for (auto &identifier : identifiers) {
		names.push_back(identifier.GetIdentifierName());
	}
	return names;
}

duckdb::ErrorData ErrorOf(const std::exception &exception, const std::string &sql) {
	duckdb::ErrorData error(exception);
	error.AddErrorLocation(sql);
	return error;
}

Consistency ParseConsistency(const std::string &text) {
	if (text.empty() || text == "session") {
		return Consistency::Session;
	}
	if (text == "eventual") {
		return Consistency::Eventual;
	}
	if (text == "linearizable") {
		return Consistency::Linearizable;
	}
	throw InvalidInputException("Unknown consistency '%s': eventual, session or linearizable expected", text);
}

using Statements = duckdb::vector<duckdb::unique_ptr<duckdb::SQLStatement>>;

//! One attempt at one statement.
class StatementRunner {
public:
	StatementRunner(Session &session_p, QueryExecution &execution_p)
	    : session(session_p), execution(execution_p), connection(session.Connection()) {
	}

	//! Throws; fills schema and rows.
	void Run(Statements statements) {
		if (statements.empty()) {
			throw InvalidInputException("Query did not return any columns");
		}
		std::vector<DegradedGate> gates;
		for (auto &statement : statements) {
			gates.emplace_back(session.Context(), *statement);
			gates.back().Check();
		}
		if (execution.options.describe_only) {
			Describe(std::move(statements));
			return;
		}
		if (statements.size() == 1) {
			if (IsStatusQuery(*statements[0]) || gates[0].IsAnsweredLatched()) {
				SessionState::Get(*connection.context).SetConsistency(Consistency::Eventual);
			}
			RunSingle(std::move(statements[0]), gates[0]);
			return;
		}
		RunScript(std::move(statements), gates);
	}

private:
	void Describe(Statements statements) {
		if (statements.size() != 1) {
			throw InvalidInputException("One statement can be described at a time, %llu came",
			                            static_cast<uint64_t>(statements.size()));
		}
		auto signature = connection.context->BindStatement(std::move(statements[0]));
		execution.SetSchema(signature.types, NamesOf(signature.names));
	}

	void RunSingle(duckdb::unique_ptr<duckdb::SQLStatement> statement, const DegradedGate &gate) {
		auto type = statement->type;
		auto result = connection.Submit(std::move(statement));
		ThrowIfFailed(*result);
		if (result->MetadataAvailable()) {
			gate.CheckBound(result->GetStatementProperties());
		}
		if (result->MetadataAvailable() && duckdb::StreamsByDefault(type, *result, false)) {
			execution.SetSchema(result->GetTypes(), NamesOf(result->GetNames()));
			Stream(std::move(result), gate);
			return;
		}
		if (execution.AnswersBeforeRows() && result->MetadataAvailable()) {
			execution.SetSchema(result->GetTypes(), NamesOf(result->GetNames()));
		}
		result->Complete();
		ThrowIfFailed(*result);
		gate.CheckBound(result->GetStatementProperties());
		PushRetained(*result);
	}

	//! The client gets the first result that has rows, else the first.
	void RunScript(Statements statements, const std::vector<DegradedGate> &gates) {
		duckdb::unique_ptr<duckdb::QueryResult> answer;
		bool answer_has_rows = false;
		for (size_t i = 0; i < statements.size(); i++) {
			auto result = connection.Query(std::move(statements[i]));
			ThrowIfFailed(*result);
			gates[i].CheckBound(result->GetStatementProperties());
			bool has_rows = result->GetStatementProperties().return_type == duckdb::StatementReturnType::QUERY_RESULT;
			if (!answer || (has_rows && !answer_has_rows)) {
				answer = std::move(result);
				answer_has_rows = has_rows;
			}
		}
		PushRetained(*answer);
	}

	void Stream(duckdb::unique_ptr<duckdb::QueryResult> result, const DegradedGate &gate) {
		duckdb::QueryResultStream<> stream(std::move(result));
		while (auto chunk = stream.Fetch()) {
			gate.Check();
			if (chunk->size() != 0) {
				execution.Push(*chunk);
			}
		}
		if (stream.HasError()) {
			stream.GetErrorObject().Throw();
		}
	}

	void PushRetained(duckdb::QueryResult &result) {
		if (result.ColumnCount() == 0) {
			throw InvalidInputException("Query did not return any columns");
		}
		execution.SetSchema(result.GetTypes(), NamesOf(result.GetNames()));
		while (auto chunk = result.FetchRaw()) {
			if (chunk->size() != 0) {
				execution.Push(*chunk);
			}
		}
	}

	static void ThrowIfFailed(duckdb::QueryResult &result) {
		if (result.HasError()) {
			result.GetErrorObject().Throw();
		}
	}

	Session &session;
	QueryExecution &execution;
	duckdb::Connection &connection;
};

//! What a statement that lost was about to change: " on table t, rows (id = 1)"; empty when its text does not tell.
std::string DescribeTarget(duckdb::ClientContext &context, const std::string &sql) {
	duckdb::Parser parser(context);
	try {
		parser.ParseQuery(sql);
	} catch (const std::exception &) {
		return std::string();
	}
	if (parser.statements.size() != 1) {
		return std::string();
	}
	auto key = ContentionKey::Of(*parser.statements[0]);
	if (key.table.empty()) {
		return std::string();
	}
	auto text = " on table " + key.table.substr(0, key.table.find(" as "));
	// Of rows that a client streams the condition says nothing.
	bool is_streamed = key.rows.find(STREAMED_ROWS) != std::string::npos;
	if (key.changes_rows && !key.rows.empty() && !is_streamed && key.rows.size() <= SHOWN_CONDITION_BYTES) {
		text += ", rows " + key.rows;
	}
	return text;
}

//! The failure that DuckDB or the catalog put into words only; Ok when there is none.
Status StatusInWords(duckdb::ClientContext &context, const duckdb::ErrorData &error, const std::string &sql) {
	if (error.Type() != duckdb::ExceptionType::TRANSACTION) {
		return Status::Ok();
	}
	auto &message = error.RawMessage();
	// Another local transaction, the applier's among them, holds the row or the catalog entry.
	if (message.rfind("Conflict on ", 0) == 0 || message.find("write-write conflict") != std::string::npos) {
		return Status(ErrorCode::Conflict, "conflict" + DescribeTarget(context, sql) +
		                                       ": another transaction changed the same row or object (" + message +
		                                       "); repeat this one");
	}
	// The table that the statement was planned on is not the newest one any more.
	if (message.rfind("Transaction conflict: ", 0) == 0) {
		return Status(ErrorCode::SchemaChanged, "schema changed" + DescribeTarget(context, sql) +
		                                            ": another transaction altered or dropped the table (" + message +
		                                            "); repeat this one");
	}
	// Fenced reads: "quack <code>: ...".
	for (auto number = static_cast<uint8_t>(ErrorCode::InvalidArgument);
	     number <= static_cast<uint8_t>(ErrorCode::Internal); number++) {
		auto code = static_cast<ErrorCode>(number);
		auto prefix = std::string("quack ") + ErrorCodeName(code) + ": ";
		if (message.rfind(prefix, 0) == 0) {
			return Status(code, message.substr(prefix.size()));
		}
	}
	return Status::Ok();
}

bool IsRetryable(const ErrorResponse &error) {
	auto code = CodeOf(error);
	return code == ErrorCodeName(ErrorCode::Conflict) || code == ErrorCodeName(ErrorCode::SchemaChanged);
}

//! The answer to a statement that is known to have committed: its shape, and the count it reported is not kept.
void AnswerCommitted(QueryExecution &execution) {
	execution.SetSchema({duckdb::LogicalType::BIGINT}, {"Count"});
	duckdb::DataChunk chunk;
	chunk.Initialize(duckdb::Allocator::DefaultAllocator(), {duckdb::LogicalType::BIGINT});
	chunk.data[0].SetValue(0, duckdb::Value(duckdb::LogicalType::BIGINT));
	chunk.SetChildCardinality(1);
	execution.Push(chunk);
	execution.Finish();
}

constexpr const char *GIVEN_UP =
    "the transaction was rolled back: its outcome was asked for before it reached the log, and "
    "the log decided that it never commits; repeat it under a new request id";

void WaitBeforeRetry(uint32_t losses, Prng &prng) {
	auto limit = std::min(RETRY_DELAY_MAX, RETRY_DELAY_MIN << std::min<uint32_t>(losses, 10));
	std::this_thread::sleep_for(std::chrono::nanoseconds(prng.Next() % static_cast<uint64_t>(limit)));
}

//! All attempts at what one PREPARE asked for.
class StatementAttempts {
public:
	StatementAttempts(Session &session_p, QueryExecution &execution_p)
	    : session(session_p), execution(execution_p),
	      autocommit(session.Connection().context->transaction.IsAutoCommit()),
	      walk(execution.options.request_id, session.Context().replica),
	      prng(static_cast<uint64_t>(SystemClock().Now())) {
		auto retry_ms = static_cast<MonotonicNs>(session.Context().limits.conflict_retry_ms_max);
		retry_until = SystemClock().Now() + retry_ms * NS_PER_MS;
		if (execution.options.deadline != 0) {
			retry_until = std::min(retry_until, execution.options.deadline);
		}
	}

	//! Throws what no attempt could be made for.
	void Run() {
		PrepareAttempt(session, execution.options, walk); // parsing may read the catalog
		auto statements = session.Connection().ExtractStatements(execution.sql);
		CheckDisk(statements);
		bool is_write = statements.size() == 1 && IsWrite(*statements[0]);
		// A script commits several times: one id cannot stand for it, and it is never repeated.
		bool repeats = autocommit && statements.size() == 1 && !execution.options.describe_only;
		is_single = statements.size() == 1;
		if (!repeats) {
			End(Attempt(std::move(statements)));
			return;
		}
		if (execution.options.is_repeat) {
			CatchUp();
			if (is_write && IsDecidedInGroups()) {
				return;
			}
		}
		auto key = is_write ? ContentionKey::Of(*statements[0]) : ContentionKey();
		ContentionQueue::Turn turn(*session.Context().contention, std::move(key), [this] { return GivesUp(); });
		Repeat(statements[0], turn);
	}

private:
	static bool IsWrite(const duckdb::SQLStatement &statement) {
		return statement.type != duckdb::StatementType::SELECT_STATEMENT;
	}

	//! What only reads what is in memory, or says how the node is, works while its disk hangs; the rest should not
	//! begin.
	bool NeedsDisk(const Statements &statements) const {
		for (auto &statement : statements) {
			auto type = statement->type;
			bool is_plain = type == duckdb::StatementType::SET_STATEMENT ||
			                type == duckdb::StatementType::TRANSACTION_STATEMENT || ReadsOnlyStatus(*statement);
			// A snapshot of an explicit transaction waits for a checkpoint that is under way.
			if (!is_plain && (!autocommit || type != duckdb::StatementType::SELECT_STATEMENT)) {
				return true;
			}
		}
		return false;
	}

	void CheckDisk(const Statements &statements) {
		auto *engine = session.Context().engine;
		bool ends = statements.size() == 1 && statements[0]->type == duckdb::StatementType::TRANSACTION_STATEMENT;
		if (engine == nullptr || execution.options.describe_only || (!ends && !NeedsDisk(statements))) {
			return;
		}
		execution.MarkNeedsDisk();
		auto hung = engine->HungDisk();
		if (!ends && !hung.empty()) {
			ThrowCoded(Status(ErrorCode::Unavailable, hung + "; nothing was done, use another node"));
		}
	}

	bool GivesUp() const {
		return execution.IsCancelled() || SystemClock().Now() >= retry_until;
	}

	//! Waits until this node knows what was committed before now.
	void CatchUp() {
		auto *engine = session.Context().engine;
		if (engine != nullptr) {
			auto status = WaitForRootGroup(*engine, TimeLeft(BARRIER_TIMEOUT));
			if (!status.IsOk()) {
				ThrowCoded(
				    Status(ErrorCode::Unavailable, "this node cannot tell yet what became of the statement when it "
					                               "was sent before: " +
					                                   status.Message()));
			}
		}
	}

	MonotonicNs TimeLeft(MonotonicNs most) const {
		auto deadline = execution.options.deadline;
		return deadline == 0 ? most : std::max<MonotonicNs>(1, std::min(most, deadline - SystemClock().Now()));
	}

	//! An earlier sending of the statement may still be on its way. Before this node says that the statement failed, or
	//! that it changed nothing, the log must have decided its id. True when it did commit, and was answered.
	bool DecidedOtherwise(std::optional<ErrorResponse> &error) {
		auto *replica = session.Context().replica;
		if (!execution.options.is_repeat || replica == nullptr || walk.Advance()) {
			return false;
		}
		auto outcome = replica->ResolveOutcome(walk.Id(), walk.Base(), SystemClock().Now() + TimeLeft(RESOLVE_TIMEOUT));
		auto code = outcome.status.Code();
		if (code == ErrorCode::Cancelled) {
			return false; // it never comes: what this node found stands
		}
		if (outcome.status.IsOk() && execution.Restart()) {
			AnswerCommitted(execution);
			return true;
		}
		if (!outcome.status.IsOk()) {
			error = CodedError(outcome.status);
		}
		return false;
	}

	//! True when the statement is known to have committed, and was answered.
	bool WasCommitted() {
		auto outcome = walk.Advance();
		if (!outcome || !outcome->status.IsOk() || !execution.Restart()) {
			return false;
		}
		AnswerCommitted(execution);
		return true;
	}

	void Repeat(const duckdb::unique_ptr<duckdb::SQLStatement> &statement, ContentionQueue::Turn &turn) {
		for (uint32_t losses = 0;; losses++) {
			if (WasCommitted()) {
				return;
			}
			turn.Begin();
			PrepareAttempt(session, execution.options, walk);
			Statements copy;
			copy.push_back(statement->Copy());
			auto error = Attempt(std::move(copy));
			bool lost = error && IsRetryable(*error);
			if (lost) {
				turn.Lost();
			} else {
				turn.Done();
			}
			// A streamed insert consumed its rows: only the client can repeat it.
			if (!lost || GivesUp() || session.HasStreams() || !execution.Restart()) {
				if (!(error && WasCommitted()) && !DecidedOtherwise(error)) {
					End(std::move(error));
				}
				return;
			}
			walk.Renew();
			if (!turn.IsInLine()) {
				WaitBeforeRetry(losses, prng);
			}
		}
	}

	//! Executed again it could touch other groups than the first sending, and an id counts once in each group only. So
	//! where tables live in groups, the logs decide the id before anything is executed. True when it was answered.
	bool IsDecidedInGroups() {
		auto *replica = session.Context().replica;
		if (replica == nullptr || replica->GetPlacements()->Groups().empty()) {
			return false;
		}
		std::optional<RequestId> rejected;
		for (;;) {
			if (WasCommitted()) {
				return true;
			}
			auto deadline = SystemClock().Now() + TimeLeft(RESOLVE_TIMEOUT);
			auto outcome = replica->ResolveOutcome(walk.Id(), walk.Base(), deadline);
			auto code = outcome.status.Code();
			auto is_rejected = code == ErrorCode::Conflict || code == ErrorCode::SchemaChanged;
			if (is_rejected && rejected != walk.Id() && !GivesUp()) {
				rejected = walk.Id();
				continue; // the first sending goes on under the next id
			}
			AnswerDecided(is_rejected
			                  ? Status(ErrorCode::OutcomeUnknown, "the first sending of the statement was "
							                                      "rejected and may be tried again; ask for its "
							                                      "outcome")
							  : outcome.status);
			return true;
		}
	}

	void AnswerDecided(const Status &status) {
		if (status.IsOk()) {
			AnswerCommitted(execution);
			return;
		}
		auto is_given_up = status.Code() == ErrorCode::Cancelled;
		auto error = CodedError(is_given_up ? Status(ErrorCode::Conflict, GIVEN_UP) : status);
		if (status.Code() == ErrorCode::OutcomeUnknown) {
			error.extra_info.emplace_back(EXTRA_INFO_TOKEN, catalog::RequestIdToString(walk.Id()));
		}
		execution.Fail(std::move(error));
	}

	//! The attempt that ended now committed, whatever its statement says: an interrupt, of a user or of a node that
	//! stops, came too late for a COMMIT that was waiting.
	bool HasCommitted() const {
		auto commit = SessionState::Get(*session.Connection().context).LastCommit();
		return is_single && commit && commit->request_id == walk.Id() && commit->status.IsOk();
	}

	void End(std::optional<ErrorResponse> error) {
		if (error && HasCommitted()) {
			if (execution.Restart()) {
				AnswerCommitted(execution);
				return;
			}
			error = CodedError(Status(ErrorCode::OutcomeUnknown,
			                          "the statement was stopped after it had been proposed; ask for its outcome"));
			error->extra_info.emplace_back(EXTRA_INFO_TOKEN, catalog::RequestIdToString(walk.Id()));
		}
		if (error) {
			execution.Fail(WasGivenUp() ? CodedError(Status(ErrorCode::Conflict, GIVEN_UP)) : std::move(*error));
		} else {
			execution.Finish();
		}
	}

	//! The log decided that this id never commits, because somebody asked for its outcome first. No attempt under the
	//! id's walk goes on after that, so whoever sent it may begin anew under another id, as after a conflict. The node
	//! itself must not: it would go on along a walk whose end others have been told.
	bool WasGivenUp() const {
		auto commit = SessionState::Get(*session.Connection().context).LastCommit();
		return commit && commit->request_id == walk.Id() && commit->index != 0 &&
		       commit->status.Code() == ErrorCode::Cancelled;
	}

	//! Empty when the attempt succeeded.
	std::optional<ErrorResponse> Attempt(Statements statements) {
		duckdb::ErrorData error;
		try {
			StatementRunner(session, execution).Run(std::move(statements));
			return std::nullopt;
		} catch (std::exception &exception) {
			error = ErrorOf(exception, execution.sql);
		} catch (...) {
			error = duckdb::ErrorData(duckdb::ExceptionType::INTERNAL, "unknown exception");
		}
		return ExplainFailure(session, execution, error, walk.Id());
	}

	Session &session;
	QueryExecution &execution;
	const bool autocommit;
	bool is_single = false; //! not a script
	AttemptWalk walk;
	Prng prng;
	MonotonicNs retry_until;
};

} // namespace

void PrepareAttempt(Session &session, const StatementOptions &options, const AttemptWalk &walk) {
	auto &context = *session.Connection().context;
	auto &state = SessionState::Get(context);
	state.SetNextRequestId(walk.Id(), walk.Base());
	state.SetDeadline(options.deadline);
	state.SetConsistency(
	    ParseConsistency(options.consistency.empty() ? ConsistencySetting(context) : options.consistency));
	for (auto &position : options.min_positions) {
		state.RaiseFloor(position.first, position.second);
	}
	auto last = state.LastCommit();
	state.SetInTurn(last && last->status.Code() == ErrorCode::Conflict);
}

ErrorResponse ExplainFailure(Session &session, const QueryExecution &execution, const duckdb::ErrorData &error,
                             const RequestId &request_id) {
	auto response = MakeErrorResponse(error);
	if (!CodeOf(response).empty()) {
		return response;
	}
	auto &state = SessionState::Get(*session.Connection().context);
	// What the commit itself learned comes first: an eviction that came later says nothing about it.
	auto commit = state.LastCommit();
	auto failed = commit && commit->request_id == request_id && !commit->status.IsOk();
	// Without an index it was stopped before its entry was in the log: who stopped it decides what to say.
	auto was_stopped = failed && commit->status.Code() == ErrorCode::Cancelled && commit->index == 0;
	if (failed && !was_stopped) {
		auto coded = CodedError(commit->status);
		if (commit->status.Code() == ErrorCode::OutcomeUnknown) {
			coded.extra_info.emplace_back(EXTRA_INFO_TOKEN, catalog::RequestIdToString(request_id));
		}
		return coded;
	}
	auto doomed = state.Doomed();
	if (!doomed.IsOk()) {
		return CodedError(doomed);
	}
	if (error.RawMessage().find(catalog::DETACHED_BY_NODE) != std::string::npos) {
		return CodedError(Status(ErrorCode::Unavailable,
		                         "the node replaces its database by a newer image; the statement was stopped before "
		                         "anything of it was proposed"));
	}
	if (error.RawMessage().find(catalog::CHECKPOINT_FAILED) != std::string::npos) {
		return CodedError(Status(ErrorCode::Degraded,
		                         "a checkpoint of this node has just failed, and it goes out of service; the statement "
		                         "was stopped before anything of it was proposed"));
	}
	auto in_words = StatusInWords(*session.Connection().context, error, execution.sql);
	if (!in_words.IsOk()) {
		return CodedError(in_words);
	}
	if (was_stopped || error.Type() == duckdb::ExceptionType::INTERRUPT) {
		auto deadline = execution.options.deadline;
		if (deadline != 0 && SystemClock().Now() >= deadline) {
			return CodedError(
			    Status(ErrorCode::DeadlineExceeded,
				       "the statement ran past its deadline and was stopped; nothing of it was committed"));
		}
		auto closed = session.ClosedReason();
		if (!closed.empty()) {
			return CodedError(
			    Status(ErrorCode::Unavailable, "the statement was stopped, nothing of it was committed: " + closed));
		}
		if (!execution.IsCancelled()) {
			// Nobody asked for it: it was meant for the transaction before, which ended in the same moment.
			return CodedError(Status(ErrorCode::Conflict, "the statement was stopped for the transaction before it in "
			                                              "this session; nothing of it was committed, repeat it"));
		}
		return CodedError(Status(ErrorCode::Cancelled, "the statement was interrupted; nothing of it was committed"));
	}
	if (error.Type() == duckdb::ExceptionType::CONSTRAINT) {
		response.extra_info.emplace_back(EXTRA_INFO_CODE, ErrorCodeName(ErrorCode::Constraint));
	} else if (error.Type() == duckdb::ExceptionType::NOT_IMPLEMENTED) {
		response.extra_info.emplace_back(EXTRA_INFO_CODE, ErrorCodeName(ErrorCode::NotSupported));
	}
	return response;
}

void RunStatement(Session &session, QueryExecution &execution) {
	try {
		StatementAttempts(session, execution).Run();
	} catch (std::exception &exception) {
		execution.Fail(MakeErrorResponse(ErrorOf(exception, execution.sql)));
	}
}

} // namespace sql
} // namespace quack
