#include "quack/sql/remote_options.hpp"

#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/main/secret/secret.hpp"
#include "duckdb/main/secret/secret_manager.hpp"

#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

using duckdb::BinderException;
using duckdb::Identifier;
using duckdb::InvalidInputException;
using duckdb::KeyValueSecret;
using duckdb::LogicalType;
using duckdb::StringUtil;
using duckdb::Value;

std::string RemoteEndpoint::ToString() const {
	auto shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
	return shown + ":" + std::to_string(port);
}

bool RemoteEndpoint::IsLoopback() const {
	return host == "localhost" || host == "::1" || StringUtil::StartsWith(host, "127.");
}

static uint16_t ParsePort(const std::string &text, const std::string &part) {
	uint64_t port = 0;
	bool digits = !text.empty() && text.size() <= 5;
	for (auto c : text) {
		digits = digits && c >= '0' && c <= '9';
		port = port * 10 + static_cast<uint64_t>(c - '0');
	}
	if (!digits || port == 0 || port > 65535) {
		throw InvalidInputException("Invalid port \"%s\" in \"%s\": expected a number between 1 and 65535, as in "
		                            "quack:host:9494",
		                            text, part);
	}
	return static_cast<uint16_t>(port);
}

static RemoteEndpoint ParseEndpoint(const std::string &part) {
	RemoteEndpoint result;
	result.port = QUACK_DEFAULT_PORT;
	std::string port;
	bool has_port = false;
	if (!part.empty() && part[0] == '[') {
		auto close = part.find(']');
		if (close == std::string::npos) {
			throw InvalidInputException("Invalid host \"%s\": the bracket of the IPv6 address is not closed", part);
		}
		result.host = part.substr(1, close - 1);
		has_port = close + 1 < part.size();
		port = has_port ? part.substr(close + 1) : "";
		if (has_port && port[0] != ':') {
			throw InvalidInputException("Invalid host \"%s\": expected quack:[address]:port", part);
		}
		port = has_port ? port.substr(1) : port;
	} else {
		auto colon = part.find(':');
		has_port = colon != std::string::npos;
		result.host = part.substr(0, colon);
		port = has_port ? part.substr(colon + 1) : "";
	}
	if (result.host.empty() || result.host.find_first_of("/@ ?#") != std::string::npos) {
		throw InvalidInputException("Invalid host \"%s\": expected host, host:port or [address]:port", part);
	}
	if (has_port) {
		result.port = ParsePort(port, part);
	}
	return result;
}

std::vector<RemoteEndpoint> ParseRemoteEndpoints(const std::string &path) {
	auto rest = path;
	if (StringUtil::StartsWith(rest, "quack://")) {
		rest = rest.substr(8);
	} else if (StringUtil::StartsWith(rest, "quack:")) {
		rest = rest.substr(6);
	}
	std::vector<RemoteEndpoint> result;
	if (rest.empty()) {
		throw InvalidInputException("No host in \"%s\": expected quack:host:port[,host:port…]", path);
	}
	for (auto &part : StringUtil::Split(rest, ',')) {
		StringUtil::Trim(part);
		auto endpoint = ParseEndpoint(part);
		bool known = false;
		for (auto &other : result) {
			known = known || other == endpoint;
		}
		if (!known) {
			result.push_back(endpoint);
		}
	}
	return result;
}

//! Takes options out of the map one by one and remembers which were there.
class OptionTaker {
public:
	explicit OptionTaker(duckdb::unordered_map<std::string, Value> &options_p) : options(options_p) {
	}

	bool TakeText(const std::string &name, std::string &result) {
		auto entry = options.find(name);
		if (entry == options.end()) {
			return false;
		}
		auto value = entry->second;
		options.erase(entry);
		if (value.IsNull()) {
			throw BinderException("Option \"%s\" of the attachment must not be NULL", name);
		}
		result = value.DefaultCastAs(LogicalType::VARCHAR).GetValue<std::string>();
		return true;
	}
	bool TakeFlag(const std::string &name, bool &result) {
		auto entry = options.find(name);
		if (entry == options.end()) {
			return false;
		}
		auto value = entry->second;
		options.erase(entry);
		result = value.IsNull() ? false : value.DefaultCastAs(LogicalType::BOOLEAN).GetValue<bool>();
		return true;
	}

private:
	duckdb::unordered_map<std::string, Value> &options;
};

static void ReadSecret(duckdb::ClientContext &context, const std::string &path, const std::string &secret_name,
                       RemoteOptions &result) {
	auto &manager = duckdb::SecretManager::Get(context);
	auto transaction = duckdb::CatalogTransaction::GetSystemCatalogTransaction(context);
	duckdb::unique_ptr<duckdb::SecretEntry> entry;
	duckdb::SecretMatch match;
	const duckdb::BaseSecret *secret = nullptr;
	if (!secret_name.empty()) {
		entry = manager.GetSecretByName(transaction, secret_name);
		if (!entry) {
			throw InvalidInputException("Secret \"%s\" named by the option SECRET does not exist", secret_name);
		}
		secret = entry->secret.get();
	} else {
		auto scope = StringUtil::StartsWith(path, "quack:") ? path : "quack:" + path;
		match = manager.LookupSecret(transaction, scope, "quack");
		secret = match.HasMatch() ? &match.GetSecret() : nullptr;
	}
	if (!secret) {
		return;
	}
	if (secret->GetType() != Identifier("quack")) {
		throw InvalidInputException("Secret \"%s\" is of type %s, expected type quack",
		                            secret->GetName().GetIdentifierName(), secret->GetType().GetIdentifierName());
	}
	auto &values = secret->Cast<KeyValueSecret>();
	auto read = [&](const char *key, std::string &target) {
		Value value;
		if (target.empty() && values.TryGetValue(Identifier(key), value) && !value.IsNull()) {
			target = value.ToString();
		}
	};
	read("token", result.token);
	read("cert_file", result.cert_file);
	read("key_file", result.key_file);
	read("client_ca_file", result.client_ca_file);
	if (result.server_names.empty()) {
		std::string names;
		read("server_name", names);
		for (auto &name : StringUtil::Split(names, ',')) {
			result.server_names.push_back(name);
		}
	}
}

