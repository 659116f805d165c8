//! What a failed or interrupted request means, and how its outcome is found out.
#include <thread>

#include "duckdb/common/exception/transaction_exception.hpp"
#include "duckdb/main/client_context.hpp"

#include "quack/sql/remote_client_state.hpp"
#include "quack/sql/remote_transaction.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;
using duckdb::TransactionException;

//! How long an interrupted write may take to find out what became of it.
constexpr uint64_t SETTLE_TIMEOUT_MS = 3000;

[[noreturn]] static void ThrowUnknown(const std::string &what, const std::string &reason, const std::string &id) {
	duckdb::unordered_map<std::string, std::string> extra_info;
	extra_info[EXTRA_INFO_CODE] = ErrorCodeName(ErrorCode::OutcomeUnknown);
	extra_info[EXTRA_INFO_TOKEN] = id;
	throw duckdb::Exception(extra_info, duckdb::ExceptionType::TRANSACTION,
	                        "outcome unknown: " + what +
	                            " was sent, but no node told what became of it (last: " + reason +
	                            "). It may have been committed; before repeating it, ask SELECT * FROM "
	                            "quack_transaction_outcome('<catalog>', '" +
	                            id + "')" + CodeTag(ErrorCode::OutcomeUnknown));
}

void RemoteTransaction::ThrowFailure(const Attempt &attempt, const std::string &what,
                                     const RemoteRequestId &request_id) {
	auto reason = attempt.is_error ? attempt.error.message : attempt.transport.Message();
	if (request_id.unknown) {
		ThrowUnknown(what, reason, request_id.text);
	}
	if (attempt.transport.Code() == ErrorCode::Cancelled) {
		throw duckdb::InterruptException();
	}
	if (attempt.is_error) {
		auto error = attempt.error;
		auto code = CodeOf(error);
		if (!code.empty()) {
			error.message += " [quack:" + code + "]";
		}
		ThrowErrorResponse(error);
	}
	auto code = attempt.transport.Code();
	if (code == ErrorCode::Unauthorized) {
		throw duckdb::PermissionException("%s%s", reason, CodeTag(code));
	}
	if (code == ErrorCode::InvalidArgument) {
		throw duckdb::CatalogException("%s", reason);
	}
	if (code == ErrorCode::Incompatible) {
		throw duckdb::IOException("%s%s", reason, CodeTag(code));
	}
	throw duckdb::IOException("%s could not be sent, nothing was done: %s%s", what, reason,
	                          CodeTag(ErrorCode::Unavailable));
}

//! What the cluster says became of a request: committed, not_committed, or unknown.
static std::string AskOutcome(RemoteCluster &cluster, const std::string &request_id, const RemoteBudget &budget,
                              std::string &detail) {
	RemoteStatement ask;
	ask.sql = "SELECT outcome, message FROM quack_transaction_outcome('" + request_id + "')";
	ask.consistency = "eventual";
	while (!budget.Expired() && !budget.Interrupted()) {
		auto acquired = cluster.Acquire(budget);
		if (!acquired.IsOk()) {
			detail = acquired.GetStatus().Message();
			break;
		}
		auto &session = acquired.Value();
		ask.schema = session->search_schema;
		auto attempt = RemoteTransaction::TryPrepare(cluster, *session, ask, RemoteRequestId(),
		                                             RemoteCluster::RandomUuid(), duckdb::optional_idx(), budget);
		if (!attempt.transport.IsOk() || attempt.is_error) {
			detail = attempt.is_error ? attempt.error.message : attempt.transport.Message();
			cluster.Discard(session);
			cluster.MoveOn(session->endpoint);
			std::this_thread::sleep_for(std::chrono::milliseconds(20));
			continue;
		}
		cluster.Release(session);
		for (auto &chunk : attempt.response.chunks) {
			if (chunk->size() > 0) {
				detail = chunk->GetValue(1, 0).ToString();
				return chunk->GetValue(0, 0).ToString();
			}
		}
	}
	return "unknown";
}

void RemoteTransaction::SettleInterrupted(ClientContext &context, RemoteCluster &cluster, const std::string &what,
                                          const RemoteRequestId &request_id) {
	if (!request_id.unknown) {
		throw duckdb::InterruptException();
	}
	std::string detail = "interrupted";
	auto outcome = AskOutcome(cluster, request_id.text, RemoteBudget::ForMs(SETTLE_TIMEOUT_MS), detail);
	if (outcome == "not_committed") {
		throw duckdb::InterruptException();
	}
	if (outcome != "committed") {
		try {
			ThrowUnknown(what, detail, request_id.text);
		} catch (std::exception &error) {
			RemoteClientState::Get(context).NoteUnknown(duckdb::ErrorData(error));
			throw;
		}
	}
	NoteCommitted(context);
}

void RemoteTransaction::NoteCommitted(ClientContext &context) {
	RemoteClientState::Get(context).NoteCommitted();
	context.SuppressInterrupts();
}

void RemoteTransaction::CommitElsewhere(ClientContext &context, const RemoteRequestId &request_id,
                                        const RemoteBudget &budget, const std::string &reason) {
	auto detail = reason;
	auto outcome = AskOutcome(*cluster, request_id.text, budget, detail);
	if (outcome == "committed") {
		return;
	}
	if (outcome == "not_committed") {
		throw TransactionException("the node was lost before the transaction was committed (%s); it was rolled back "
		                           "(%s). Run it again%s",
		                           reason, detail, CodeTag(ErrorCode::Unavailable));
	}
	if (budget.Interrupted()) {
		SettleInterrupted(context, *cluster, "the transaction", request_id);
		return;
	}
	ThrowUnknown("COMMIT", detail, request_id.text);
}

} // namespace sql
} // namespace quack
