#include "quack/sql/degraded_gate.hpp"

#include "quack/sql/sql_error.hpp"
#include "quack/sql/status_query.hpp"

namespace quack {
namespace sql {

DegradedGate::DegradedGate(const ServerContext &server_p, duckdb::SQLStatement &statement)
    : server(server_p), is_allowed(statement.type == duckdb::StatementType::TRANSACTION_STATEMENT ||
	                               ReadsOnlyStatus(statement) || SetsPlainValue(statement)) {
}

DegradedGate::DegradedGate(const ServerContext &server_p) : server(server_p) {
}

void DegradedGate::Check() const {
	if (!is_allowed && IsLatched()) {
		Refuse();
	}
}

void DegradedGate::CheckBound(const duckdb::StatementProperties &properties) const {
	bool is_plain = is_allowed && properties.read_databases.empty() && properties.modified_databases.empty();
	if (!is_plain && IsLatched()) {
		Refuse();
	}
}

bool DegradedGate::IsAnsweredLatched() const {
	return is_allowed && IsLatched();
}

bool DegradedGate::IsLatched() const {
	return server.engine != nullptr && server.engine->IsDegraded();
}

void DegradedGate::Refuse() const {
	ThrowCoded(Status(ErrorCode::Degraded, "node '" + server.node_id +
	                                           "' is out of service: " + server.engine->GetStatus().front().reason +
	                                           "; it answers only its status functions, like quack_raft_status()"));
}

} // namespace sql
} // namespace quack
