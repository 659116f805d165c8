#include "quack/sql/admission.hpp"

#include <algorithm>

#include "duckdb/common/string_util.hpp"

namespace quack {
namespace sql {

namespace {

constexpr uint64_t RETRY_AFTER_MS_MIN = 20;
constexpr uint64_t RETRY_AFTER_MS_MAX = 2000;
//! A status query is short; a long text that mentions a status function is an ordinary statement.
constexpr size_t URGENT_TEXT_MAX = 300;

} // namespace

Admission::Admission(AdmissionLimits limits_p) : limits(limits_p) {
}

Status Admission::Enter(bool urgent) {
	auto most = limits.statements_max + (urgent ? limits.statements_reserve : 0);
	auto before = statements.fetch_add(1);
	if (before < most) {
		return Status::Ok();
	}
	statements--;
	statements_refused++;
	return Status(ErrorCode::Overloaded, "the node runs " + std::to_string(before) + " statements, at most " +
	                                         std::to_string(most) + " are taken (statements_max); retry after " +
	                                         std::to_string(RetryAfterMs()) + " ms");
}

void Admission::Leave(MonotonicNs duration) {
	statements--;
	// Updates that cross lose one sample, which does not matter.
	auto mean = mean_duration.load();
	mean_duration = mean + (duration - mean) / 16;
}

bool Admission::EnterRequest(uint64_t bytes) {
	auto before = buffer_bytes.fetch_add(bytes);
	// Alone it is let in however large it is: the limit of one request is another one.
	if (before == 0 || before + bytes <= limits.buffer_bytes_max) {
		return true;
	}
	buffer_bytes -= bytes;
	requests_refused++;
	return false;
}

void Admission::AddBytes(uint64_t bytes) {
	buffer_bytes += bytes;
}

void Admission::RemoveBytes(uint64_t bytes) {
	buffer_bytes -= bytes;
}

uint64_t Admission::RetryAfterMs() const {
	auto mean = static_cast<uint64_t>(std::max<MonotonicNs>(0, mean_duration.load()) / NS_PER_MS);
	return std::clamp(mean, RETRY_AFTER_MS_MIN, RETRY_AFTER_MS_MAX);
}

AdmissionStatus Admission::GetStatus() const {
	AdmissionStatus status;
	status.statements = statements;
	status.statements_refused = statements_refused;
	status.buffer_bytes = buffer_bytes;
	status.requests_refused = requests_refused;
	status.retry_after_ms = RetryAfterMs();
	return status;
}

bool IsUrgentText(const std::string &sql) {
	if (sql.size() > URGENT_TEXT_MAX) {
		return false;
	}
	auto text = duckdb::StringUtil::Lower(sql);
	duckdb::StringUtil::Trim(text);
	for (auto start : {"commit", "rollback", "abort", "end"}) {
		if (duckdb::StringUtil::StartsWith(text, start)) {
			return true;
		}
	}
	bool asks_node = duckdb::StringUtil::StartsWith(text, "select") || duckdb::StringUtil::StartsWith(text, "from");
	for (auto name : {"quack_raft_status(", "quack_peers(", "quack_sessions(", "quack_node_statistics(",
	                  "quack_connection_refusals(", "quack_transaction_outcome(", "quack_open_transactions(",
	                  "quack_snapshot_transfers("}) {
		if (asks_node && duckdb::StringUtil::Contains(text, name)) {
			return true;
		}
	}
	return false;
}

} // namespace sql
} // namespace quack
