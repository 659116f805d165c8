#include "quack/sql/quack_server.hpp"

#include <cstdlib>

#include "duckdb/common/exception.hpp"
#include "duckdb/main/config.hpp"
#include "quack/common/log.hpp"
#include "quack/sql/catalog_v1.hpp"
#include "quack/sql/http_headers.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::InvalidInputException;

namespace {

constexpr const char *AUTHENTICATION_SETTING = "quack_authentication_function";
constexpr const char *AUTHORIZATION_SETTING = "quack_authorization_function";

//! Counts the request as activity of the session while it lasts.
class RequestScope {
public:
	explicit RequestScope(Session &session_p) : session(session_p) {
		session.BeginRequest();
	}
	~RequestScope() {
		session.EndRequest();
	}
	RequestScope(const RequestScope &) = delete;
	RequestScope &operator=(const RequestScope &) = delete;

private:
	Session &session;
};

uint64_t ParseDecimal(const std::string &text, const char *name) {
	char *end = nullptr;
	auto value = std::strtoull(text.c_str(), &end, 10);
	if (text.empty() || text[0] < '0' || text[0] > '9' || *end != '\0') {
		throw InvalidInputException("Header %s is '%s', a decimal number was expected", name, text);
	}
	return value;
}

QuackVersion ChooseVersion(const ConnectionRequest &request) {
	if (request.min_version <= 3 && request.max_version >= 3) {
		return QuackVersion::V3;
	}
	if (request.min_version <= 1 && request.max_version >= 1) {
		return QuackVersion::V1;
	}
	throw InvalidInputException("Unsupported Quack version - this server speaks versions 1 and 3 of quack, the client "
	                            "asked for %llu to %llu",
	                            request.min_version, request.max_version);
}

uint64_t ChooseLease(const ConnectionRequest &request, QuackVersion version, const ServerLimits &limits) {
	if (version == QuackVersion::V1) {
		return limits.v1_idle_timeout_s;
	}
	auto asked = request.heartbeat_timeout_s.IsValid() ? request.heartbeat_timeout_s.GetIndex()
	                                                   : limits.heartbeat_timeout_s_default;
	if (asked == 0) {
		throw InvalidInputException("The heartbeat timeout must be between 1 and %llu seconds",
		                            limits.heartbeat_timeout_s_max);
	}
	return std::min(asked, limits.heartbeat_timeout_s_max);
}

//! An operator's hook function, set by `SET GLOBAL`; empty when the setting is unset or does not exist.
std::string HookFunction(duckdb::DatabaseInstance &db, const char *setting) {
	duckdb::Value value;
	if (!duckdb::DBConfig::GetConfig(db).TryGetCurrentSetting(duckdb::Identifier(setting), value) || value.IsNull()) {
		return std::string();
	}
	return value.ToString();
}

std::string SqlString(const std::string &text) {
	return duckdb::Value(text).ToSQLString();
}

} // namespace

QuackServer::QuackServer(ServerContext context_p, AuthenticationConfig authentication)
    : context(std::move(context_p)), authenticator(std::move(authentication)), registry(context),
      front(
          [&] {
	          HttpFrontConfig config;
	          config.body_bytes_max = context.limits.request_bytes_max;
	          return config;
          }(),
          *this) {
}

QuackServer::~QuackServer() {
	Stop();
}

void QuackServer::ServeConnection(const std::shared_ptr<transport::ByteStream> &stream) {
	bool refused = false;
	bool is_reserve = false;
	{
		std::lock_guard<std::mutex> guard(lock);
		auto count = connections.size();
		is_reserve = count >= context.limits.connections_max;
		refused = stopped || count >= context.limits.connections_max + context.limits.connections_reserve;
		if (!refused) {
			connections.insert(stream);
		}
	}
	if (refused) {
		(void)stream->WriteAll("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: "
		                       "close\r\n\r\n",
		                       NS_PER_SECOND);
		stream->Close();
		return;
	}
	front.ServeConnection(*stream, is_reserve);
	std::lock_guard<std::mutex> guard(lock);
	connections.erase(stream);
}

void QuackServer::Stop() {
	std::set<std::shared_ptr<transport::ByteStream>> closing;
	{
		std::lock_guard<std::mutex> guard(lock);
		stopped = true;
		closing = connections;
	}
	// Sessions first: their requests end with a typed error that still reaches the client.
	registry.Stop("the node stops");
	for (auto &stream : closing) {
		stream->Close();
	}
}

size_t QuackServer::ConnectionCount() const {
	std::lock_guard<std::mutex> guard(lock);
	return connections.size();
}

