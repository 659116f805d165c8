#include "quack/sql/remote_cluster.hpp"

#include <algorithm>
#include <random>

#include "duckdb/common/string_util.hpp"

#include "quack/catalog/replicated_database.hpp"
#include "quack/sql/http_headers.hpp"

namespace quack {
namespace sql {

constexpr uint64_t HEARTBEAT_LEASE_S = 30;
constexpr uint64_t SHORT_CALL_MS = 2000;
constexpr size_t IDLE_SESSIONS_MAX = 8;
constexpr MonotonicNs IDLE_SESSION_LIFETIME = 60 * NS_PER_SECOND;

static MonotonicNs Now() {
	return SystemClock().Now();
}

std::string RemoteReply::ErrorCodeText() const {
	for (auto &pair : error.extra_info) {
		if (pair.first == EXTRA_INFO_CODE) {
			return pair.second;
		}
	}
	return "";
}

bool RemoteReply::IsRetryable() const {
	auto code = is_error ? ErrorCodeText() : "";
	return code == "unavailable" || code == "not_leader" || code == "overloaded" || code == "deadline_exceeded" ||
	       code == "outcome_unknown" || code == "degraded" || code == "disk_full";
}

bool RemoteReply::IsConflict() const {
	auto code = is_error ? ErrorCodeText() : "";
	return code == "conflict" || code == "schema_changed";
}

bool RemoteReply::IsOutcomeUnknown() const {
	return is_error && ErrorCodeText() == ErrorCodeName(ErrorCode::OutcomeUnknown);
}

uint64_t RemoteReply::RetryAfterMs() const {
	for (auto &pair : error.extra_info) {
		if (pair.first == EXTRA_INFO_RETRY_AFTER_MS) {
			return strtoull(pair.second.c_str(), nullptr, 10);
		}
	}
	return 0;
}

bool RemoteReply::IsSessionLost() const {
	return is_error && (duckdb::StringUtil::Contains(error.message, "Invalid connection id") ||
	                    duckdb::StringUtil::Contains(error.message, "lease expired"));
}

RemoteCluster::RemoteCluster(RemoteOptions options_p) : options(std::move(options_p)), nodes(options.hosts) {
}

std::shared_ptr<RemoteCluster> RemoteCluster::Create(RemoteOptions options, std::string platform) {
	auto http = HttpPool::Create(options);
	if (!http.IsOk()) {
		throw duckdb::InvalidInputException("%s", http.GetStatus().Message());
	}
	std::shared_ptr<RemoteCluster> result(new RemoteCluster(std::move(options)));
	result->platform = std::move(platform);
	result->http = std::move(http.Value());
	result->heartbeat_thread = std::thread([cluster = result.get()] { cluster->HeartbeatLoop(); });
	return result;
}

RemoteCluster::~RemoteCluster() {
	Shutdown();
}

duckdb::hugeint_t RemoteCluster::RandomUuid() {
	static thread_local std::random_device device;
	auto word = [&] {
		return (static_cast<uint64_t>(device()) << 32) | device();
	};
	duckdb::hugeint_t result;
	result.upper = static_cast<int64_t>(word());
	result.lower = word();
	return result;
}

std::string RemoteCluster::NewRequestId() const {
	return catalog::RequestIdToString(catalog::NewRequestId(request_base.load()));
}

RemoteEndpoint RemoteCluster::Current() const {
	std::lock_guard<std::mutex> guard(lock);
	return nodes[current % nodes.size()];
}

size_t RemoteCluster::NodeCount() const {
	std::lock_guard<std::mutex> guard(lock);
	return nodes.size();
}

std::string RemoteCluster::ServerVersion() const {
	std::lock_guard<std::mutex> guard(lock);
	return server_version;
}

void RemoteCluster::MoveOn(const RemoteEndpoint &failed) {
	std::lock_guard<std::mutex> guard(lock);
	if (nodes[current % nodes.size()] == failed) {
		current = (current + 1) % nodes.size();
	}
	// Sessions on the failed node are useless, or will have to prove themselves by a new connection.
	idle.erase(std::remove_if(idle.begin(), idle.end(),
	                          [&](const std::shared_ptr<RemoteSession> &item) { return item->endpoint == failed; }),
	           idle.end());
}

void RemoteCluster::LearnVoters(const std::string &text) {
	for (auto &item : duckdb::StringUtil::Split(text, ',')) {
		auto equals = item.find('=');
		if (equals == std::string::npos) {
			continue;
		}
		http->Names().Add(item.substr(0, equals));
		std::vector<RemoteEndpoint> parsed;
		try {
			parsed = ParseRemoteEndpoints(item.substr(equals + 1));
		} catch (const std::exception &) {
			continue; // a hint only: an address we cannot read is an address we do not use
		}
		// A plain attachment never follows a hint away from this machine: the token would travel unencrypted.
		if (parsed.size() != 1 || (!options.use_tls && !parsed[0].IsLoopback())) {
			continue;
		}
		std::lock_guard<std::mutex> guard(lock);
		if (std::find(nodes.begin(), nodes.end(), parsed[0]) == nodes.end() && nodes.size() < 64) {
			nodes.push_back(parsed[0]);
		}
	}
}

static uint64_t NumberHeader(const HttpReply &reply, const char *name) {
	auto entry = reply.headers.find(duckdb::StringUtil::Lower(name));
	return entry == reply.headers.end() ? 0 : strtoull(entry->second.c_str(), nullptr, 10);
}

void RemoteCluster::LearnFrom(const HttpReply &reply) {
	if (reply.headers.count(duckdb::StringUtil::Lower(HEADER_CATALOG_VERSION)) != 0) {
		is_ours = true;
		catalog_version = NumberHeader(reply, HEADER_CATALOG_VERSION);
	}
	auto base = NumberHeader(reply, HEADER_REQUEST_BASE);
	auto seen = request_base.load();
	while (base > seen && !request_base.compare_exchange_weak(seen, base)) {
	}
	auto reached = reply.headers.find(duckdb::StringUtil::Lower(HEADER_POSITIONS));
	if (reached != reply.headers.end()) {
		positions.Merge(reached->second);
	}
	auto voters = reply.headers.find(duckdb::StringUtil::Lower(HEADER_VOTERS));
	if (voters != reply.headers.end()) {
		LearnVoters(voters->second);
	}
}

Result<RemoteReply> RemoteCluster::Send(const RemoteEndpoint &endpoint, const RemoteRequest &request,
                                        const RemoteBudget &budget) {
	HttpHeaders headers;
	if (!request.consistency.empty()) {
		headers.emplace_back(HEADER_CONSISTENCY, request.consistency);
	}
	if (!request.request_id.empty()) {
		headers.emplace_back(HEADER_REQUEST_ID, request.request_id);
	}
	if (request.repeat) {
		headers.emplace_back(HEADER_REPEAT, "1");
	}
	if (request.describe) {
		headers.emplace_back(HEADER_DESCRIBE, "1");
	}
	if (request.send_deadline && budget.deadline != 0) {
		headers.emplace_back(HEADER_DEADLINE_MS, std::to_string(std::max<uint64_t>(1, budget.LeftMs())));
	}
	auto reached = positions.Text();
	if (!reached.empty()) {
		headers.emplace_back(HEADER_MIN_POSITIONS, std::move(reached));
	}
	auto http_reply = http->Post(endpoint, headers, request.body, budget);
	if (!http_reply.IsOk()) {
		return http_reply.GetStatus();
	}
	auto &reply = http_reply.Value();
	if (reply.status != 200) {
		auto code = reply.status == 503 || reply.status == 429 ? ErrorCode::Unavailable : ErrorCode::Incompatible;
		return Status(code, "node " + endpoint.ToString() + " answered HTTP status " + std::to_string(reply.status) +
		                        ", expected 200; is it a Quack node of DuckDB 2.0" +
		                        (options.use_tls ? "?" : ", and does it speak TLS? Then give client_ca_file"));
	}
	LearnFrom(reply);
	RemoteReply result;
	result.bytes = std::move(reply.body);
	try {
		MessageDecoder decoder(ByteView(result.bytes));
		result.is_error = decoder.Header().type == MessageType::ErrorResponse;
		if (result.is_error) {
			result.error = decoder.ReadErrorResponse();
		}
	} catch (const std::exception &error) {
		return Status(ErrorCode::Incompatible,
		              "node " + endpoint.ToString() +
		                  " sent an answer that is no Quack message: " + duckdb::ErrorData(error).RawMessage());
	}
	return result;
}

Result<RemoteReply> RemoteCluster::Exchange(RemoteSession &session, const RemoteRequest &request,
                                            const RemoteBudget &budget) {
	std::lock_guard<std::mutex> guard(session.exchange);
	if (session.lost) {
		return Status(ErrorCode::Unavailable, "the session on node " + session.endpoint.ToString() + " is gone");
	}
	auto reply = Send(session.endpoint, request, budget);
	session.last_use = Now();
	if (!reply.IsOk() || reply.Value().IsSessionLost()) {
		session.lost = true;
	}
	return reply;
}

Result<std::shared_ptr<RemoteSession>> RemoteCluster::OpenSession(const RemoteEndpoint &endpoint,
                                                                  const RemoteBudget &budget) {
	ConnectionRequest body;
	body.auth_string = options.token;
	body.client_duckdb_version = QUACK_DUCKDB_VERSION;
	body.client_platform = platform;
	body.heartbeat_timeout_s = HEARTBEAT_LEASE_S;
	RemoteRequest request;
	request.body = EncodeConnectionRequest(MessageHeader(), body);
	auto reply = Send(endpoint, request, budget);
	if (!reply.IsOk()) {
		auto &status = reply.GetStatus();
		// A login whose answer got lost has changed nothing.
		return status.Code() == ErrorCode::OutcomeUnknown ? Status(ErrorCode::Unavailable, status.Message()) : status;
	}
	if (reply.Value().is_error) {
		auto code = reply.Value().IsRetryable() ? ErrorCode::Unavailable : ErrorCode::Unauthorized;
		return Status(code, "node " + endpoint.ToString() + " refused the connection: " + reply.Value().error.message);
	}
	auto session = std::make_shared<RemoteSession>();
	try {
		MessageDecoder decoder(ByteView(reply.Value().bytes));
		auto answer = decoder.ReadConnectionResponse();
		if (answer.quack_version != 3) {
			return Status(ErrorCode::Incompatible, "node " + endpoint.ToString() + " speaks Quack protocol version " +
			                                           std::to_string(answer.quack_version) + ", expected 3");
		}
		session->connection_id = decoder.Header().connection_id;
		if (answer.heartbeat_timeout_s != 0) {
			lease_s = answer.heartbeat_timeout_s;
		}
		std::lock_guard<std::mutex> guard(lock);
		server_version = answer.server_duckdb_version;
	} catch (const std::exception &error) {
		return Status(ErrorCode::Incompatible, "node " + endpoint.ToString() + " sent a malformed connection answer: " +
		                                           duckdb::ErrorData(error).RawMessage());
	}
	session->endpoint = endpoint;
	session->last_use = Now();
	std::lock_guard<std::mutex> guard(lock);
	sessions.push_back(session);
	return session;
}

std::shared_ptr<RemoteSession> RemoteCluster::TakeIdle() {
	std::lock_guard<std::mutex> guard(lock);
	while (!idle.empty()) {
		auto session = idle.back();
		idle.pop_back();
		if (!session->lost) {
			return session;
		}
	}
	return nullptr;
}

Result<std::shared_ptr<RemoteSession>> RemoteCluster::Acquire(const RemoteBudget &budget, bool one_round) {
	if (auto session = TakeIdle()) {
		return session;
	}
	Status last(ErrorCode::Unavailable, "no node was tried");
	uint64_t pause_ms = 10;
	size_t refused = 0;
	for (size_t attempt = 0;; attempt++) {
		auto endpoint = Current();
		auto session = OpenSession(endpoint, budget);
		if (session.IsOk()) {
			return session;
		}
		last = session.GetStatus();
		if (last.Code() == ErrorCode::Cancelled) {
			return last;
		}
		bool final = last.Code() == ErrorCode::Unauthorized || last.Code() == ErrorCode::Incompatible;
		refused = final ? refused + 1 : 0;
		MoveOn(endpoint);
		auto count = NodeCount();
		if (refused >= count || (one_round && attempt + 1 >= count) || budget.Expired()) {
			return last;
		}
		if ((attempt + 1) % count != 0) {
			continue;
		}
		auto until = Now() + static_cast<MonotonicNs>(pause_ms) * NS_PER_MS;
		while (Now() < until && !budget.Expired()) {
			if (budget.Interrupted()) {
				return Status(ErrorCode::Cancelled, "interrupted while looking for a node");
			}
			std::this_thread::sleep_for(std::chrono::milliseconds(5));
		}
		pause_ms = std::min<uint64_t>(pause_ms * 2, 200);
	}
}

void RemoteCluster::Release(std::shared_ptr<RemoteSession> session) {
	if (!session || session->lost) {
		return;
	}
	{
		std::lock_guard<std::mutex> guard(lock);
		if (idle.size() < IDLE_SESSIONS_MAX && !stopping) {
			session->released_at = Now();
			idle.push_back(std::move(session));
			return;
		}
	}
	Discard(std::move(session));
}

void RemoteCluster::Discard(std::shared_ptr<RemoteSession> session) {
	if (!session || session->lost) {
		return;
	}
	MessageHeader header;
	header.connection_id = session->connection_id;
	RemoteRequest request;
	request.body = EncodeEmpty(header, MessageType::Disconnect);
	auto reply = Exchange(*session, request, RemoteBudget::ForMs(SHORT_CALL_MS));
	(void)reply.IsOk(); // the lease ends the session if the node did not hear us
	session->lost = true;
}

void RemoteCluster::Cancel(const RemoteSession &session, duckdb::hugeint_t query_uuid) {
	MessageHeader header;
	header.connection_id = session.connection_id;
	QueryReference body;
	body.query_uuid = query_uuid;
	RemoteRequest request;
	request.body = EncodeCancelRequest(header, body);
	auto reply = Send(session.endpoint, request, RemoteBudget::ForMs(SHORT_CALL_MS));
	(void)reply.IsOk();
}

void RemoteCluster::Heartbeat(RemoteSession &session) {
	MessageHeader header;
	header.connection_id = session.connection_id;
	RemoteRequest request;
	request.body = EncodeEmpty(header, MessageType::HeartbeatRequest);
	auto reply = Send(session.endpoint, request, RemoteBudget::ForMs(SHORT_CALL_MS));
	if (reply.IsOk()) {
		session.last_use = Now();
		session.lost = session.lost || reply.Value().IsSessionLost();
	}
}

void RemoteCluster::HeartbeatLoop() {
	while (true) {
		{
			std::unique_lock<std::mutex> guard(stop_lock);
			auto pause = std::chrono::milliseconds(lease_s.load() * 1000 / 6 + 1);
			if (stop_signal.wait_for(guard, pause, [&] { return stopping.load(); })) {
				return;
			}
		}
		auto now = Now();
		auto due = static_cast<MonotonicNs>(lease_s.load()) * NS_PER_SECOND / 6;
		std::vector<std::shared_ptr<RemoteSession>> live, expired;
		{
			std::lock_guard<std::mutex> guard(lock);
			for (size_t i = sessions.size(); i-- > 0;) {
				auto session = sessions[i].lock();
				if (!session || session->lost) {
					sessions.erase(sessions.begin() + static_cast<ptrdiff_t>(i));
				} else if (now - session->last_use >= due) {
					live.push_back(session);
				}
			}
			while (idle.size() > 1 && now - idle.front()->released_at > IDLE_SESSION_LIFETIME) {
				expired.push_back(idle.front());
				idle.erase(idle.begin());
			}
		}
		for (auto &session : live) {
			Heartbeat(*session);
		}
		for (auto &session : expired) {
			Discard(session);
		}
	}
}

void RemoteCluster::Shutdown() {
	{
		std::lock_guard<std::mutex> guard(stop_lock);
		stopping = true;
	}
	stop_signal.notify_all();
	if (heartbeat_thread.joinable()) {
		heartbeat_thread.join();
	}
	std::vector<std::shared_ptr<RemoteSession>> old;
	{
		std::lock_guard<std::mutex> guard(lock);
		old.swap(idle);
	}
	for (auto &session : old) {
		Discard(session);
	}
	http->Clear();
}

} // namespace sql
} // namespace quack
