#include "quack/sql/remote_transaction.hpp"

#include <algorithm>
#include <thread>

#include "duckdb/common/exception/transaction_exception.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#include "duckdb/transaction/transaction_context.hpp"

#include "quack/catalog/read_set.hpp"
#include "quack/sql/remote_catalog_entry.hpp"
#include "quack/sql/session_settings.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;
using duckdb::ErrorData;
using duckdb::TransactionException;

constexpr uint64_t ROLLBACK_TIMEOUT_MS = 5000;

//===----------------------------------------------------------------------===//
// Budgets
//===----------------------------------------------------------------------===//

static uint64_t NumberSetting(ClientContext &context, const char *name) {
	duckdb::Value setting;
	if (!context.TryGetCurrentSetting(name, setting) || setting.IsNull()) {
		return 0;
	}
	return setting.DefaultCastAs(duckdb::LogicalType::UBIGINT).GetValue<uint64_t>();
}

RemoteBudget RemoteTransaction::StatementBudget(ClientContext &context) {
	auto interrupted = [&context] {
		return context.IsInterrupted();
	};
	auto limit_ms = NumberSetting(context, SETTING_STATEMENT_TIMEOUT_MS);
	if (limit_ms != 0) {
		return RemoteBudget::ForMs(limit_ms, interrupted);
	}
	RemoteBudget budget;
	budget.interrupted = interrupted;
	return budget;
}

RemoteBudget RemoteTransaction::Budget(ClientContext &context) const {
	auto timeout_ms = cluster->Options().request_timeout_ms;
	if (timeout_ms == 0) {
		timeout_ms = NumberSetting(context, SETTING_REQUEST_TIMEOUT_MS);
	}
	if (timeout_ms == 0) {
		timeout_ms = DEFAULT_REQUEST_TIMEOUT_MS;
	}
	auto limit_ms = NumberSetting(context, SETTING_STATEMENT_TIMEOUT_MS);
	if (limit_ms != 0) {
		timeout_ms = std::min(timeout_ms, limit_ms);
	}
	return RemoteBudget::ForMs(timeout_ms, [&context] { return context.IsInterrupted(); });
}

std::string RemoteTransaction::Consistency(ClientContext &context) const {
	auto setting = ConsistencySetting(context);
	return setting.empty() ? cluster->Options().consistency : setting;
}

//! What a statement answers of which only the commit is known.
static RemoteStreamStart UncountedResult() {
	RemoteStreamStart result;
	result.types = {duckdb::LogicalType::BIGINT};
	result.names = {"Count"};
	auto chunk = duckdb::make_uniq<duckdb::DataChunk>();
	chunk->Initialize(duckdb::Allocator::DefaultAllocator(), result.types);
	chunk->data[0].SetValue(0, duckdb::Value(duckdb::LogicalType::BIGINT));
	chunk->SetChildCardinality(1);
	result.chunks.push_back(std::move(chunk));
	return result;
}

//===----------------------------------------------------------------------===//
// RemoteStream
//===----------------------------------------------------------------------===//

RemoteStreamStart RemoteStreamStart::From(PrepareResponse response) {
	RemoteStreamStart start;
	start.query_uuid = response.query_uuid;
	start.types = std::move(response.types);
	start.names = std::move(response.names);
	start.chunks = std::move(response.chunks);
	start.needs_more_fetch = response.needs_more_fetch;
	return start;
}

RemoteStream::RemoteStream(std::shared_ptr<RemoteCluster> cluster_p, std::shared_ptr<RemoteSession> session_p,
                           bool owns_session_p, RemoteStreamStart first)
    : cluster(std::move(cluster_p)), session(std::move(session_p)), owns_session(owns_session_p),
      query_uuid(first.query_uuid), types(std::move(first.types)), names(std::move(first.names)),
      more(first.needs_more_fetch), next_batch(first.first_batch) {
	for (auto &chunk : first.chunks) {
		chunks.push_back(std::move(chunk));
	}
	if (!more) {
		Finish();
	}
}

RemoteStream::~RemoteStream() {
	if (!session) {
		return;
	}
	if (more && !session->lost) {
		cluster->Cancel(*session, query_uuid);
	}
	Finish();
}

