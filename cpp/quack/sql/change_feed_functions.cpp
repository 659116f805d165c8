#include "quack/sql/change_feed_functions.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/expression/constant_expression.hpp"
#include "duckdb/parser/expression/function_expression.hpp"
#include "duckdb/parser/tableref/table_function_ref.hpp"
#include "quack/catalog/change_functions.hpp"
#include "quack/sql/cluster_setting.hpp"
#include "quack/sql/remote_catalog.hpp"

namespace quack {
namespace sql {
namespace {

duckdb::unique_ptr<duckdb::TableRef> OnRemote(duckdb::ClientContext &context, const std::string &name,
                                              const std::string &function, const std::string &arguments) {
	auto catalog = name.empty() ? OnlyRemoteCatalog(context, function) : name;
	if (catalog.empty() || !IsRemoteCatalog(context, catalog)) {
		return nullptr;
	}
	duckdb::vector<duckdb::unique_ptr<duckdb::ParsedExpression>> values;
	values.push_back(duckdb::ConstantExpression::String(catalog));
	values.push_back(duckdb::ConstantExpression::String("SELECT * FROM " + function + "(" + arguments + ")"));
	auto ref = duckdb::make_uniq<duckdb::TableFunctionRef>();
	ref->function =
	    duckdb::make_uniq<duckdb::FunctionExpression>(duckdb::QualifiedName(duckdb::Identifier("system"),
		                                                                    duckdb::Identifier("main"),
		                                                                    duckdb::Identifier("quack_query_by_name")),
		                                              std::move(values));
	return std::move(ref);
}

Status SetRetention(catalog::ReplicatedDatabase &replica, const duckdb::Value &value, MonotonicNs deadline) {
	duckdb::idx_t bytes = 0;
	auto is_text = value.type().id() == duckdb::LogicalTypeId::VARCHAR;
	if (is_text ? !duckdb::StringUtil::TryParseFormattedBytes(value.ToString(), bytes).empty()
	            : value.GetValue<int64_t>() < 0) {
		return Status(ErrorCode::InvalidArgument,
		              "expected bytes, text like '512MB', or 0 to keep no changes, got '" + value.ToString() + "'");
	}
	return replica.SetChangesRetention(is_text ? bytes : value.GetValue<uint64_t>(), deadline);
}

} // namespace

void RegisterChangeFeed(duckdb::ExtensionLoader &loader) {
	catalog::RegisterChangeFunctions(loader, OnRemote);
	ClusterSetting retention;
	retention.function = "quack_changes_set_retention";
	retention.types = {duckdb::LogicalType::BIGINT, duckdb::LogicalType::VARCHAR};
	retention.expected = "bytes, or text like '512MB'";
	retention.set = SetRetention;
	RegisterClusterSetting(loader, retention);
}

} // namespace sql
} // namespace quack
