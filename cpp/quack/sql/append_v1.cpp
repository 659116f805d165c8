#include "quack/sql/append_v1.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/common/types/column/column_data_collection.hpp"
#include "duckdb/main/table_description.hpp"
#include "quack/sql/degraded_gate.hpp"
#include "quack/sql/statement_runner.hpp"

namespace quack {
namespace sql {

namespace {

void Append(Session &session, AppendRequest &request) {
	auto &connection = session.Connection();
	auto schema = duckdb::Identifier(request.schema.empty() ? std::string(DEFAULT_SCHEMA) : request.schema);
	auto table = duckdb::Identifier(request.table);
	auto &catalog = session.Context().catalog;
	auto description = catalog.empty() ? connection.TableInfo(schema, table)
	                                   : connection.TableInfo(duckdb::Identifier(catalog), schema, table);
	if (!description) {
		throw duckdb::CatalogException("Table \"%s.%s\" does not exist", request.schema, request.table);
	}
	if (!request.chunk || request.chunk->size() == 0) {
		return;
	}
	duckdb::ColumnDataCollection rows(duckdb::Allocator::DefaultAllocator(), request.chunk->GetTypes());
	rows.Append(*request.chunk);
	connection.Append(*description, rows);
}

} // namespace

void RunAppend(Session &session, QueryExecution &execution, AppendRequest &request) {
	catalog::RequestId request_id {};
	try {
		AttemptWalk walk(execution.options.request_id, session.Context().replica);
		request_id = walk.Id();
		PrepareAttempt(session, execution.options, walk);
		DegradedGate(session.Context()).Check();
		Append(session, request);
		execution.SetSchema({duckdb::LogicalType::BOOLEAN}, {"Success"});
		execution.Finish();
	} catch (std::exception &exception) {
		execution.Fail(ExplainFailure(session, execution, duckdb::ErrorData(exception), request_id));
	}
}

} // namespace sql
} // namespace quack
