//! What a node that is latched out of service still answers: how it is, not what it holds.
#pragma once

#include <string>

#include "quack/sql/server_context.hpp"

namespace quack {
namespace sql {

//! One statement of one session. Its state may be wrong and it follows nobody any more: a latched node answers SELECTs
//! whose tables are all status functions, and takes BEGIN, COMMIT, ROLLBACK and SET with plain values; everything else
//! fails with Degraded. What a status query reaches through a macro or a view is found when it is bound.
class DegradedGate {
public:
	//! `statement` is only read.
	DegradedGate(const ServerContext &server_p, duckdb::SQLStatement &statement);
	//! For what is never a status query.
	explicit DegradedGate(const ServerContext &server_p);

	//! Throws unless the statement is one of the above, or the node is in service. Before it runs, and again before
	//! each of its rows is given away.
	void Check() const;
	//! The same once it is bound: a status query that reads a database after all is refused.
	void CheckBound(const duckdb::StatementProperties &properties) const;
	//! The node is latched and answers this statement: no consistency level may keep it waiting.
	bool IsAnsweredLatched() const;

private:
	bool IsLatched() const;
	[[noreturn]] void Refuse() const;

	const ServerContext &server;
	bool is_allowed = false;
};

} // namespace sql
} // namespace quack
