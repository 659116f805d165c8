#include "quack/sql/session.hpp"

#include <algorithm>
#include <chrono>

#include "duckdb/common/exception.hpp"
#include "duckdb/common/sql_identifier.hpp"
#include "duckdb/main/client_context_state.hpp"
#include "quack/sql/append_v1.hpp"
#include "quack/sql/sql_error.hpp"
#include "quack/sql/statement_runner.hpp"

namespace quack {
namespace sql {

using duckdb::InvalidInputException;

namespace {

constexpr const char *CONTEXT_STATE_KEY = "quack_server_session";

//! Finds the session from its ClientContext.
struct SessionContextState final : public duckdb::ClientContextState {
	explicit SessionContextState(Session &session_p) : session(session_p) {
	}
	Session &session;
};

} // namespace

Session::Session(const ServerContext &context, SessionInfo info_p) : server(context), info(std::move(info_p)) {
	last_request = SystemClock().Now();
	connection = duckdb::make_uniq<duckdb::Connection>(*server.db);
	connection_number = connection->context->GetConnectionId();
	connection->context->registered_state->Insert(CONTEXT_STATE_KEY,
	                                              duckdb::make_shared_ptr<SessionContextState>(*this));
	if (!server.catalog.empty()) {
		auto result = connection->Query("USE " + duckdb::SQLIdentifier(server.catalog));
		// A node out of service may have lost its database for good, and must still tell how it is.
		if (server.engine == nullptr || !server.engine->IsDegraded()) {
			result->ThrowIfError();
		}
	}
}

Session::~Session() {
	Close("the session ended");
}

Session *Session::TryGet(duckdb::ClientContext &context) {
	auto state = context.registered_state->Get<SessionContextState>(CONTEXT_STATE_KEY);
	return state ? &state->session : nullptr;
}

std::shared_ptr<QueryExecution> Session::Submit(const PrepareRequest &request, StatementOptions options) {
	auto uuid = request.query_uuid;
	Job job;
	{
		std::lock_guard<std::mutex> guard(lock);
		if (info.version == QuackVersion::V1) {
			uuid = duckdb::hugeint_t(0, next_v1_uuid++);
		} else if (uuid != duckdb::hugeint_t(0)) {
			auto known = executions.find(HugeintToHex(uuid));
			if (known != executions.end()) {
				return known->second;
			}
		}
	}
	job.execution = std::make_shared<QueryExecution>(uuid, request.sql, info.version, request.inline_rows,
	                                                 server.limits.result, std::move(options), *server.admission);
	return Enqueue(std::move(job));
}

std::shared_ptr<QueryExecution> Session::SubmitAppend(AppendRequest request, StatementOptions options) {
	Job job;
	auto text = "INSERT INTO " + request.schema + "." + request.table + " VALUES (NULL)";
	job.execution = std::make_shared<QueryExecution>(duckdb::hugeint_t(0), text, info.version, duckdb::optional_idx(1),
	                                                 server.limits.result, std::move(options), *server.admission);
	job.append = std::make_shared<AppendRequest>(std::move(request));
	return Enqueue(std::move(job));
}

std::shared_ptr<QueryExecution> Session::Enqueue(Job job) {
	auto execution = job.execution;
	std::lock_guard<std::mutex> guard(lock);
	if (closed) {
		throw InvalidInputException("Invalid connection id: %s", close_reason);
	}
	if (queue.size() >= server.limits.statement_queue_max) {
		ThrowOverloaded(Status(ErrorCode::Overloaded,
		                       "the session has " + std::to_string(queue.size()) +
		                           " statements waiting, the most it takes; wait for their results"),
		                server.admission->RetryAfterMs());
	}
	if (execution->uuid != duckdb::hugeint_t(0)) {
		auto key = HugeintToHex(execution->uuid);
		auto inserted = executions.emplace(key, execution);
		if (!inserted.second) {
			return inserted.first->second;
		}
		execution_order.push_back(key);
		ForgetDoneLocked();
	}
	bool urgent = in_transaction || IsUrgentText(execution->sql);
	auto admitted = server.admission->Enter(urgent);
	if (!admitted.IsOk()) {
		ForgetLocked(execution->uuid);
		ThrowOverloaded(admitted, server.admission->RetryAfterMs());
	}
	queue.push_back(std::move(job));
	if (current) {
		current->LiftLimit();
	}
	if (!worker.joinable()) {
		worker = std::thread([this] { WorkerLoop(); });
	}
	work.notify_one();
	return execution;
}

void Session::ForgetLocked(duckdb::hugeint_t uuid) {
	auto key = HugeintToHex(uuid);
	executions.erase(key);
	execution_order.erase(std::remove(execution_order.begin(), execution_order.end(), key), execution_order.end());
}

void Session::ForgetDoneLocked() {
	auto kept = server.limits.executions_kept_max;
	for (size_t i = 0; i < execution_order.size() && execution_order.size() > kept;) {
		auto entry = executions.find(execution_order[i]);
		auto state = entry->second->State();
		// An abandoned result (finished, never fetched) goes too, oldest first.
		bool over = state == ExecutionState::Finished || state == ExecutionState::Failed;
		if (!over) {
			i++;
			continue;
		}
		executions.erase(entry);
		execution_order.erase(execution_order.begin() + static_cast<ptrdiff_t>(i));
	}
}

std::shared_ptr<QueryExecution> Session::Find(duckdb::hugeint_t uuid) {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = executions.find(HugeintToHex(uuid));
	if (entry == executions.end()) {
		throw InvalidInputException("Result has been closed: the session holds no result %s", HugeintToUuid(uuid));
	}
	return entry->second;
}

void Session::WorkerLoop() {
	std::unique_lock<std::mutex> guard(lock);
	while (true) {
		work.wait(guard, [&] { return closed || !queue.empty(); });
		if (closed) {
			worker_ended = true;
			work.notify_all();
			return;
		}
		auto job = std::move(queue.front());
		queue.pop_front();
		current = job.execution;
		current_started = SystemClock().Now();
		statement_count++;
		if (!queue.empty()) {
			current->LiftLimit();
		}
		guard.unlock();
		RunJob(job);
		server.admission->Leave(SystemClock().Now() - job.execution->created);
		in_transaction = !connection->context->transaction.IsAutoCommit();
		guard.lock();
		current.reset();
	}
}

void Session::RunJob(Job &job) {
	auto &execution = *job.execution;
	if (!execution.Start()) {
		execution.Fail(CodedError(Status(ErrorCode::Cancelled, "the statement was cancelled before it started")));
		return;
	}
	if (job.append) {
		execution.MarkNeedsDisk();
		RunAppend(*this, execution, *job.append);
	} else {
		RunStatement(*this, execution);
	}
	EndStreams(execution);
}

void Session::EndStreams(QueryExecution &execution) {
	std::map<std::string, std::shared_ptr<ClientStream>> ended;
	{
		std::lock_guard<std::mutex> guard(lock);
		ended.swap(streams);
		// Late SEND_DATA of a statement that ended must learn how: the ended streams stay known until the next one
		// binds.
		for (auto &entry : ended) {
			streams.emplace(entry);
		}
	}
	if (ended.empty()) {
		return;
	}
	ErrorResponse error;
	bool failed = execution.FailedWith(error);
	for (auto &entry : ended) {
		entry.second->StatementEnded(failed ? &error : nullptr);
	}
}

void Session::Cancel(duckdb::hugeint_t uuid) {
	std::vector<std::shared_ptr<ClientStream>> to_abort;
	{
		std::lock_guard<std::mutex> guard(lock);
		bool all = uuid == duckdb::hugeint_t(0);
		for (auto &job : queue) {
			if (all || job.execution->uuid == uuid) {
				job.execution->Cancel();
			}
		}
		if (current && (all || current->uuid == uuid)) {
			current->Cancel();
			connection->context->Interrupt();
			for (auto &entry : streams) {
				to_abort.push_back(entry.second);
			}
		}
	}
	for (auto &stream : to_abort) {
		stream->Abort(Status(ErrorCode::Cancelled, "the statement was cancelled"));
	}
}

void Session::Acknowledge(duckdb::hugeint_t uuid) {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = executions.find(HugeintToHex(uuid));
	if (entry != executions.end()) {
		entry->second->Acknowledge();
	}
}

std::shared_ptr<ClientStream> Session::OpenStream(const std::string &id,
                                                  const duckdb::vector<duckdb::LogicalType> &types, bool ordered) {
	std::lock_guard<std::mutex> guard(lock);
	auto known = streams.find(id);
	if (known != streams.end()) {
		return known->second;
	}
	for (auto entry = streams.begin(); entry != streams.end();) {
		entry = entry->second->IsEnded() ? streams.erase(entry) : std::next(entry);
	}
	if (streams.size() >= server.limits.streams_max) {
		throw InvalidInputException("A session reads at most %llu client streams at once",
		                            static_cast<uint64_t>(server.limits.streams_max));
	}
	auto stream =
	    std::make_shared<ClientStream>(id, types, ordered, server.limits.stream_buffer_bytes_max, *server.admission);
	streams.emplace(id, stream);
	return stream;
}

bool Session::HasStreams() const {
	std::lock_guard<std::mutex> guard(lock);
	for (auto &entry : streams) {
		if (!entry.second->IsEnded()) {
			return true;
		}
	}
	return false;
}

std::shared_ptr<ClientStream> Session::FindStream(const std::string &id) {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = streams.find(id);
	if (entry == streams.end()) {
		ThrowCoded(Status(ErrorCode::NotFound, "No statement of this session reads the stream '" + id +
		                                           "'; fetch its result to learn how it ended"));
	}
	return entry->second;
}

void Session::Close(const std::string &reason) {
	std::thread ending;
	std::deque<Job> dropped;
	{
		std::lock_guard<std::mutex> guard(lock);
		CancelAllLocked(reason);
		dropped.swap(queue);
		ending.swap(worker);
	}
	for (auto &job : dropped) {
		server.admission->Leave(0);
		job.execution->Fail(CodedError(Status(ErrorCode::Unavailable, "the statement was not started: " + reason)));
	}
	if (ending.joinable()) {
		JoinWorker(ending);
	}
	// The destructor of the connection rolls back an open transaction.
	std::lock_guard<std::mutex> guard(lock);
	connection.reset();
}

void Session::BeginClose(const std::string &reason) {
	std::lock_guard<std::mutex> guard(lock);
	CancelAllLocked(reason);
}

void Session::CancelAllLocked(const std::string &reason) {
	if (!closed) {
		closed = true;
		close_reason = reason;
	}
	if (current) {
		current->Cancel();
		connection->context->Interrupt();
	}
	for (auto &entry : streams) {
		entry.second->Abort(Status(ErrorCode::Unavailable, reason));
	}
	work.notify_all();
}

std::string Session::ClosedReason() const {
	std::lock_guard<std::mutex> guard(lock);
	return close_reason;
}

void Session::JoinWorker(std::thread &ending) {
	{
		std::unique_lock<std::mutex> guard(lock);
		while (!work.wait_for(guard, std::chrono::milliseconds(20), [&] { return worker_ended; })) {
			// An interrupt that falls between two DuckDB calls is lost.
			connection->context->Interrupt();
		}
	}
	ending.join();
}

void Session::BeginRequest() {
	requests_in_progress++;
	last_request = SystemClock().Now();
}

void Session::EndRequest() {
	last_request = SystemClock().Now();
	requests_in_progress--;
}

bool Session::LeaseExpired(MonotonicNs now) const {
	return requests_in_progress == 0 && now - last_request > static_cast<MonotonicNs>(info.lease_s) * NS_PER_SECOND;
}

void Session::EnforceDeadlines(MonotonicNs now) {
	std::lock_guard<std::mutex> guard(lock);
	if (!current || !connection) {
		return;
	}
	if (current->options.deadline != 0 && now > current->options.deadline) {
		current->Cancel();
		for (auto &entry : streams) {
			entry.second->Abort(Status(ErrorCode::DeadlineExceeded, "the statement ran past its deadline"));
		}
	}
	auto result_ttl = static_cast<MonotonicNs>(server.limits.result_ttl_s) * NS_PER_SECOND;
	if (current->PausedFor(now) > result_ttl) {
		current->Cancel();
	}
	if (current->IsCancelled() && current->State() == ExecutionState::Running) {
		// Again and again: an interrupt that falls between two DuckDB calls is lost.
		connection->context->Interrupt();
	}
}

bool Session::AbandonStuck(MonotonicNs before, const std::string &hung) {
	std::lock_guard<std::mutex> guard(lock);
	if (closed || !current || !current->NeedsDisk() || current_started > before) {
		return false;
	}
	auto error = CodedError(Status(ErrorCode::OutcomeUnknown,
	                               hung + ", and the statement was stuck in it; another node knows its outcome"));
	if (!current->options.request_id.empty()) {
		error.extra_info.emplace_back(EXTRA_INFO_TOKEN, current->options.request_id);
	}
	current->Abandon(std::move(error));
	for (auto &job : queue) {
		job.execution->Abandon(CodedError(Status(ErrorCode::Unavailable, "the statement was not started: " + hung)));
	}
	CancelAllLocked(hung);
	return true;
}

SessionStatus Session::GetStatus() const {
	std::lock_guard<std::mutex> guard(lock);
	SessionStatus status;
	status.info = info;
	status.statements = statement_count;
	status.last_request = last_request;
	status.state = current ? "active" : "idle";
	if (current) {
		status.query = current->sql;
		status.started = current_started;
	}
	for (auto &entry : executions) {
		status.buffered_rows += entry.second->BufferedRows();
		status.buffered_bytes += entry.second->BufferedBytes();
	}
	status.in_transaction = in_transaction;
	status.connection = connection_number;
	return status;
}

} // namespace sql
} // namespace quack
