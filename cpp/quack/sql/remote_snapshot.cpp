#include "quack/sql/remote_snapshot.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/parsed_data/create_schema_info.hpp"

namespace quack {
namespace sql {

using duckdb::Identifier;
using duckdb::ListValue;
using duckdb::StringUtil;
using duckdb::Value;

RemoteSnapshot::RemoteSnapshot(duckdb::Catalog &catalog_p, uint64_t version_p)
    : catalog(catalog_p), version(version_p) {
}

const char *RemoteSnapshot::Query() {
	return R"sql(
WITH cols AS (
  SELECT schema_name, table_name, list(column_name ORDER BY column_index) AS names,
         list(data_type ORDER BY column_index) AS types, list("comment" ORDER BY column_index) AS comments
  FROM duckdb_columns() WHERE database_name = current_database() GROUP BY ALL)
SELECT 'schema' AS kind, schema_name, '' AS name, '' AS sql, comment, NULL::VARCHAR[] AS names, NULL::VARCHAR[] AS types,
       0::UBIGINT AS estimated_rows, NULL::VARCHAR[] AS comments
FROM duckdb_schemas()
WHERE database_name = current_database() AND schema_name NOT IN ('information_schema', 'pg_catalog', '__quack')
UNION ALL
SELECT 'table', t.schema_name, t.table_name, t.sql, t.comment, c.names, c.types, t.estimated_size::UBIGINT, c.comments
FROM duckdb_tables() t LEFT JOIN cols c USING (schema_name, table_name)
WHERE t.database_name = current_database() AND t.schema_name <> '__quack'
UNION ALL
SELECT 'view', v.schema_name, v.view_name, v.sql, v.comment, c.names, c.types, 0, c.comments
FROM duckdb_views() v LEFT JOIN cols c ON c.schema_name = v.schema_name AND c.table_name = v.view_name
WHERE v.database_name = current_database() AND NOT v.internal
UNION ALL
SELECT 'index', schema_name, index_name, sql, comment, [table_name], NULL, 0, NULL
FROM duckdb_indexes() WHERE database_name = current_database() AND sql IS NOT NULL
UNION ALL
SELECT 'sequence', schema_name, sequence_name, sql, comment, NULL, NULL, 0, NULL
FROM duckdb_sequences() WHERE database_name = current_database()
UNION ALL
SELECT 'type', schema_name, type_name, logical_type, comment, labels, NULL, 0, NULL
FROM duckdb_types() WHERE database_name = current_database() AND NOT internal
UNION ALL
SELECT function_type, schema_name, function_name, macro_definition, comment, parameters, NULL, 0, NULL
FROM duckdb_functions() WHERE database_name = current_database() AND NOT internal
  AND function_type IN ('macro', 'table_macro')
)sql";
}

static std::vector<std::string> TextList(const Value &value) {
	std::vector<std::string> result;
	if (!value.IsNull()) {
		for (auto &child : ListValue::GetChildren(value)) {
			result.push_back(child.IsNull() ? "" : child.ToString());
		}
	}
	return result;
}

void RemoteSnapshot::AddRows(duckdb::DataChunk &chunk) {
	if (chunk.ColumnCount() != 9) {
		throw duckdb::IOException("the node answered the schema query with %llu columns, expected 9",
		                          static_cast<unsigned long long>(chunk.ColumnCount()));
	}
	for (duckdb::idx_t row = 0; row < chunk.size(); row++) {
		RemoteObject object;
		object.kind = chunk.GetValue(0, row).ToString();
		auto schema_name = chunk.GetValue(1, row).ToString();
		object.name = chunk.GetValue(2, row).ToString();
		auto sql = chunk.GetValue(3, row);
		object.sql = sql.IsNull() ? "" : sql.ToString();
		auto comment = chunk.GetValue(4, row);
		object.has_comment = !comment.IsNull();
		object.comment = object.has_comment ? comment.ToString() : "";
		object.column_names = TextList(chunk.GetValue(5, row));
		object.column_types = TextList(chunk.GetValue(6, row));
		object.column_comments = TextList(chunk.GetValue(8, row));
		auto estimate = chunk.GetValue(7, row);
		object.estimated_rows = estimate.IsNull() ? 0 : estimate.GetValue<uint64_t>();
		if (object.kind == "schema") {
			EnsureSchema(schema_name, object.comment, object.has_comment);
		} else {
			EnsureSchema(schema_name, "", false).AddObject(std::move(object));
		}
	}
}

RemoteSchemaEntry &RemoteSnapshot::EnsureSchema(const std::string &name, const std::string &comment, bool has_comment) {
	auto &slot = schemas[StringUtil::Lower(name)];
	if (!slot) {
		duckdb::CreateSchemaInfo info;
		info.SetQualifiedName(duckdb::QualifiedName(catalog.GetName(), Identifier(name), Identifier()));
		slot = duckdb::make_uniq<RemoteSchemaEntry>(catalog, info);
	}
	if (has_comment) {
		slot->comment = Value(comment);
	}
	return *slot;
}

duckdb::optional_ptr<RemoteSchemaEntry> RemoteSnapshot::FindSchema(const std::string &name) {
	auto entry = schemas.find(StringUtil::Lower(name));
	return entry == schemas.end() ? nullptr : entry->second.get();
}

void RemoteSnapshot::ScanSchemas(const std::function<void(duckdb::SchemaCatalogEntry &)> &callback) {
	for (auto &entry : schemas) {
		callback(*entry.second);
	}
}

} // namespace sql
} // namespace quack