std::string QuackServer::Banner() {
	return "This is a Quack server (quack-duckdb, DuckDB " QUACK_DUCKDB_VERSION "). Attach it with: ATTACH "
	       "'quack:host:port' AS cp (TYPE quack, TOKEN '...')\n";
}

int QuackServer::AllowLargeBody(const std::string &prefix, uint64_t bytes) {
	try {
		MessageDecoder message {ByteView(prefix)};
		if (!registry.Find(message.Header().connection_id)) {
			return 413;
		}
	} catch (std::exception &) {
		return 413;
	}
	return context.admission->EnterRequest(bytes) ? 0 : 503;
}

void QuackServer::EndLargeBody(uint64_t bytes) {
	context.admission->RemoveBytes(bytes);
}

void QuackServer::RefuseOnReserve() const {
	auto retry_after_ms = context.admission->RetryAfterMs();
	ThrowOverloaded(Status(ErrorCode::Overloaded,
	                       "the node has " + std::to_string(context.limits.connections_max) +
	                           " client connections, the most it takes (connections_max); use another node or retry "
	                           "after " +
	                           std::to_string(retry_after_ms) + " ms"),
	                retry_after_ms);
}

void QuackServer::AddClusterHeaders(HttpServerReply &reply) const {
	reply.headers.emplace(HEADER_NODE_ID, context.node_id);
	reply.headers.emplace(HEADER_CLUSTER_ID, context.cluster_id);
	std::string voters;
	auto addresses = context.voters ? context.voters() : std::vector<VoterAddress>();
	for (auto &voter : addresses) {
		voters += (voters.empty() ? "" : ",") + voter.node_id + "=" + voter.host + ":" + std::to_string(voter.port);
	}
	reply.headers.emplace(HEADER_VOTERS, voters);
	if (context.replica != nullptr) {
		reply.headers.emplace(HEADER_CATALOG_VERSION, std::to_string(context.replica->CatalogVersion()));
		catalog::AppliedVector positions;
		for (auto &position : context.replica->Applied()) {
			positions[position.group] = position.index;
		}
		reply.headers.emplace(HEADER_POSITIONS, catalog::PositionsToText(positions));
		reply.headers.emplace(HEADER_REQUEST_BASE, std::to_string(context.replica->RequestBaseNow()));
	}
	if (context.engine != nullptr) {
		auto leader = context.leader ? context.leader() : std::string();
		for (auto &voter : addresses) {
			if (voter.node_id == leader) {
				reply.headers.emplace(HEADER_LEADER, voter.host + ":" + std::to_string(voter.port));
			}
		}
	}
}

HttpServerReply QuackServer::HandlePost(const HttpServerRequest &request) {
	HttpServerReply reply;
	std::unique_ptr<MessageDecoder> message;
	QuackVersion version = QuackVersion::V1;
	try {
		message = std::make_unique<MessageDecoder>(ByteView(request.body));
		auto session = registry.Find(message->Header().connection_id);
		if (session) {
			version = session->Info().version;
		} else if (message->Header().type == MessageType::ConnectionRequest) {
			version = message->ReadConnectionRequest().max_version >= 3 ? QuackVersion::V3 : QuackVersion::V1;
		}
	} catch (std::exception &exception) {
		reply.status = 500;
		reply.headers.emplace("EXCEPTION_WHAT", exception.what());
		return reply;
	}
	try {
		reply.body = Dispatch(request, *message);
	} catch (duckdb::SerializationException &exception) {
		reply.status = 500;
		reply.headers.emplace("EXCEPTION_WHAT", exception.what());
		return reply;
	} catch (std::exception &exception) {
		auto error = MakeErrorResponse(duckdb::ErrorData(exception));
		reply.body = EncodeErrorResponse(MessageHeader(), error, version);
	}
	AddClusterHeaders(reply);
	if (request.header(HEADER_DESCRIBE) == "1") {
		reply.headers.emplace(HEADER_DESCRIBE, "1");
	}
	return reply;
}

std::string QuackServer::Dispatch(const HttpServerRequest &request, MessageDecoder &message) {
	auto &header = message.Header();
	if (header.type == MessageType::ConnectionRequest) {
		if (request.is_reserve) {
			RefuseOnReserve();
		}
		return OpenSession(request, message);
	}
	auto session = registry.Find(header.connection_id);
	if (!session) {
		throw InvalidInputException("Invalid connection id");
	}
	if (header.type == MessageType::Disconnect) {
		message.ReadEmpty();
		registry.Remove(header.connection_id, "the client disconnected");
		return EncodeEmpty(MessageHeader(), MessageType::SuccessResponse);
	}
	RequestScope scope(*session);
	return DispatchInSession(request, message, *session);
}

