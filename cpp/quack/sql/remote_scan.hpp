//! Table functions of the client side: whole statements that run on a node, and scans of one remote table for queries
//! that mix local and remote data.
#pragma once

#include <memory>
#include <string>

#include "duckdb.hpp"
#include "duckdb/function/table_function.hpp"
#include "duckdb/parser/query_node.hpp"
#include "duckdb/parser/sql_statement.hpp"
#include "duckdb/parser/tableref/table_function_ref.hpp"

#include "quack/sql/remote_snapshot.hpp"
#include "quack/sql/remote_transaction.hpp"

namespace quack {
namespace sql {

//! Shape and timing of a pushed statement.
enum class RemoteKind : uint8_t {
	Rows,       //! pure query: runs when bound, the rows are read when executed
	EffectRows, //! has effects and returns rows: described when bound, runs when executed
	Count,      //! DML without RETURNING: one BIGINT row, runs when executed
	Ddl,        //! no rows; runs when executed
};

//! A statement on its way from the pushdown optimizer to the table function, inside this process.
struct RemotePushInfo : public duckdb::TableFunctionInfo {
	RemoteKind kind = RemoteKind::Rows;
	duckdb::DatabaseModificationType modification;
	bool has_effect = false; //! modification is not empty
	std::string schema;
	duckdb::unique_ptr<duckdb::QueryNode> node; //! with parameters; text is made when their values are known
	std::string sql;                            //! when there is no node
	duckdb::vector<std::string> parameter_names;
};

//! `SELECT * FROM <this>` runs the statement in the session's transaction on `catalog`.
duckdb::unique_ptr<duckdb::TableRef> MakeRemoteStatementRef(const std::string &catalog,
                                                            duckdb::shared_ptr<RemotePushInfo> info);

//! The scan of one table or view.
duckdb::TableFunction MakeRemoteScan(RemoteTableEntry &table, RemoteCatalog &catalog,
                                     std::shared_ptr<RemoteSnapshot> snapshot,
                                     duckdb::unique_ptr<duckdb::FunctionData> &bind_data);

void RegisterRemoteFunctions(duckdb::ExtensionLoader &loader);

//! Moves rows of a stream into output chunks of at most STANDARD_VECTOR_SIZE rows, cast to the expected types.
class RemoteChunkReader {
public:
	RemoteChunkReader(duckdb::vector<duckdb::LogicalType> expected, std::string what);
	//! Fills `output`; zero rows at the end.
	void Read(duckdb::ClientContext &context, RemoteStream &stream, duckdb::DataChunk &output);

private:
	const duckdb::vector<duckdb::LogicalType> expected;
	const std::string what;
	duckdb::unique_ptr<duckdb::DataChunk> current;
	duckdb::idx_t offset = 0;
};

} // namespace sql
} // namespace quack