void RemoteStream::Finish() {
	more = false;
	if (owns_session && session) {
		cluster->Release(session);
	}
	session.reset();
}

void RemoteStream::Fetch(ClientContext &context) {
	RemoteTransaction::Attempt attempt;
	RemoteStreamStart result;
	result.needs_more_fetch = true;
	// A FETCH names its batch, so one that got lost is simply asked again, on the same node.
	for (int round = 0; round < 2; round++) {
		attempt = RemoteTransaction::FetchBatch(*cluster, *session, query_uuid, next_batch,
		                                        RemoteTransaction::StatementBudget(context), result);
		if (attempt.transport.Code() != ErrorCode::OutcomeUnknown) {
			break;
		}
		session->lost = round == 1;
	}
	if (attempt.transport.IsOk() && !attempt.is_error) {
		for (auto &chunk : result.chunks) {
			chunks.push_back(std::move(chunk));
		}
		next_batch++;
		if (!result.needs_more_fetch) {
			Finish();
		}
		return;
	}
	auto node = session->endpoint.ToString();
	if (attempt.retry && !attempt.is_error) {
		cluster->MoveOn(session->endpoint);
	}
	Finish();
	if (attempt.retry && !attempt.is_error) {
		throw TransactionException("node %s went away in the middle of a result (%s); run the query again%s", node,
		                           attempt.transport.Message(), CodeTag(ErrorCode::Unavailable));
	}
	RemoteTransaction::ThrowFailure(attempt, "the query");
}

duckdb::unique_ptr<duckdb::DataChunk> RemoteStream::Next(ClientContext &context) {
	std::lock_guard<std::mutex> guard(lock);
	while (true) {
		while (!chunks.empty()) {
			auto chunk = std::move(chunks.front());
			chunks.pop_front();
			if (chunk && chunk->size() > 0) {
				return chunk;
			}
		}
		if (!more) {
			return nullptr;
		}
		Fetch(context);
	}
}

//===----------------------------------------------------------------------===//
// RemoteTransaction: requests
//===----------------------------------------------------------------------===//

RemoteTransaction::RemoteTransaction(duckdb::TransactionManager &manager, ClientContext &context,
                                     RemoteCatalog &catalog_p)
    : Transaction(manager, context), catalog(catalog_p), cluster(catalog_p.Cluster()),
      autocommit(context.transaction.IsAutoCommit()) {
}

RemoteTransaction::~RemoteTransaction() = default;

RemoteTransaction &RemoteTransaction::Get(ClientContext &context, duckdb::Catalog &catalog) {
	return Transaction::Get(context, catalog).Cast<RemoteTransaction>();
}

bool RemoteTransaction::NoteReply(const Result<RemoteReply> &reply, Attempt &attempt) {
	attempt.transport = reply.IsOk() ? Status::Ok() : reply.GetStatus();
	if (!reply.IsOk()) {
		auto code = attempt.transport.Code();
		attempt.retry = code == ErrorCode::Unavailable || code == ErrorCode::OutcomeUnknown;
		attempt.unknown = code != ErrorCode::Unavailable;
		return false;
	}
	if (!reply.Value().is_error) {
		return true;
	}
	attempt.is_error = true;
	attempt.error = reply.Value().error;
	attempt.conflict = reply.Value().IsConflict();
	attempt.unknown = reply.Value().IsOutcomeUnknown() || reply.Value().IsSessionLost();
	attempt.retry = reply.Value().IsRetryable() || reply.Value().IsSessionLost();
	attempt.retry_after_ms = reply.Value().RetryAfterMs();
	return false;
}

void RemoteTransaction::TellCause(Attempt &attempt, std::optional<ErrorResponse> &cause) {
	if (!attempt.is_error) {
		return;
	}
	auto code = CodeOf(attempt.error);
	if (code == ErrorCodeName(ErrorCode::DiskFull)) {
		cause = attempt.error;
	} else if (cause && code == ErrorCodeName(ErrorCode::DeadlineExceeded)) {
		attempt.error = *cause;
	}
}

