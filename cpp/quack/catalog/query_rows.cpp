#include "quack/catalog/query_rows.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/connection.hpp"
#include "duckdb/main/query_result.hpp"

namespace quack {
namespace catalog {
namespace {

void Complete(duckdb::QueryResult &result) {
	if (!result.HasError()) {
		result.Complete();
	}
	if (result.HasError()) {
		result.GetErrorObject().Throw();
	}
}

} // namespace

std::vector<SqlRow> QueryRows(duckdb::Connection &connection, const std::string &sql) {
	auto result = connection.Query(sql);
	Complete(*result);
	std::vector<SqlRow> rows;
	while (auto chunk = result->Fetch()) {
		for (duckdb::idx_t i = 0; i < chunk->size(); i++) {
			SqlRow row;
			for (duckdb::idx_t c = 0; c < chunk->ColumnCount(); c++) {
				row.push_back(chunk->GetValue(c, i));
			}
			rows.push_back(std::move(row));
		}
	}
	return rows;
}

void RunStatement(duckdb::Connection &connection, duckdb::unique_ptr<duckdb::SQLStatement> statement) {
	auto result = connection.Query(std::move(statement));
	Complete(*result);
}

std::string SqlString(const std::string &text) {
	return "'" + duckdb::StringUtil::Replace(text, "'", "''") + "'";
}

} // namespace catalog
} // namespace quack
