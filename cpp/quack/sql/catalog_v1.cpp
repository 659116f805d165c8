#include "quack/sql/catalog_v1.hpp"

#include <cctype>

namespace quack {
namespace sql {

namespace {

constexpr const char *TABLES_QUERY = "SELECT schema_name, sql, 'table' FROM duckdb_tables() UNION ALL "
                                     "SELECT schema_name, view_name, 'view' FROM duckdb_views()";

//! Only what the catalog of the session's own database holds; the node's bookkeeping is not shown.
constexpr const char *PLAIN_TABLES_QUERY = R"SQL(
SELECT c.schema_name,
       'CREATE TABLE "' || replace(c.table_name, '"', '""') || '"(' ||
       string_agg('"' || replace(c.column_name, '"', '""') || '" ' || c.data_type ||
                  CASE WHEN c.is_nullable THEN '' ELSE ' NOT NULL' END ||
                  CASE WHEN regexp_full_match(c.column_default, '-?[0-9]+(\.[0-9]+)?|''([^'']|'''')*''|true|false')
                       THEN ' DEFAULT ' || c.column_default ELSE '' END,
                  ', ' ORDER BY c.column_index) || ');',
       'table'
FROM duckdb_columns() c
JOIN duckdb_tables() t USING (database_oid, schema_oid, table_oid)
WHERE c.database_name = current_database() AND NOT t.temporary AND c.schema_name <> '__quack'
GROUP BY c.schema_name, c.table_name
UNION ALL
SELECT schema_name, view_name, 'view' FROM duckdb_views()
WHERE database_name = current_database() AND NOT internal
)SQL";

std::string WithSingleBlanks(const std::string &sql) {
	std::string result;
	for (auto c : sql) {
		if (std::isspace(static_cast<unsigned char>(c)) == 0) {
			result.push_back(c);
		} else if (!result.empty() && result.back() != ' ') {
			result.push_back(' ');
		}
	}
	while (!result.empty() && result.back() == ' ') {
		result.pop_back();
	}
	return result;
}

} // namespace

std::string RewriteCatalogQueryV1(const std::string &sql) {
	return WithSingleBlanks(sql) == TABLES_QUERY ? PLAIN_TABLES_QUERY : sql;
}

} // namespace sql
} // namespace quack
