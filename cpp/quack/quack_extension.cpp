//! Registration only: what DuckDB calls when the extension is loaded.
#include "duckdb.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/sql/change_feed_functions.hpp"
#include "quack/sql/client_stream.hpp"
#include "quack/sql/functions.hpp"
#include "quack/sql/group_functions.hpp"
#include "quack/sql/remote_catalog.hpp"

extern "C" {

DUCKDB_CPP_EXTENSION_ENTRY(quack, loader) {
	quack::catalog::RegisterReplicaStorage(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()));
	quack::sql::RegisterRemote(loader);
	quack::sql::RegisterClientStreamFunction(loader);
	quack::sql::RegisterNodeFunctions(loader);
	quack::sql::RegisterStatusFunctions(loader);
	quack::sql::RegisterGroupFunctions(loader);
	quack::sql::RegisterChangeFeed(loader);
	quack::sql::RegisterOfflineFunctions(loader);
	quack::sql::RegisterServerSettings(loader);
}
}