std::string QuackServer::OpenSession(const HttpServerRequest &request, MessageDecoder &message) {
	auto body = message.ReadConnectionRequest();
	auto now = SystemClock().Now();
	SessionInfo info;
	info.id = RandomHex128();
	bool accepted = false;
	if (CheckByHook(info.id, body.auth_string, accepted)) {
		auto admitted = authenticator.Admit(request.remote_address, now);
		if (!admitted.IsOk()) {
			ThrowCoded(admitted);
		}
		if (!accepted) {
			authenticator.Failed(request.remote_address, now);
			ThrowCoded(Status(ErrorCode::Unauthorized, "Authentication failed"));
		}
	} else {
		auto status = authenticator.Check(body.auth_string, request.peer_identity, request.remote_address, now);
		if (!status.IsOk()) {
			Log(LogLevel::Warn, "server", "login_refused",
			    {{"remote", request.remote_address}, {"reason", ErrorCodeName(status.Code())}});
			ThrowCoded(status);
		}
	}
	info.version = ChooseVersion(body);
	info.lease_s = ChooseLease(body, info.version, context.limits);
	info.remote_address = request.remote_address + ":" + std::to_string(request.remote_port);
	info.peer_identity = request.peer_identity;
	info.client_version = body.client_duckdb_version + "/" + body.client_platform;
	auto session = registry.Create(info);

	MessageHeader header;
	header.connection_id = info.id;
	ConnectionResponse response;
	response.server_duckdb_version = QUACK_DUCKDB_VERSION;
	response.server_platform = duckdb::DuckDB::Platform();
	response.quack_version = static_cast<uint64_t>(info.version);
	response.heartbeat_timeout_s = info.lease_s;
	return EncodeConnectionResponse(header, response);
}

bool QuackServer::CheckByHook(const std::string &session_id, const std::string &token, bool &accepted) {
	auto function = HookFunction(*context.db, AUTHENTICATION_SETTING);
	if (function.empty() || function == "quack_check_token") {
		return false;
	}
	try {
		duckdb::Connection connection(*context.db);
		auto result = connection.Query("SELECT " + function + "(" + SqlString(session_id) + ", " + SqlString(token) +
		                               ", " + SqlString(authenticator.Token()) + ")");
		result->ThrowIfError();
		auto chunk = result->Fetch();
		auto value = chunk && chunk->size() == 1 ? chunk->GetValue(0, 0) : duckdb::Value();
		accepted = !value.IsNull() && value.type().id() == duckdb::LogicalTypeId::BOOLEAN && value.GetValue<bool>();
	} catch (std::exception &) { // NOLINT: an exception of the hook is a refusal, and its text may hold the token
		accepted = false;
	}
	return true;
}

std::string QuackServer::AuthorizeByHook(const std::string &session_id, const std::string &sql) {
	auto function = HookFunction(*context.db, AUTHORIZATION_SETTING);
	if (function.empty() || function == "quack_nop_authorization") {
		return sql;
	}
	duckdb::Value value;
	try {
		duckdb::Connection connection(*context.db);
		auto result =
		    connection.Query("SELECT " + function + "(" + SqlString(session_id) + ", " + SqlString(sql) + ")");
		result->ThrowIfError();
		auto chunk = result->Fetch();
		value = chunk && chunk->size() == 1 ? chunk->GetValue(0, 0) : duckdb::Value();
	} catch (std::exception &) {
		ThrowCoded(Status(ErrorCode::Unauthorized, "Authorization failed"));
	}
	bool denied = value.IsNull() || (value.type().id() == duckdb::LogicalTypeId::BOOLEAN && !value.GetValue<bool>());
	if (denied) {
		ThrowCoded(Status(ErrorCode::Unauthorized, "Authorization failed"));
	}
	return value.type().id() == duckdb::LogicalTypeId::VARCHAR ? value.GetValue<std::string>() : sql;
}

std::string QuackServer::DispatchInSession(const HttpServerRequest &request, MessageDecoder &message,
                                           Session &session) {
	bool is_v3 = session.Info().version == QuackVersion::V3;
	switch (message.Header().type) {
	case MessageType::PrepareRequest:
		return Prepare(request, message, session);
	case MessageType::FetchRequest:
		return Fetch(request, message, session);
	case MessageType::SendDataRequest:
		return is_v3 ? SendData(request, message, session) : Append(request, message, session);
	case MessageType::CancelRequest:
		if (is_v3) {
			session.Cancel(message.ReadQueryReference().query_uuid);
			return EncodeEmpty(MessageHeader(), MessageType::SuccessResponse);
		}
		break;
	case MessageType::Acknowledgement:
		if (is_v3) {
			session.Acknowledge(message.ReadQueryReference().query_uuid);
			return EncodeEmpty(MessageHeader(), MessageType::SuccessResponse);
		}
		break;
	case MessageType::HeartbeatRequest:
		if (is_v3) {
			message.ReadEmpty();
			return EncodeEmpty(MessageHeader(), MessageType::SuccessResponse);
		}
		break;
	default:
		break;
	}
	throw InvalidInputException("Unsupported message type for server: %s", MessageTypeName(message.Header().type));
}