static void DecideTransport(OptionTaker &taker, RemoteOptions &result) {
	bool plaintext = false;
	bool told = taker.TakeFlag("plaintext", plaintext);
	told = taker.TakeFlag("disable_ssl", plaintext) || told;
	bool all_loopback = true;
	for (auto &host : result.hosts) {
		all_loopback = all_loopback && host.IsLoopback();
	}
	bool tls_material = !result.client_ca_file.empty() || !result.cert_file.empty() || !result.server_names.empty();
	if (told && plaintext) {
		if (!all_loopback) {
			throw InvalidInputException("plaintext is allowed on loopback hosts only, because the token would travel "
			                            "unencrypted; give client_ca_file instead");
		}
		if (tls_material) {
			throw InvalidInputException("plaintext cannot be combined with client_ca_file, cert_file or server_name");
		}
	}
	result.use_tls = told ? !plaintext : (tls_material || !all_loopback);
	if (result.cert_file.empty() != result.key_file.empty()) {
		throw InvalidInputException("cert_file and key_file belong together: %s is missing",
		                            result.cert_file.empty() ? "cert_file" : "key_file");
	}
}

RemoteOptions ParseRemoteOptions(duckdb::ClientContext &context, const std::string &path,
                                 duckdb::AttachOptions &options) {
	RemoteOptions result;
	OptionTaker taker(options.options);
	std::string secret_name, timeout, names;
	bool has_token = taker.TakeText("token", result.token);
	bool has_secret = taker.TakeText("secret", secret_name);
	result.consistency = "session";
	taker.TakeText("consistency", result.consistency);
	taker.TakeText("cert_file", result.cert_file);
	taker.TakeText("key_file", result.key_file);
	taker.TakeText("client_ca_file", result.client_ca_file);
	if (taker.TakeText("server_name", names)) {
		for (auto &name : StringUtil::Split(names, ',')) {
			StringUtil::Trim(name);
			result.server_names.push_back(name);
		}
	}
	taker.TakeText("request_timeout_ms", timeout);
	result.hosts = ParseRemoteEndpoints(path);
	if (has_token && has_secret) {
		throw InvalidInputException("Give either TOKEN or SECRET, not both");
	}
	ReadSecret(context, path, secret_name, result);
	DecideTransport(taker, result);
	if (!options.options.empty()) {
		throw BinderException("Unrecognized option for attach \"%s\"", options.options.begin()->first);
	}
	result.consistency = StringUtil::Lower(result.consistency);
	if (result.consistency != "eventual" && result.consistency != "session" && result.consistency != "linearizable") {
		throw InvalidInputException("Unknown consistency \"%s\": expected eventual, session or linearizable",
		                            result.consistency);
	}
	if (!timeout.empty()) {
		result.request_timeout_ms = Value(timeout).DefaultCastAs(LogicalType::UBIGINT).GetValue<uint64_t>();
		if (result.request_timeout_ms == 0) {
			throw InvalidInputException("request_timeout_ms must be at least 1");
		}
	}
	result.read_only = options.access_mode == duckdb::AccessMode::READ_ONLY;
	if (result.token.empty() && result.cert_file.empty()) {
		throw InvalidInputException("No token for \"%s\": give TOKEN '…', CREATE SECRET (TYPE quack, TOKEN '…', SCOPE "
		                            "'%s'), or a client certificate by cert_file and key_file",
		                            path, path);
	}
	return result;
}

static duckdb::unique_ptr<duckdb::BaseSecret> CreateQuackSecret(duckdb::ClientContext &,
                                                                duckdb::CreateSecretInput &input) {
	auto scope = input.scope;
	if (scope.empty()) {
		scope.push_back("quack:");
	}
	auto secret = duckdb::make_uniq<KeyValueSecret>(scope, input.type, input.provider, input.name);
	for (auto key : {"token", "cert_file", "key_file", "client_ca_file", "server_name"}) {
		secret->TrySetValue(Identifier(key), input);
	}
	secret->redact_keys = {Identifier("token")};
	return std::move(secret);
}

void RegisterRemoteSecret(duckdb::ExtensionLoader &loader) {
	duckdb::SecretType type;
	type.name = Identifier("quack");
	type.deserializer = KeyValueSecret::Deserialize<KeyValueSecret>;
	type.default_provider = "config";
	loader.RegisterSecretType(type);
	duckdb::CreateSecretFunction function;
	function.secret_type = "quack";
	function.provider = "config";
	function.function = CreateQuackSecret;
	for (auto key : {"token", "cert_file", "key_file", "client_ca_file", "server_name"}) {
		function.named_parameters[key] = LogicalType::VARCHAR;
	}
	loader.RegisterFunction(function);
}

} // namespace sql
} // namespace quack
