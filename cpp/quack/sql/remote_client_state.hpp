//! What the client side remembers per DuckDB connection: the running query's text, and how many parameters a statement
//! had before it was replaced by its remote form.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "duckdb.hpp"
#include "duckdb/main/client_context_state.hpp"

namespace duckdb {
class ExtensionLoader;
}

namespace quack {
namespace sql {

class RemoteClientState : public duckdb::ClientContextState {
public:
	static RemoteClientState &Get(duckdb::ClientContext &context);

	//! Whether what is bound now is only planned: no query runs (a relation asks for its columns), or the query is
	//! EXPLAIN, PREPARE, DESCRIBE or CREATE VIEW.
	bool OnlyPlans();
	//! Whether the running query shows the definition of a table: it looks a name up once and asks the node nothing
	//! more.
	bool ShowsDefinitions();
	//! A statement with `count` parameters was pushed as a whole.
	void NotePushed(duckdb::idx_t count);

	//! The planning that fails now is tried once more on the newest schema.
	void RequestRebind();

	//! A write of the running query was committed, whatever becomes of the query.
	void NoteCommitted();
	//! The running query was interrupted, and what became of its write is not known: `error` says so.
	void NoteUnknown(duckdb::ErrorData error);

	void QueryBegin(duckdb::ClientContext &context) override;
	//! An interrupt ends the query on its main thread while another one still finds out about the write; what that one
	//! found is put into the error here.
	void QueryEnd(duckdb::ClientContext &context, duckdb::optional_ptr<duckdb::ErrorData> error) override;
	//! DuckDB counts parameters on the replaced statement, which shows none; the count is put right here.
	bool CanRequestRebind() override {
		return true;
	}
	duckdb::RebindQueryInfo OnPlanningError(duckdb::ClientContext &context, duckdb::SQLStatement &statement,
	                                        duckdb::ErrorData &error) override;
	duckdb::RebindQueryInfo OnFinalizePrepare(duckdb::ClientContext &context, duckdb::PreparedStatementData &prepared,
	                                          duckdb::PreparedStatementMode mode) override;

private:
	std::mutex lock; //! guards all
	bool running = false;
	std::string query_start;
	duckdb::idx_t pushed_parameters = 0;
	bool rebind = false;
	bool committed = false;
	duckdb::ErrorData unknown;
};

//! Adds the state to every connection of the database, open or to come.
void RegisterRemoteClientState(duckdb::ExtensionLoader &loader);

} // namespace sql
} // namespace quack
