#include "quack/sql/statement_runner.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "duckdb/common/exception.hpp"
#include "duckdb/main/query_result_stream.hpp"
#include "duckdb/parser/sql_statement.hpp"
#include "quack/common/prng.hpp"
#include "quack/sql/read_barrier.hpp"
#include "quack/sql/sql_error.hpp"
#include "quack/sql/status_query.hpp"

namespace quack {
namespace sql {

using catalog::CommitOutcome;
using catalog::Consistency;
using catalog::RequestId;
using catalog::SessionState;
using duckdb::InvalidInputException;

namespace {

constexpr MonotonicNs RETRY_DELAY_MIN = 2 * NS_PER_MS;
constexpr MonotonicNs RETRY_DELAY_MAX = 200 * NS_PER_MS;
constexpr MonotonicNs BARRIER_TIMEOUT = 5 * NS_PER_SECOND;

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

//! One attempt at one statement.
class StatementRunner {
public:
	StatementRunner(Session &session_p, QueryExecution &execution_p)
	    : session(session_p), execution(execution_p), connection(session.Connection()) {
	}

	//! Throws; fills schema and rows.
	void Run() {
		auto statements = connection.ExtractStatements(execution.sql);
		if (statements.empty()) {
			throw InvalidInputException("Query did not return any columns");
		}
		if (execution.options.describe_only) {
			Describe(std::move(statements));
			return;
		}
		if (statements.size() == 1) {
			if (IsStatusQuery(*statements[0])) {
				SessionState::Get(*connection.context).SetConsistency(Consistency::Eventual);
			}
			RunSingle(std::move(statements[0]));
			return;
		}
		RunScript(std::move(statements));
	}

private:
	void Describe(duckdb::vector<duckdb::unique_ptr<duckdb::SQLStatement>> statements) {
		if (statements.size() != 1) {
			throw InvalidInputException("One statement can be described at a time, %llu came",
			                            static_cast<uint64_t>(statements.size()));
		}
		auto signature = connection.context->BindStatement(std::move(statements[0]));
		execution.SetSchema(signature.types, NamesOf(signature.names));
	}

	void RunSingle(duckdb::unique_ptr<duckdb::SQLStatement> statement) {
		auto type = statement->type;
		auto result = connection.Submit(std::move(statement));
		ThrowIfFailed(*result);
		if (result->MetadataAvailable() && duckdb::StreamsByDefault(type, *result, false)) {
			execution.SetSchema(result->GetTypes(), NamesOf(result->GetNames()));
			Stream(std::move(result));
			return;
		}
		if (execution.AnswersBeforeRows() && result->MetadataAvailable()) {
			execution.SetSchema(result->GetTypes(), NamesOf(result->GetNames()));
		}
		result->Complete();
		ThrowIfFailed(*result);
		PushRetained(*result);
	}

	//! The client gets the first result that has rows, else the first.
	void RunScript(duckdb::vector<duckdb::unique_ptr<duckdb::SQLStatement>> statements) {
		duckdb::unique_ptr<duckdb::QueryResult> answer;
		bool answer_has_rows = false;
		for (auto &statement : statements) {
			auto result = connection.Query(std::move(statement));
			ThrowIfFailed(*result);
			bool has_rows = result->GetStatementProperties().return_type == duckdb::StatementReturnType::QUERY_RESULT;
			if (!answer || (has_rows && !answer_has_rows)) {
				answer = std::move(result);
				answer_has_rows = has_rows;
			}
		}
		PushRetained(*answer);
	}