RemoteTransaction::Attempt RemoteTransaction::FetchBatch(RemoteCluster &cluster, RemoteSession &session,
                                                         duckdb::hugeint_t query_uuid, uint64_t batch,
                                                         const RemoteBudget &budget, RemoteStreamStart &result) {
	MessageHeader header;
	header.connection_id = session.connection_id;
	FetchRequest body;
	body.query_uuid = query_uuid;
	body.batch_index = batch;
	body.ack_index = batch - 1;
	RemoteRequest request;
	request.body = EncodeFetchRequest(header, body, QuackVersion::V3);
	Attempt attempt;
	auto reply = cluster.Exchange(session, request, budget);
	if (!NoteReply(reply, attempt)) {
		if (attempt.transport.Code() == ErrorCode::Cancelled ||
		    attempt.transport.Code() == ErrorCode::DeadlineExceeded) {
			cluster.Cancel(session, query_uuid);
		}
		return attempt;
	}
	MessageDecoder decoder(ByteView(reply.Value().bytes));
	auto response = decoder.ReadFetchResponse(QuackVersion::V3);
	for (auto &chunk : response.chunks) {
		result.chunks.push_back(std::move(chunk));
	}
	if (response.total_batches.IsValid()) {
		result.needs_more_fetch = false;
		auto expected = response.total_batches.GetIndex();
		if (response.chunks.empty() && expected + 1 != batch && expected >= batch) {
			attempt.transport = Status(ErrorCode::Incompatible,
			                           "node " + session.endpoint.ToString() + " ended the result after " +
			                               std::to_string(batch - 1) + " batches of " + std::to_string(expected));
		}
	}
	return attempt;
}

RemoteTransaction::Attempt RemoteTransaction::TryPrepare(RemoteCluster &cluster, RemoteSession &session,
                                                         const RemoteStatement &statement,
                                                         const RemoteRequestId &request_id,
                                                         duckdb::hugeint_t query_uuid, duckdb::optional_idx inline_rows,
                                                         const RemoteBudget &budget) {
	Attempt attempt;
	attempt.transport = SetSchema(cluster, session, statement.schema, budget);
	if (!attempt.transport.IsOk()) {
		auto code = attempt.transport.Code();
		attempt.retry = code == ErrorCode::Unavailable || code == ErrorCode::OutcomeUnknown;
		return attempt;
	}
	MessageHeader header;
	header.connection_id = session.connection_id;
	PrepareRequest body;
	body.sql = statement.sql;
	body.query_uuid = query_uuid;
	body.inline_rows = inline_rows;
	RemoteRequest request;
	request.body = EncodePrepareRequest(header, body, QuackVersion::V3);
	request.request_id = request_id.text;
	request.repeat = request_id.unknown;
	request.consistency = statement.consistency;
	request.describe = statement.describe;
	request.send_deadline = !statement.unbounded;
	auto reply = cluster.Exchange(session, request, budget);
	if (!NoteReply(reply, attempt)) {
		if (attempt.transport.Code() == ErrorCode::Cancelled ||
		    attempt.transport.Code() == ErrorCode::DeadlineExceeded) {
			cluster.Cancel(session, query_uuid);
		}
		return attempt;
	}
	try {
		MessageDecoder decoder(ByteView(reply.Value().bytes));
		attempt.response = decoder.ReadPrepareResponse();
	} catch (const std::exception &error) {
		attempt.transport =
		    Status(ErrorCode::Incompatible, "node " + session.endpoint.ToString() +
			                                    " sent a malformed result: " + ErrorData(error).RawMessage());
		attempt.unknown = true;
	}
	return attempt;
}

Status RemoteTransaction::SetSchema(RemoteCluster &cluster, RemoteSession &session, const std::string &schema,
                                    const RemoteBudget &budget) {
	if (session.search_schema == schema) {
		return Status::Ok();
	}
	auto wanted = schema.empty() ? std::string("main") : schema;
	RemoteStatement use;
	use.schema = session.search_schema;
	use.sql = "USE " + duckdb::SQLIdentifier::ToString(wanted);
	auto attempt =
	    TryPrepare(cluster, session, use, RemoteRequestId(), cluster.RandomUuid(), duckdb::optional_idx(), budget);
	if (attempt.is_error) {
		auto code = attempt.retry ? ErrorCode::Unavailable : ErrorCode::InvalidArgument;
		return Status(code, "the node refused USE " + wanted + ": " + attempt.error.message);
	}
	if (attempt.transport.IsOk()) {
		session.search_schema = schema;
	}
	return attempt.transport;
}

