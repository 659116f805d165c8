#include <algorithm>

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_entry/schema_catalog_entry.hpp"
#include "duckdb/catalog/catalog_entry/sequence_catalog_entry.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection.hpp"
#include "duckdb/parser/parsed_data/create_sequence_info.hpp"
#include "duckdb/storage/data_table.hpp"
#include "duckdb/storage/table/scan_state.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "quack/catalog/capture.hpp"
#include "quack/catalog/equality_audit.hpp"
#include "quack/catalog/query_rows.hpp"
#include "quack/catalog/replica_core.hpp"
#include "quack/catalog/row_image.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::CatalogType;

//! Hashes all objects of the catalog inside one open transaction.
class StateHasher {
public:
	StateHasher(duckdb::ClientContext &context_p, duckdb::AttachedDatabase &database_p)
	    : context(context_p), database(database_p) {
	}

	std::vector<ObjectHash> Run() {
		auto &catalog = database.GetCatalog();
		catalog.ScanSchemas(context, [&](duckdb::SchemaCatalogEntry &schema) {
			if (!(schema.GetSchemaPath()[0] == duckdb::Identifier(META_SCHEMA))) {
				HashSchema(schema);
			}
		});
		std::sort(result.begin(), result.end(), [](const ObjectHash &a, const ObjectHash &b) {
			return std::tie(a.schema, a.type, a.object) < std::tie(b.schema, b.type, b.object);
		});
		return std::move(result);
	}

private:
	void HashSchema(duckdb::SchemaCatalogEntry &schema) {
		AddDefinition(schema, "schema", "");
		Scan(schema, CatalogType::TABLE_ENTRY);
		Scan(schema, CatalogType::INDEX_ENTRY);
		Scan(schema, CatalogType::SEQUENCE_ENTRY);
		Scan(schema, CatalogType::TYPE_ENTRY);
		Scan(schema, CatalogType::MACRO_ENTRY);
		Scan(schema, CatalogType::TABLE_MACRO_ENTRY);
	}

	void Scan(duckdb::SchemaCatalogEntry &schema, CatalogType type) {
		schema.Scan(context, type, [&](duckdb::CatalogEntry &entry) {
			if (entry.internal) {
				return;
			}
			switch (entry.type) {
			case CatalogType::TABLE_ENTRY:
				HashTable(entry.Cast<duckdb::DuckTableEntry>());
				break;
			case CatalogType::SEQUENCE_ENTRY:
				AddDefinition(entry, "sequence", SequenceDefinition(entry.Cast<duckdb::SequenceCatalogEntry>()));
				break;
			default:
				AddDefinition(entry, duckdb::StringUtil::Lower(duckdb::CatalogTypeToString(entry.type)),
				              entry.GetInfo()->ToString());
				break;
			}
		});
	}

	//! Without the counter: it runs ahead on a node that drew values for a transaction that did not commit.
	static std::string SequenceDefinition(const duckdb::SequenceCatalogEntry &sequence) {
		auto data = sequence.GetData();
		return std::to_string(data.increment) + "," + std::to_string(data.min_value) + "," +
		       std::to_string(data.max_value) + "," + (data.cycle ? "cycle" : "");
	}

	static std::string CommentAndTags(const duckdb::CatalogEntry &entry) {
		auto text = "\n" + entry.comment.ToSQLString();
		for (auto &tag : entry.tags) {
			text += "\n" + tag.first + "=" + tag.second;
		}
		return text;
	}

	ObjectHash Describe(const duckdb::CatalogEntry &entry, const std::string &type) {
		auto name = NameOf(entry);
		ObjectHash row;
		for (auto &part : name.schema) {
			row.schema += (row.schema.empty() ? "" : ".") + part;
		}
		row.object = name.name;
		row.type = type;
		return row;
	}

	void AddDefinition(const duckdb::CatalogEntry &entry, const std::string &type, const std::string &definition) {
		auto row = Describe(entry, type);
		row.hash = HashBytes(type + "\n" + definition + CommentAndTags(entry)).ToString();
		result.push_back(std::move(row));
	}

	void HashTable(duckdb::DuckTableEntry &table) {
		auto row = Describe(table, "table");
		auto definition = table.ToSQL() + CommentAndTags(table);
		for (auto &column : table.GetColumns().Logical()) {
			definition += "\n" + column.Type().ToString() + " " + column.Comment().ToSQLString();
		}
		auto sum = HashBytes(definition);
		auto &storage = table.GetStorage();
		auto types = storage.GetTypes();
		duckdb::vector<duckdb::StorageIndex> columns;
		for (duckdb::idx_t i = 0; i < types.size(); i++) {
			columns.emplace_back(i);
		}
		auto &transaction = duckdb::DuckTransaction::Get(context, database);
		duckdb::TableScanState state;
		storage.InitializeScan(context, transaction, state, columns);
		duckdb::DataChunk chunk;
		chunk.Initialize(duckdb::Allocator::DefaultAllocator(), types);
		std::string image;
		for (;;) {
			chunk.Reset();
			storage.Scan(transaction, chunk, state);
			if (chunk.size() == 0) {
				break;
			}
			context.InterruptCheck();
			RowImages images(chunk, types.size());
			for (duckdb::idx_t i = 0; i < chunk.size(); i++) {
				image.clear();
				images.Append(i, image);
				sum.Add(HashBytes(image));
			}
			row.rows += chunk.size();
		}
		row.hash = sum.ToString();
		result.push_back(std::move(row));
	}

	duckdb::ClientContext &context;
	duckdb::AttachedDatabase &database;
	std::vector<ObjectHash> result;
};

} // namespace

std::vector<ObjectHash> HashState(duckdb::Connection &connection, duckdb::AttachedDatabase &database) {
	std::vector<ObjectHash> rows;
	connection.context->RunFunctionInTransaction([&]() { rows = StateHasher(*connection.context, database).Run(); });
	return rows;
}

Result<std::vector<ObjectHash>> ReplicatedDatabase::StateHash() {
	try {
		auto database = core->Attached();
		if (!database) {
			return Status(ErrorCode::Unavailable, "the catalog is not attached");
		}
		duckdb::Connection connection(core->instance);
		SessionState::Get(*connection.context).SetConsistency(Consistency::Eventual);
		connection.BeginTransaction();
		auto applied = QueryRows(connection, "SELECT coalesce(max(idx), 0) FROM cp.__quack.entries WHERE group_id = " +
		                                         std::to_string(raft::ROOT_GROUP));
		auto rows = HashState(connection, *database);
		connection.Rollback();
		for (auto &row : rows) {
			row.applied_index = applied[0][0].GetValue<uint64_t>();
		}
		return rows;
	} catch (std::exception &exception) {
		return Status(ErrorCode::Internal, duckdb::ErrorData(exception).Message());
	}
}

} // namespace catalog
} // namespace quack