	void Stream(duckdb::unique_ptr<duckdb::QueryResult> result) {
		duckdb::QueryResultStream<> stream(std::move(result));
		while (auto chunk = stream.Fetch()) {
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

//! The failure that DuckDB or the catalog put into words only; Ok when there is none.
Status StatusInWords(const duckdb::ErrorData &error) {
	if (error.Type() != duckdb::ExceptionType::TRANSACTION) {
		return Status::Ok();
	}
	auto &message = error.RawMessage();
	// Another local transaction, the applier's among them, holds the row or the catalog entry.
	if (message.rfind("Conflict on ", 0) == 0 || message.find("write-write conflict") != std::string::npos) {
		return Status(ErrorCode::Conflict,
		              message + " Another transaction changed the same row or object; repeat this one.");
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

//! A statement that another node, or this one, committed under the same request id before.
class ReplayCheck {
public:
	ReplayCheck(Session &session_p, const StatementOptions &options)
	    : replica(session_p.Context().replica), engine(session_p.Context().engine),
	      active(!options.request_id.empty() && replica != nullptr) {
	}

	//! Waits until this node knows what was committed before now. Cheap when it fails: the duplicate is still caught
	//! when the entry is applied.
	void CatchUp() {
		if (!active || engine == nullptr) {
			return;
		}
		(void)WaitForRootGroup(*engine, BARRIER_TIMEOUT);
	}

	std::optional<CommitOutcome> Find(const RequestId &id) const {
		return active ? replica->Outcome(id) : std::nullopt;
	}

private:
	catalog::ReplicatedDatabase *replica;
	node::ConsensusEngine *engine;
	bool active;
};

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

void WaitBeforeRetry(uint32_t attempt, Prng &prng) {
	auto limit = std::min(RETRY_DELAY_MAX, RETRY_DELAY_MIN << std::min<uint32_t>(attempt, 10));
	auto delay = RETRY_DELAY_MIN + static_cast<MonotonicNs>(prng.Next() % static_cast<uint64_t>(limit));
	std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
}

//! Empty when the attempt succeeded and the execution is finished.
std::optional<ErrorResponse> Attempt(Session &session, QueryExecution &execution, const RequestId &request_id) {
	duckdb::ErrorData error;
	try {
		StatementRunner(session, execution).Run();
		execution.Finish();
		return std::nullopt;
	} catch (std::exception &exception) {
		error = ErrorOf(exception, execution.sql);
	} catch (...) {
		error = duckdb::ErrorData(duckdb::ExceptionType::INTERNAL, "unknown exception");
	}
	return ExplainFailure(session, execution, error, request_id);
}

void RunAttempts(Session &session, QueryExecution &execution) {
	auto &context = *session.Connection().context;
	bool autocommit = context.transaction.IsAutoCommit();
	Prng prng(static_cast<uint64_t>(SystemClock().Now()));
	ReplayCheck replay(session, execution.options);
	if (autocommit && !execution.options.describe_only) {
		replay.CatchUp();
	}
	for (uint32_t attempt = 0;; attempt++) {
		auto request_id = PrepareAttempt(session, execution.options, attempt);
		auto earlier = autocommit ? replay.Find(request_id) : std::nullopt;
		if (earlier && earlier->status.IsOk()) {
			AnswerCommitted(execution);
			return;
		}
		auto error = Attempt(session, execution, request_id);
		if (!error) {
			return;
		}
		earlier = autocommit ? replay.Find(request_id) : std::nullopt;
		if (earlier && earlier->status.IsOk() && execution.Restart()) {
			AnswerCommitted(execution);
			return;
		}
		auto last = attempt + 1 >= session.Context().limits.statement_attempts_max;
		auto late = execution.options.deadline != 0 && SystemClock().Now() > execution.options.deadline;
		// A streamed insert consumed its rows: only the client can repeat it.
		if (!autocommit || last || late || !IsRetryable(*error) || session.HasStreams() || !execution.Restart()) {
			execution.Fail(std::move(*error));
			return;
		}
		WaitBeforeRetry(attempt, prng);
	}
}

} // namespace

RequestId AttemptId(const RequestId &first, uint32_t attempt) {
	auto id = first;
	for (size_t i = 0; i < sizeof(attempt); i++) {
		id[id.size() - 1 - i] ^= static_cast<uint8_t>(attempt >> (8 * i));
	}
	return id;
}

RequestId PrepareAttempt(Session &session, const StatementOptions &options, uint32_t attempt) {
	auto &state = SessionState::Get(*session.Connection().context);
	RequestId id;
	if (options.request_id.empty()) {
		id = catalog::NewRequestId();
	} else {
		auto parsed = catalog::RequestIdFromString(options.request_id);
		if (!parsed.IsOk()) {
			ThrowCoded(parsed.GetStatus());
		}
		// Attempts after the first have ids of their own: the first one's outcome (rejected) is final.
		id = AttemptId(parsed.Value(), attempt);
	}
	state.SetNextRequestId(id);
	state.SetDeadline(options.deadline);
	state.SetConsistency(ParseConsistency(options.consistency));
	if (options.min_commit_index != 0) {
		state.RaiseFloor(raft::ROOT_GROUP, options.min_commit_index);
	}
	return id;
}

ErrorResponse ExplainFailure(Session &session, const QueryExecution &execution, const duckdb::ErrorData &error,
                             const RequestId &request_id) {
	auto response = MakeErrorResponse(error);
	if (!CodeOf(response).empty()) {
		return response;
	}
	auto &state = SessionState::Get(*session.Connection().context);
	auto doomed = state.Doomed();
	if (!doomed.IsOk()) {
		return CodedError(doomed);
	}
	auto commit = state.LastCommit();
	if (commit && commit->request_id == request_id && !commit->status.IsOk()) {
		auto coded = CodedError(commit->status);
		if (commit->status.Code() == ErrorCode::OutcomeUnknown) {
			coded.extra_info.emplace_back(EXTRA_INFO_TOKEN, catalog::RequestIdToString(request_id));
		}
		return coded;
	}
	auto in_words = StatusInWords(error);
	if (!in_words.IsOk()) {
		return CodedError(in_words);
	}
	if (error.Type() == duckdb::ExceptionType::INTERRUPT) {
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
		return CodedError(Status(ErrorCode::Cancelled, "the statement was interrupted; nothing of it was committed"));
	}
	return response;
}

void RunStatement(Session &session, QueryExecution &execution) {
	try {
		RunAttempts(session, execution);
	} catch (std::exception &exception) {
		execution.Fail(MakeErrorResponse(ErrorOf(exception, execution.sql)));
	}
}

} // namespace sql
} // namespace quack