std::unique_ptr<RemoteStream> RemoteTransaction::Run(ClientContext &context, const RemoteStatement &statement) {
	context.InterruptCheck();
	auto run = statement;
	run.consistency = Consistency(context);
	auto stream = IsExplicit() ? RunExplicit(context, run) : RunAutocommit(context, run);
	if (statement.ddl) {
		std::lock_guard<std::mutex> guard(schema_lock);
		own_schema_changes = own_schema_changes || IsExplicit();
		snapshot.reset();
		fresh_in_statement = false;
	}
	return stream;
}

//! Sleeps in small steps; false when the user interrupted.
static bool PauseMs(uint64_t pause_ms, const RemoteBudget &budget) {
	for (uint64_t waited = 0; waited < pause_ms && !budget.Expired(); waited += 5) {
		if (budget.Interrupted()) {
			return false;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
	return true;
}

RemoteTransaction::Attempt RemoteTransaction::Complete(RemoteSession &node_session, RemoteStreamStart &start,
                                                       const RemoteBudget &budget) {
	Attempt attempt;
	while (start.needs_more_fetch && attempt.transport.IsOk() && !attempt.is_error) {
		attempt = FetchBatch(*cluster, node_session, start.query_uuid, start.first_batch, budget, start);
		start.first_batch++;
	}
	return attempt;
}

std::unique_ptr<RemoteStream> RemoteTransaction::RunAutocommit(ClientContext &context,
                                                               const RemoteStatement &statement) {
	auto budget = Budget(context);
	RemoteRequestId request_id;
	request_id.text = statement.effect ? cluster->NewRequestId() : std::string();
	auto what = std::string(statement.effect ? "the statement" : "the query");
	// The deadline is about finding a node that takes the statement; a read runs as long as its node lives.
	auto wait = statement.effect ? budget : StatementBudget(context);
	uint64_t pause_ms = 5;
	std::optional<ErrorResponse> cause;
	while (true) {
		Attempt attempt;
		auto acquired = cluster->Acquire(budget);
		if (!acquired.IsOk()) {
			attempt.transport = acquired.GetStatus();
			if (attempt.transport.Code() == ErrorCode::Cancelled) {
				return Interrupted(context, what, request_id);
			}
			ThrowFailure(attempt, what, request_id);
		}
		auto node_session = acquired.Value();
		attempt = TryPrepare(*cluster, *node_session, statement, request_id, RemoteCluster::RandomUuid(),
		                     duckdb::optional_idx(), wait);
		if (attempt.transport.IsOk() && !attempt.is_error) {
			auto start = RemoteStreamStart::From(std::move(attempt.response));
			// Only the end of the result says that an effect was committed.
			attempt = statement.effect ? Complete(*node_session, start, wait) : Attempt();
			if (attempt.transport.IsOk() && !attempt.is_error) {
				if (statement.effect) {
					NoteCommitted(context);
				}
				return std::make_unique<RemoteStream>(cluster, node_session, true, std::move(start));
			}
		}
		TellCause(attempt, cause);
		// A definite error of a repetition speaks for all sendings before it.
		bool definite = attempt.is_error && !attempt.retry;
		request_id.unknown = statement.effect && !definite && (request_id.unknown || attempt.unknown);
		if (attempt.transport.Code() == ErrorCode::Cancelled) {
			return Interrupted(context, what, request_id);
		}
		if (!(attempt.retry || attempt.conflict) || budget.Expired() || wait.Expired()) {
			if (attempt.is_error) {
				cluster->Release(node_session);
			}
			ThrowFailure(attempt, what, request_id);
		}
		if (attempt.conflict) {
			request_id.text = cluster->NewRequestId(); // rolled back everywhere: what follows is a new statement
		}
		if (!attempt.conflict && (!node_session->lost || !attempt.transport.IsOk())) {
			cluster->MoveOn(node_session->endpoint);
		}
		if (attempt.is_error && !node_session->lost) {
			// A session kept idle is taken first: on a node that was left (latched, removed, cut off) it would bring
			// every further attempt back there. One that is merely busy keeps it, or logins would add to its load.
			if (attempt.conflict || attempt.retry_after_ms > 0) {
				cluster->Release(node_session);
			} else {
				cluster->Discard(node_session);
			}
			if (!PauseMs(std::max(pause_ms, attempt.retry_after_ms), budget)) {
				return Interrupted(context, what, request_id);
			}
			pause_ms = std::min<uint64_t>(pause_ms * 2, 200);
		}
	}
}

std::unique_ptr<RemoteStream> RemoteTransaction::Interrupted(ClientContext &context, const std::string &what,
                                                             const RemoteRequestId &request_id) {
	SettleInterrupted(context, *cluster, what, request_id);
	return std::make_unique<RemoteStream>(cluster, nullptr, true, UncountedResult());
}

void RemoteTransaction::Break(const std::string &reason) {
	if (session) {
		cluster->MoveOn(session->endpoint);
	}
	broken = reason;
}

bool RemoteTransaction::SetIsolation(RemoteSession &node_session, const RemoteBudget &budget, Attempt &attempt) {
	auto client = context.lock();
	bool is_wanted = client && catalog::IsSerializable(*client);
	if (is_wanted == node_session.is_serializable) {
		return true;
	}
	RemoteStatement set;
	set.sql = std::string("SET ") + catalog::SETTING_ISOLATION + (is_wanted ? " = 'serializable'" : " = 'snapshot'");
	attempt = TryPrepare(*cluster, node_session, set, RemoteRequestId(), RemoteCluster::RandomUuid(),
	                     duckdb::optional_idx(), budget);
	node_session.is_serializable = is_wanted; // after a failure the session is given up
	return attempt.transport.IsOk() && !attempt.is_error;
}

std::shared_ptr<RemoteSession> RemoteTransaction::Begun(const RemoteBudget &budget) {
	if (!broken.empty()) {
		throw TransactionException("the transaction cannot go on and was rolled back: %s. Run ROLLBACK, then the "
		                           "whole transaction again%s",
		                           broken, CodeTag(ErrorCode::Unavailable));
	}
	if (session) {
		return session;
	}
	uint64_t pause_ms = 5;
	RemoteStatement begin;
	begin.sql = "BEGIN TRANSACTION";
	while (true) {
		auto acquired = cluster->Acquire(budget);
		Attempt attempt;
		if (!acquired.IsOk()) {
			attempt.transport = acquired.GetStatus();
			ThrowFailure(attempt, "BEGIN");
		}
		auto &node_session = acquired.Value();
		attempt = TryPrepare(*cluster, *node_session, begin, RemoteRequestId(), RemoteCluster::RandomUuid(),
		                     duckdb::optional_idx(), budget);
		if (attempt.transport.IsOk() && !attempt.is_error && SetIsolation(*node_session, budget, attempt)) {
			session = node_session;
			return session;
		}
		cluster->Discard(node_session);
		if (!attempt.retry || budget.Expired()) {
			ThrowFailure(attempt, "BEGIN");
		}
		cluster->MoveOn(node_session->endpoint);
		if (!PauseMs(pause_ms, budget)) {
			throw duckdb::InterruptException();
		}
		pause_ms = std::min<uint64_t>(pause_ms * 2, 200);
	}
}

std::unique_ptr<RemoteStream> RemoteTransaction::RunExplicit(ClientContext &context, const RemoteStatement &statement) {
	std::lock_guard<std::mutex> guard(lock);
	auto node_session = Begun(Budget(context));
	auto uuid = RemoteCluster::RandomUuid();
	Attempt attempt;
	// The same query uuid in the same session is the same statement, so a lost answer is asked for once more.
	for (int round = 0; round < 2; round++) {
		attempt = TryPrepare(*cluster, *node_session, statement, RemoteRequestId(), uuid, duckdb::optional_idx(),
		                     StatementBudget(context));
		if (attempt.transport.Code() != ErrorCode::OutcomeUnknown || round == 1) {
			break;
		}
		node_session->lost = false;
	}
	if (attempt.transport.IsOk() && !attempt.is_error) {
		return std::make_unique<RemoteStream>(cluster, node_session, false,
		                                      RemoteStreamStart::From(std::move(attempt.response)));
	}
	if (node_session->lost && attempt.transport.Code() != ErrorCode::Cancelled) {
		Break("node " + node_session->endpoint.ToString() + " was lost (" +
		      (attempt.is_error ? attempt.error.message : attempt.transport.Message()) + ")");
		throw TransactionException("%s; the transaction was rolled back. Run it again%s", broken,
		                           CodeTag(ErrorCode::Unavailable));
	}
	ThrowFailure(attempt, "the statement");
}

void RemoteTransaction::RequireExplicit() {
	std::lock_guard<std::mutex> guard(lock);
	autocommit = false;
}

//===----------------------------------------------------------------------===//
// End of a transaction
//===----------------------------------------------------------------------===//

ErrorData RemoteTransaction::Commit(ClientContext &context) {
	std::lock_guard<std::mutex> guard(lock);
	if (!broken.empty()) {
		return ErrorData(duckdb::ExceptionType::TRANSACTION, "the transaction was rolled back: " + broken +
		                                                         ". Run it again" + CodeTag(ErrorCode::Unavailable));
	}
	if (!session) {
		return ErrorData();
	}
	try {
		CommitOnNode(context, Budget(context));
		NoteCommitted(context);
		return ErrorData();
	} catch (std::exception &error) {
		return ErrorData(error);
	}
}

void RemoteTransaction::CommitOnNode(ClientContext &context, const RemoteBudget &budget) {
	auto node_session = std::move(session);
	session.reset();
	RemoteStatement commit;
	commit.sql = "COMMIT";
	commit.schema = node_session->search_schema;
	RemoteRequestId request_id;
	request_id.text = cluster->NewRequestId();
	auto uuid = RemoteCluster::RandomUuid();
	Attempt attempt;
	// The same query uuid in the same session is the same COMMIT: a lost answer is asked for once more.
	for (int round = 0; round < 2; round++) {
		attempt = TryPrepare(*cluster, *node_session, commit, request_id, uuid, duckdb::optional_idx(), budget);
		request_id.unknown = request_id.unknown || attempt.unknown;
		if (attempt.transport.IsOk() && !attempt.is_error) {
			cluster->Release(node_session);
			return;
		}
		if (attempt.transport.Code() != ErrorCode::OutcomeUnknown || budget.Expired()) {
			break;
		}
		node_session->lost = false;
	}
	cluster->Discard(node_session); // whatever the node still holds for it ends with the session
	if (attempt.transport.Code() == ErrorCode::Cancelled) {
		SettleInterrupted(context, *cluster, "the transaction", request_id);
		return;
	}
	bool definite = attempt.is_error && !attempt.unknown;
	if (definite || !request_id.unknown) {
		ThrowFailure(attempt, "COMMIT");
	}
	cluster->MoveOn(node_session->endpoint);
	CommitElsewhere(context, request_id, budget,
	                attempt.is_error ? attempt.error.message : attempt.transport.Message());
}

void RemoteTransaction::Rollback() {
	std::lock_guard<std::mutex> guard(lock);
	if (!session) {
		return;
	}
	auto ended = std::move(session);
	session.reset();
	if (ended->lost) {
		return;
	}
	RemoteStatement rollback;
	rollback.sql = "ROLLBACK";
	rollback.schema = ended->search_schema;
	auto attempt = TryPrepare(*cluster, *ended, rollback, RemoteRequestId(), RemoteCluster::RandomUuid(),
	                          duckdb::optional_idx(), RemoteBudget::ForMs(ROLLBACK_TIMEOUT_MS));
	if (attempt.transport.IsOk() && !attempt.is_error) {
		cluster->Release(ended);
	} else {
		cluster->Discard(ended); // the node rolls back with the session
	}
}

//===----------------------------------------------------------------------===//
// Schema as the transaction sees it
//===----------------------------------------------------------------------===//

//! Caller holds schema_lock.
void RemoteTransaction::NoteStatement(ClientContext &context) {
	auto number = duckdb::MetaTransaction::Get(context).GetActiveQuery();
	if (number != statement_number) {
		statement_number = number;
		fresh_in_statement = false;
		looked_up.clear();
		pieces.clear();
	}
}

bool RemoteTransaction::NoteLookup(ClientContext &context, const std::string &name) {
	std::lock_guard<std::mutex> guard(schema_lock);
	NoteStatement(context);
	return !looked_up.insert(name).second;
}

bool RemoteTransaction::RegisterPiece(ClientContext &context, std::shared_ptr<RemoteStreamSlot> slot) {
	std::vector<std::unique_ptr<RemoteStream>> dropped; // closed after the locks are free
	{
		std::lock_guard<std::mutex> guard(schema_lock);
		NoteStatement(context);
		pieces.push_back(std::move(slot));
		if (pieces.size() < 2 || !autocommit) {
			return pieces.size() > 1;
		}
		for (auto &piece : pieces) {
			dropped.push_back(piece->Take());
		}
	}
	RequireExplicit();
	return true;
}

static std::shared_ptr<RemoteSnapshot> LoadSnapshot(ClientContext &context, RemoteTransaction &transaction,
                                                    RemoteCatalog &catalog) {
	auto version = transaction.Cluster().CatalogVersion();
	auto result = std::make_shared<RemoteSnapshot>(catalog, version);
	RemoteStatement statement;
	statement.sql = RemoteSnapshot::Query();
	auto stream = transaction.Run(context, statement);
	while (auto chunk = stream->Next(context)) {
		result->AddRows(*chunk);
	}
	return result;
}

std::shared_ptr<RemoteSnapshot> RemoteTransaction::Snapshot(ClientContext &context, bool fresh) {
	std::unique_lock<std::mutex> guard(schema_lock);
	NoteStatement(context);
	if (own_schema_changes) {
		if (!snapshot) {
			guard.unlock();
			auto loaded = LoadSnapshot(context, *this, catalog);
			guard.lock();
			snapshot = loaded;
			kept.push_back(loaded);
		}
		return snapshot;
	}
	if (fresh && !fresh_in_statement) {
		guard.unlock();
		if (Consistency(context) == "linearizable") {
			// A heartbeat is answered at once; this query waits for what was committed before it.
			RemoteStatement probe;
			probe.sql = "SELECT 1 FROM duckdb_schemas() WHERE database_name = current_database() LIMIT 1";
			auto answer = Run(context, probe);
			while (answer->Next(context)) {
			}
		} else {
			catalog.CheckVersion(Budget(context));
		}
		guard.lock();
		fresh_in_statement = true;
	}
	auto shared = catalog.Shared();
	// An old picture is good enough for who only asks whether a name exists: the node checks what is then sent to it.
	if (!shared || (fresh && (shared->Version() != cluster->CatalogVersion() || !cluster->IsOurs()))) {
		guard.unlock();
		shared = LoadSnapshot(context, *this, catalog);
		catalog.SetShared(shared);
		guard.lock();
		fresh_in_statement = true;
	}
	if (kept.empty() || kept.back() != shared) {
		kept.push_back(shared);
	}
	return shared;
}

//===----------------------------------------------------------------------===//
// RemoteTransactionManager
//===----------------------------------------------------------------------===//

RemoteTransactionManager::RemoteTransactionManager(duckdb::AttachedDatabase &db, RemoteCatalog &catalog_p)
    : TransactionManager(db), catalog(catalog_p) {
}

duckdb::Transaction &RemoteTransactionManager::StartTransaction(ClientContext &context) {
	auto transaction = duckdb::make_uniq<RemoteTransaction>(*this, context, catalog);
	auto &result = *transaction;
	std::lock_guard<std::mutex> guard(lock);
	transactions[result] = std::move(transaction);
	return result;
}

ErrorData RemoteTransactionManager::CommitTransaction(ClientContext &context, duckdb::Transaction &transaction) {
	auto error = transaction.Cast<RemoteTransaction>().Commit(context);
	std::lock_guard<std::mutex> guard(lock);
	transactions.erase(transaction);
	return error;
}

void RemoteTransactionManager::RollbackTransaction(duckdb::Transaction &transaction) {
	transaction.Cast<RemoteTransaction>().Rollback();
	std::lock_guard<std::mutex> guard(lock);
	transactions.erase(transaction);
}

void RemoteTransactionManager::Checkpoint(ClientContext &, bool) {
	// Nodes checkpoint on their own; a client's CHECKPOINT has nothing to do here.
}

} // namespace sql
} // namespace quack
