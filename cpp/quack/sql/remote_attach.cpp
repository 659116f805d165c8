//! Registration of the client side and the ATTACH callback.
#include "quack/sql/remote_catalog.hpp"

#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/parser/parsed_data/attach_info.hpp"
#include "duckdb/storage/storage_extension.hpp"

#include "quack/sql/remote_catalog_entry.hpp"
#include "quack/sql/remote_classify.hpp"
#include "quack/sql/remote_client_state.hpp"
#include "quack/sql/remote_options.hpp"
#include "quack/sql/remote_scan.hpp"
#include "quack/sql/remote_transaction.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;

static duckdb::unique_ptr<duckdb::Catalog> AttachRemote(duckdb::optional_ptr<duckdb::StorageExtensionInfo>,
                                                        ClientContext &context, duckdb::AttachedDatabase &db,
                                                        const std::string &, duckdb::AttachInfo &info,
                                                        duckdb::AttachOptions &options) {
	auto parsed = ParseRemoteOptions(context, info.path, options);
	auto timeout_ms = parsed.request_timeout_ms == 0 ? DEFAULT_REQUEST_TIMEOUT_MS : parsed.request_timeout_ms;
	auto cluster = RemoteCluster::Create(std::move(parsed), duckdb::DuckDB::Platform());
	// One session proves address, certificate and token; the schema is loaded when first needed.
	auto budget = RemoteBudget::ForMs(timeout_ms, [&context] { return context.IsInterrupted(); });
	auto session = cluster->Acquire(budget, true);
	if (!session.IsOk()) {
		auto &status = session.GetStatus();
		cluster->Shutdown();
		if (status.Code() == ErrorCode::Cancelled) {
			throw duckdb::InterruptException();
		}
		auto text = status.Message() + CodeTag(status.Code());
		if (status.Code() == ErrorCode::Unauthorized) {
			throw duckdb::PermissionException("%s", text);
		}
		throw duckdb::IOException("%s", text);
	}
	cluster->Release(session.Value());
	return duckdb::make_uniq<RemoteCatalog>(db, std::move(cluster), info.path);
}

static duckdb::unique_ptr<duckdb::TransactionManager>
CreateRemoteTransactionManager(duckdb::optional_ptr<duckdb::StorageExtensionInfo>, duckdb::AttachedDatabase &db,
                               duckdb::Catalog &catalog) {
	return duckdb::make_uniq<RemoteTransactionManager>(db, catalog.Cast<RemoteCatalog>());
}

static void CheckTimeout(ClientContext &, duckdb::SetScope, duckdb::Value &value) {
	if (value.IsNull() || value.GetValue<uint64_t>() == 0) {
		throw duckdb::InvalidInputException("%s must be at least 1", SETTING_REQUEST_TIMEOUT_MS);
	}
}

void RegisterRemote(duckdb::ExtensionLoader &loader) {
	auto &config = duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance());
	auto extension = duckdb::make_shared_ptr<duckdb::StorageExtension>();
	extension->attach = AttachRemote;
	extension->create_transaction_manager = CreateRemoteTransactionManager;
	duckdb::StorageExtension::Register(config, RemoteCatalog::TYPE, extension);
	config.AddExtensionOption(duckdb::Identifier(SETTING_REQUEST_TIMEOUT_MS),
	                          "End-to-end deadline of one remote statement with all its retries, in milliseconds",
	                          duckdb::LogicalType::UBIGINT, duckdb::Value::UBIGINT(DEFAULT_REQUEST_TIMEOUT_MS),
	                          CheckTimeout);
	config.AddExtensionOption(duckdb::Identifier(SETTING_STATEMENT_TIMEOUT_MS),
	                          "Longest run of one remote statement in milliseconds, reads included; the node stops its "
	                          "work. 0 = no limit",
	                          duckdb::LogicalType::UBIGINT, duckdb::Value::UBIGINT(0));
	RegisterRemoteClientState(loader);
	RegisterRemoteSecret(loader);
	RegisterRemoteFunctions(loader);
}

bool IsRemoteCatalog(ClientContext &context, const std::string &catalog) {
	return FindRemoteCatalog(context, catalog) != nullptr;
}

std::string OnlyRemoteCatalog(ClientContext &context, const std::string &function) {
	std::string found;
	for (auto &database : duckdb::DatabaseManager::Get(context).GetDatabases(context)) {
		auto name = database->GetName().GetIdentifierName();
		if (!IsRemoteCatalog(context, name)) {
			continue;
		}
		if (!found.empty()) {
			throw duckdb::BinderException("%s: several clusters are attached (%s, %s); name one as an argument",
			                              function, found, name);
		}
		found = name;
	}
	return found;
}

static void TakeSchema(const RemoteStream &stream, RemoteRows &result) {
	result.names = stream.Names();
	result.types = stream.Types();
}

bool RunOnRemote(ClientContext &context, const std::string &catalog, const std::string &sql, RemoteRows &result) {
	auto remote = FindRemoteCatalog(context, catalog);
	if (!remote) {
		return false;
	}
	RemoteStatement statement;
	statement.sql = sql;
	auto stream = RemoteTransaction::Get(context, *remote).Run(context, statement);
	TakeSchema(*stream, result);
	result.rows = duckdb::make_uniq<duckdb::ColumnDataCollection>(context, result.types);
	while (auto chunk = stream->Next(context)) {
		result.rows->Append(*chunk);
	}
	return true;
}

bool DescribeOnRemote(ClientContext &context, const std::string &catalog, const std::string &sql, RemoteRows &result) {
	auto remote = FindRemoteCatalog(context, catalog);
	if (!remote) {
		return false;
	}
	RemoteStatement statement;
	statement.sql = sql;
	TakeSchema(*DescribeStatement(context, *remote, statement), result);
	result.rows = duckdb::make_uniq<duckdb::ColumnDataCollection>(context, result.types);
	return true;
}

} // namespace sql
} // namespace quack
