#include "quack/sql/remote_catalog_entry.hpp"

#include "duckdb/catalog/catalog_search_path.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/parsed_data/create_schema_info.hpp"
#include "duckdb/parser/parsed_data/drop_info.hpp"
#include "duckdb/parser/statement/drop_statement.hpp"
#include "duckdb/parser/tableref/table_function_ref.hpp"
#include "duckdb/storage/database_size.hpp"

#include "quack/sql/remote_classify.hpp"
#include "quack/sql/remote_client_state.hpp"
#include "quack/sql/remote_entries.hpp"
#include "quack/sql/remote_scan.hpp"
#include "quack/sql/remote_transaction.hpp"

namespace quack {
namespace sql {

using duckdb::CatalogTransaction;
using duckdb::ClientContext;
using duckdb::Identifier;
using duckdb::optional_ptr;
using duckdb::RemoteCapability;

RemoteCatalog::RemoteCatalog(duckdb::AttachedDatabase &db, std::shared_ptr<RemoteCluster> cluster_p, std::string path_p)
    : Catalog(db), cluster(std::move(cluster_p)), path(std::move(path_p)) {
}

RemoteCatalog::~RemoteCatalog() {
	cluster->Shutdown();
}

void RemoteCatalog::OnDetach(ClientContext &) {
	cluster->Shutdown();
}

duckdb::optional_idx RemoteCatalog::GetCatalogVersion(ClientContext &) {
	return cluster->CatalogVersion();
}

duckdb::DatabaseSize RemoteCatalog::GetDatabaseSize(ClientContext &) {
	duckdb::DatabaseSize size;
	size.free_blocks = 0;
	size.total_blocks = 0;
	size.used_blocks = 0;
	size.wal_size = 0;
	size.block_size = 0;
	size.bytes = 0;
	return size;
}

duckdb::optional<Identifier> RemoteCatalog::GetDefaultSchema() const {
	return Identifier::DefaultSchema();
}

std::shared_ptr<RemoteSnapshot> RemoteCatalog::Shared() {
	std::lock_guard<std::mutex> guard(lock);
	return shared;
}

void RemoteCatalog::SetShared(std::shared_ptr<RemoteSnapshot> snapshot) {
	std::lock_guard<std::mutex> guard(lock);
	shared = std::move(snapshot);
}

void RemoteCatalog::CheckVersion(const RemoteBudget &budget) {
	uint64_t version = 0;
	while (true) {
		auto acquired = cluster->Acquire(budget);
		if (!acquired.IsOk()) {
			RemoteTransaction::Attempt attempt;
			attempt.transport = acquired.GetStatus();
			RemoteTransaction::ThrowFailure(attempt, "the request for the schema version");
		}
		auto &session = acquired.Value();
		MessageHeader header;
		header.connection_id = session->connection_id;
		RemoteRequest request;
		request.body = EncodeEmpty(header, MessageType::HeartbeatRequest);
		auto reply = cluster->Exchange(*session, request, budget);
		if (reply.IsOk() && !reply.Value().IsSessionLost()) {
			cluster->Release(session);
			(void)version;
			return;
		}
		if (!reply.IsOk() && reply.GetStatus().Code() == ErrorCode::Cancelled) {
			throw duckdb::InterruptException();
		}
		if (!reply.IsOk()) {
			cluster->MoveOn(session->endpoint);
		}
	}
}

//===----------------------------------------------------------------------===//
// Schemas
//===----------------------------------------------------------------------===//

optional_ptr<duckdb::SchemaCatalogEntry> RemoteCatalog::LookupSchema(CatalogTransaction transaction,
                                                                     const duckdb::EntryLookupInfo &schema_lookup,
                                                                     duckdb::OnEntryNotFound if_not_found) {
	auto &name = schema_lookup.GetEntryName();
	optional_ptr<RemoteSchemaEntry> result;
	if (transaction.HasContext()) {
		auto &context = transaction.GetContext();
		auto &remote = RemoteTransaction::Get(context, *this);
		auto wanted = name.empty() ? Identifier::DefaultSchema().GetIdentifierName() : name;
		result = remote.Snapshot(context, false)->FindSchema(wanted);
		if (!result) {
			result = remote.Snapshot(context, true)->FindSchema(wanted);
		}
	}
	if (!result && if_not_found != duckdb::OnEntryNotFound::RETURN_NULL) {
		throw duckdb::CatalogException(schema_lookup.GetErrorContext(), "Schema with name \"%s\" does not exist!",
		                               name);
	}
	return result.get();
}

void RemoteCatalog::ScanSchemas(ClientContext &context, std::function<void(duckdb::SchemaCatalogEntry &)> callback) {
	RemoteTransaction::Get(context, *this).Snapshot(context, true)->ScanSchemas(callback);
}

optional_ptr<duckdb::CatalogEntry> RemoteCatalog::CreateSchema(CatalogTransaction transaction,
                                                               duckdb::CreateSchemaInfo &info) {
	auto &context = transaction.GetContext();
	auto copy = info.Copy();
	copy->StripCatalogQualification();
	ExecuteDdl(context, copy->ToString());
	auto name = info.SchemaName().GetIdentifierName();
	return RemoteTransaction::Get(context, *this).Snapshot(context, true)->FindSchema(name).get();
}

void RemoteCatalog::DropSchema(ClientContext &context, duckdb::DropInfo &info) {
	duckdb::DropStatement statement;
	statement.info = info.Copy();
	statement.info->SetQualifiedName(statement.info->GetQualifiedName().WithCatalog(Identifier()));
	ExecuteDdl(context, statement.ToString());
}

void RemoteCatalog::ExecuteDdl(ClientContext &context, const std::string &sql) {
	RemoteStatement statement;
	statement.sql = sql;
	statement.effect = true;
	statement.ddl = true;
	auto stream = RemoteTransaction::Get(context, *this).Run(context, statement);
	while (stream->Next(context)) {
	}
}

std::string RemoteCatalog::SearchSchema(ClientContext &context) {
	for (auto &entry : duckdb::ClientData::Get(context).catalog_search_path->Get()) {
		if (entry.GetCatalog() == GetName()) {
			auto schema = entry.GetSchema().GetIdentifierName();
			return schema == Identifier::DefaultSchema().GetIdentifierName() ? "" : schema;
		}
	}
	return "";
}

//===----------------------------------------------------------------------===//
// Pushdown
//===----------------------------------------------------------------------===//

duckdb::ErrorData RemoteCatalog::SupportsCreateTable(duckdb::BoundCreateTableInfo &) {
	return duckdb::ErrorData();
}

bool RemoteCatalog::Supports(RemoteCapability capability) const {
	return capability == RemoteCapability::IS_REMOTE || capability == RemoteCapability::EXECUTE_QUERY_NODE ||
	       capability == RemoteCapability::EXECUTE_STATEMENT;
}

duckdb::unique_ptr<duckdb::TableRef> RemoteCatalog::RemoteExecute(ClientContext &context,
                                                                  duckdb::unique_ptr<duckdb::QueryNode> node) {
	auto info = duckdb::make_shared_ptr<RemotePushInfo>();
	ClassifyNode(*node, GetName().GetIdentifierName(), *info);
	RemoteClientState::Get(context).NotePushed(info->parameter_names.size());
	info->schema = SearchSchema(context);
	info->node = std::move(node);
	return MakeRemoteStatementRef(GetName().GetIdentifierName(), std::move(info));
}

duckdb::unique_ptr<duckdb::TableRef> RemoteCatalog::RemoteExecute(ClientContext &context,
                                                                  duckdb::unique_ptr<duckdb::SQLStatement> statement) {
	auto info = duckdb::make_shared_ptr<RemotePushInfo>();
	ClassifyStatement(*statement, *info);
	info->schema = SearchSchema(context);
	info->sql = statement->ToString();
	return MakeRemoteStatementRef(GetName().GetIdentifierName(), std::move(info));
}

duckdb::unique_ptr<duckdb::TableRef> RemoteCatalog::RemoteExecute(ClientContext &context, const std::string &sql) {
	auto info = duckdb::make_shared_ptr<RemotePushInfo>();
	info->sql = sql;
	ClassifyText(context, *info);
	return MakeRemoteStatementRef(GetName().GetIdentifierName(), std::move(info));
}

bool RemoteCatalog::SupportsPushdown(const duckdb::ParsedExpression &expression) {
	if (expression.GetExpressionClass() != duckdb::ExpressionClass::FUNCTION) {
		return true;
	}
	// A function someone created in this session (a Python UDF) does not exist on the node. DuckDB keeps no mark of
	// that; but such functions are younger than ours and belong to no extension.
	auto &function = expression.Cast<duckdb::FunctionExpression>();
	auto &system = duckdb::Catalog::GetSystemCatalog(GetDatabase());
	auto transaction = CatalogTransaction::GetSystemTransaction(GetDatabase());
	auto schema = system.GetSchema(transaction, Identifier::DefaultSchema(), duckdb::OnEntryNotFound::RETURN_NULL);
	auto type = duckdb::CatalogType::SCALAR_FUNCTION_ENTRY;
	auto entry = schema ? schema->GetEntry(transaction, type, function.FunctionName()) : nullptr;
	auto ours = schema ? schema->GetEntry(transaction, type, Identifier(SERVER_DEFAULT_FUNCTION)) : nullptr;
	if (!entry || !ours || entry->oid <= ours->oid) {
		return true;
	}
	return !entry->extension_name.empty();
}

bool RemoteCatalog::SupportsPushdown(const duckdb::TableRef &ref) {
	if (ref.type != duckdb::TableReferenceType::TABLE_FUNCTION) {
		return true;
	}
	auto &function = *ref.Cast<duckdb::TableFunctionRef>().function;
	if (function.GetExpressionClass() != duckdb::ExpressionClass::FUNCTION) {
		return true;
	}
	return function.Cast<duckdb::FunctionExpression>().FunctionName() != Identifier("query");
}

optional_ptr<RemoteCatalog> FindRemoteCatalog(ClientContext &context, const std::string &name) {
	auto database = duckdb::DatabaseManager::Get(context).GetDatabase(context, Identifier(name));
	if (!database || database->GetCatalog().IsDuckCatalog() ||
	    database->GetCatalog().GetCatalogType() != RemoteCatalog::TYPE) {
		return nullptr;
	}
	return dynamic_cast<RemoteCatalog *>(&database->GetCatalog());
}

} // namespace sql
} // namespace quack
