#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "quack/sql/functions.hpp"

namespace quack {
namespace sql {

void RegisterServerSettings(duckdb::ExtensionLoader &loader) {
	auto &config = duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance());
	auto text = duckdb::LogicalType::VARCHAR;
	config.AddExtensionOption("quack_authentication_function",
	                          "Function (session_id, client_token, server_token) -> BOOLEAN that admits Quack clients; "
	                          "quack_check_token is the built-in check",
	                          text, duckdb::Value("quack_check_token"), nullptr, duckdb::SetScope::GLOBAL);
	config.AddExtensionOption("quack_authorization_function",
	                          "Function (session_id, sql) that allows, refuses or rewrites a statement of a Quack "
	                          "client; "
	                          "quack_nop_authorization allows all",
	                          text, duckdb::Value("quack_nop_authorization"), nullptr, duckdb::SetScope::GLOBAL);
}

} // namespace sql
} // namespace quack
