//! Local rows on their way to a remote table: INSERT … SELECT, COPY FROM, CREATE TABLE AS, and the rows that an UPDATE,
//! DELETE or MERGE with local data picked by their row id.
#pragma once

#include <memory>
#include <string>

#include "duckdb.hpp"
#include "duckdb/execution/physical_operator.hpp"

#include "quack/sql/remote_catalog_entry.hpp"

namespace quack {
namespace sql {

//! Streams its input into one statement on a node; emits the count, or the RETURNING rows. The statement's text is
//! `prefix` scan_data_from_quack_client(…) `suffix`.
class PhysicalRemoteInsert : public duckdb::PhysicalOperator {
public:
	static constexpr const duckdb::PhysicalOperatorType TYPE = duckdb::PhysicalOperatorType::EXTENSION;

	PhysicalRemoteInsert(duckdb::PhysicalPlan &plan, duckdb::vector<duckdb::LogicalType> types,
	                     duckdb::idx_t estimated_cardinality, RemoteCatalog &catalog);

	std::string GetName() const override {
		return "QUACK_WRITE";
	}
	duckdb::InsertionOrderPreservingMap<std::string> ParamsToString() const override;

	duckdb::unique_ptr<duckdb::GlobalSinkState> GetGlobalSinkState(duckdb::ClientContext &context) const override;
	duckdb::SinkResultType Sink(duckdb::ExecutionContext &context, duckdb::DataChunk &chunk,
	                            duckdb::OperatorSinkInput &input) const override;
	duckdb::SinkFinalizeType Finalize(duckdb::Pipeline &pipeline, duckdb::Event &event, duckdb::ClientContext &context,
	                                  duckdb::OperatorSinkFinalizeInput &input) const override;
	bool IsSink() const override {
		return true;
	}
	bool SinkOrderDependent() const override {
		return true;
	}
	bool IsSource() const override {
		return true;
	}

	RemoteCatalog &catalog;
	std::shared_ptr<RemoteSnapshot> snapshot; //! keeps the target entry alive
	std::string ddl_before;                   //! CREATE TABLE of a CTAS; "" = none
	std::string target;                       //! "schema"."table", for messages and EXPLAIN
	std::string prefix;                       //! e.g. INSERT INTO t (a) SELECT * FROM
	std::string suffix;                       //! e.g. RETURNING a
	bool returning = false;
	//! Rows are sent when all are known: another piece of the statement uses the same session meanwhile.
	bool deferred = false;
	duckdb::vector<duckdb::idx_t> columns;    //! which input columns are sent
	duckdb::vector<std::string> names;        //! their names in the stream
	duckdb::vector<duckdb::LogicalType> sent; //! their types

protected:
	duckdb::SourceResultType GetDataInternal(duckdb::ExecutionContext &context, duckdb::DataChunk &chunk,
	                                         duckdb::OperatorSourceInput &input) const override;
};

} // namespace sql
} // namespace quack
