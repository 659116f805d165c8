#include "quack/sql/cluster_setting.hpp"

#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/execution/expression_executor_state.hpp"
#include "duckdb/function/scalar_function.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#include "quack/sql/node_runtime.hpp"
#include "quack/sql/remote_catalog.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {
namespace {

constexpr MonotonicNs SET_TIMEOUT = 10 * NS_PER_SECOND;

void Set(duckdb::ClientContext &context, const ClusterSetting &setting, const duckdb::Value &value,
         std::string catalog) {
	auto is_own = catalog.empty() || catalog == catalog::CATALOG_NAME;
	if (is_own && NodeRuntime::Find(*context.db)) {
		RefuseReadOnly(context, setting.function, catalog::CATALOG_NAME);
		auto status = setting.set(NodeRuntime::Get(*context.db)->Replica(), value, SystemClock().Now() + SET_TIMEOUT);
		if (!status.IsOk()) {
			ThrowCoded(status);
		}
		return;
	}
	catalog = catalog.empty() ? OnlyRemoteCatalog(context, setting.function) : catalog;
	RefuseReadOnly(context, setting.function, catalog);
	RemoteRows remote;
	if (catalog.empty() ||
	    !RunOnRemote(context, catalog, "SELECT " + setting.function + "(" + value.ToSQLString() + ")", remote)) {
		throw duckdb::BinderException("%s: this process is no node, and no cluster is attached%s", setting.function,
		                              catalog.empty() ? std::string() : " as '" + catalog + "'");
	}
}

} // namespace

void RefuseReadOnly(duckdb::ClientContext &context, const std::string &function, const std::string &catalog) {
	auto database = duckdb::DatabaseManager::Get(context).GetDatabase(context, duckdb::Identifier(catalog));
	if (database && database->IsReadOnly()) {
		throw duckdb::InvalidInputException("%s: catalog \"%s\" is attached in read-only mode; attach it without "
		                                    "READ_ONLY to change its cluster",
		                                    function, catalog);
	}
	if (duckdb::MetaTransaction::Get(context).IsReadOnly()) {
		throw duckdb::TransactionException("%s: the transaction is launched in read-only mode; a cluster is changed "
		                                   "outside of it",
		                                   function);
	}
}

void RegisterClusterSetting(duckdb::ExtensionLoader &loader, const ClusterSetting &setting) {
	auto run = [setting](duckdb::DataChunk &input, duckdb::ExpressionState &state, duckdb::Vector &result) {
		for (duckdb::idx_t row = 0; row < input.size(); row++) {
			auto value = input.GetValue(0, row);
			if (value.IsNull()) {
				throw duckdb::InvalidInputException("%s: expected %s, got NULL", setting.function, setting.expected);
			}
			Set(state.GetContext(), setting, value,
			    input.ColumnCount() > 1 ? input.GetValue(1, row).ToString() : std::string());
			result.SetValue(row, value);
		}
	};
	duckdb::ScalarFunctionSet set {duckdb::Identifier(setting.function)};
	for (auto &type : setting.types) {
		for (auto with_catalog : {false, true}) {
			duckdb::vector<duckdb::LogicalType> arguments {type};
			if (with_catalog) {
				arguments.push_back(duckdb::LogicalType::VARCHAR);
			}
			duckdb::ScalarFunction function(arguments, type, run);
			function.SetVolatile();
			function.SetFallible();
			function.SetNullHandling(duckdb::FunctionNullHandling::SPECIAL_HANDLING);
			set.AddFunction(function);
		}
	}
	loader.RegisterFunction(set);
}

} // namespace sql
} // namespace quack
