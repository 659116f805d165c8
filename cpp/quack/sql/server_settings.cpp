#include "duckdb/common/exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "quack/sql/functions.hpp"
#include "quack/sql/session_settings.hpp"

namespace quack {
namespace sql {

std::string ConsistencySetting(duckdb::ClientContext &context) {
	duckdb::Value value;
	if (!context.TryGetCurrentSetting(SETTING_CONSISTENCY, value) || value.IsNull()) {
		return std::string();
	}
	return duckdb::StringUtil::Lower(value.ToString());
}

bool IsConsistency(const std::string &text) {
	return text == "eventual" || text == "session" || text == "linearizable";
}

static void CheckConsistency(duckdb::ClientContext &, duckdb::SetScope, duckdb::Value &value) {
	auto text = value.IsNull() ? std::string() : duckdb::StringUtil::Lower(value.ToString());
	if (!text.empty() && !IsConsistency(text)) {
		throw duckdb::InvalidInputException("Unknown %s \"%s\": expected eventual, session or linearizable, or '' for "
		                                    "what the attachment says",
		                                    SETTING_CONSISTENCY, text);
	}
}

void RegisterServerSettings(duckdb::ExtensionLoader &loader) {
	auto &config = duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance());
	auto text = duckdb::LogicalType::VARCHAR;
	config.AddExtensionOption("quack_authentication_function",
	                          "Function (session_id, client_token, server_token) -> BOOLEAN that admits Quack clients; "
	                          "quack_check_token is the built-in check",
	                          text, duckdb::Value("quack_check_token"), nullptr, duckdb::SetScope::GLOBAL);
	config.AddExtensionOption(SETTING_CONSISTENCY,
	                          "How fresh reads of attached clusters are: eventual, session or linearizable; '' = what "
	                          "the attachment says",
	                          text, duckdb::Value(""), CheckConsistency);
	config.AddExtensionOption("quack_authorization_function",
	                          "Function (session_id, sql) that allows, refuses or rewrites a statement of a Quack "
	                          "client; "
	                          "quack_nop_authorization allows all",
	                          text, duckdb::Value("quack_nop_authorization"), nullptr, duckdb::SetScope::GLOBAL);
}

} // namespace sql
} // namespace quack