StatementOptions QuackServer::OptionsOf(const HttpServerRequest &request) const {
	StatementOptions options;
	options.request_id = request.header(HEADER_REQUEST_ID);
	options.consistency = request.header(HEADER_CONSISTENCY);
	options.describe_only = request.header(HEADER_DESCRIBE) == "1";
	options.is_repeat = request.header(HEADER_REPEAT) == "1";
	auto floor = catalog::PositionsFromText(request.header(HEADER_MIN_POSITIONS));
	if (!floor.IsOk()) {
		throw InvalidInputException("%s: %s", HEADER_MIN_POSITIONS, floor.GetStatus().Message());
	}
	options.min_positions = std::move(floor.Value());
	auto limit_ms = context.limits.statement_timeout_ms;
	auto deadline_ms = request.header(HEADER_DEADLINE_MS);
	if (!deadline_ms.empty()) {
		auto asked = std::max<uint64_t>(1, ParseDecimal(deadline_ms, HEADER_DEADLINE_MS));
		limit_ms = limit_ms == 0 ? asked : std::min(limit_ms, asked);
	}
	if (limit_ms != 0) {
		// Beyond a year it is no limit, and stays clear of overflow.
		auto bounded = std::min<uint64_t>(limit_ms, 366ULL * 24 * 3600 * 1000);
		options.deadline = SystemClock().Now() + static_cast<MonotonicNs>(bounded) * NS_PER_MS;
	}
	return options;
}

std::string QuackServer::Prepare(const HttpServerRequest &request, MessageDecoder &message, Session &session) {
	auto body = message.ReadPrepareRequest();
	if (request.is_reserve && !session.InTransaction() && !IsUrgentText(body.sql)) {
		RefuseOnReserve();
	}
	body.sql = AuthorizeByHook(session.Info().id, body.sql);
	if (session.Info().version == QuackVersion::V1) {
		body.sql = RewriteCatalogQueryV1(body.sql);
	}
	auto execution = session.Submit(body, OptionsOf(request));
	return EncodePrepareResponse(MessageHeader(), execution->WaitPrepared(request.peer_gone));
}

std::string QuackServer::Fetch(const HttpServerRequest &request, MessageDecoder &message, Session &session) {
	auto body = message.ReadFetchRequest();
	auto execution = session.Find(body.query_uuid);
	bool is_v1 = session.Info().version == QuackVersion::V1;
	auto fetched = execution->Fetch(is_v1 ? 0 : body.batch_index, body.ack_index, request.peer_gone);
	if (!is_v1) {
		return EncodeFetchResponse(MessageHeader(), fetched.response, fetched.batch);
	}
	std::vector<std::string> chunks;
	for (size_t i = 0; i < fetched.offsets.size(); i++) {
		auto begin = fetched.offsets[i];
		auto end = i + 1 < fetched.offsets.size() ? fetched.offsets[i + 1] : fetched.batch.encoded.size();
		chunks.push_back(fetched.batch.encoded.substr(begin, end - begin));
	}
	return EncodeFetchResponseV1(MessageHeader(), fetched.response, chunks);
}

std::string QuackServer::Append(const HttpServerRequest &request, MessageDecoder &message, Session &session) {
	auto body = message.ReadAppendRequest();
	AuthorizeByHook(session.Info().id, "INSERT INTO " + body.schema + "." + body.table + " VALUES (NULL)");
	auto execution = session.SubmitAppend(std::move(body), OptionsOf(request));
	execution->WaitPrepared(request.peer_gone);
	return EncodeEmpty(MessageHeader(), MessageType::SuccessResponse);
}

std::string QuackServer::SendData(const HttpServerRequest &request, MessageDecoder &message, Session &session) {
	auto body = message.ReadSendDataRequest();
	auto options = OptionsOf(request);
	auto timeout = options.deadline == 0 ? 300 * NS_PER_SECOND : options.deadline - SystemClock().Now();
	auto stream = session.FindStream(body.stream_id);
	stream->Push(std::move(body), request.body.size(), timeout);
	return EncodeSendDataResponse(MessageHeader(), SendDataResponse());
}

} // namespace sql
} // namespace quack
