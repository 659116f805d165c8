#include "quack/sql/remote_http.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "quack/sql/quack_message.hpp"
#include "quack/sql/remote_tls.hpp"

namespace quack {
namespace sql {

constexpr int POLL_SLICE_MS = 20;
constexpr uint64_t CONNECT_TIMEOUT_MS = 3000;
constexpr size_t IDLE_CONNECTIONS_MAX = 8;
//! Shorter than the keep-alive of any server we know, so that a reused connection is rarely a closed one.
constexpr MonotonicNs IDLE_LIFETIME = 4 * NS_PER_SECOND;
constexpr uint64_t REPLY_BYTES_MAX = uint64_t(1) << 31;
constexpr size_t HEADER_BYTES_MAX = 64 * 1024;

static MonotonicNs Now() {
	return SystemClock().Now();
}

RemoteBudget RemoteBudget::ForMs(uint64_t timeout_ms, std::function<bool()> interrupted) {
	RemoteBudget result;
	result.deadline = Now() + static_cast<MonotonicNs>(timeout_ms) * NS_PER_MS;
	result.interrupted = std::move(interrupted);
	return result;
}

bool RemoteBudget::Expired() const {
	return deadline != 0 && Now() >= deadline;
}

uint64_t RemoteBudget::LeftMs() const {
	if (deadline == 0) {
		return uint64_t(1) << 40;
	}
	auto left = deadline - Now();
	return left <= 0 ? 0 : static_cast<uint64_t>(left / NS_PER_MS);
}

void AcceptedNames::Add(const std::string &name) {
	std::lock_guard<std::mutex> guard(lock);
	if (std::find(names.begin(), names.end(), name) == names.end()) {
		names.push_back(name);
	}
}

std::vector<std::string> AcceptedNames::List() const {
	std::lock_guard<std::mutex> guard(lock);
	return names;
}

//! One socket with optional TLS. Every wait is a poll in slices, so that interrupt and deadline are seen.
class HttpPool::Connection {
public:
	Connection(int fd_p, std::string peer_p) : fd(fd_p), peer(std::move(peer_p)) {
	}
	~Connection() {
		SSL_free(ssl);
		close(fd);
	}

	static Result<std::unique_ptr<Connection>> Open(const RemoteEndpoint &endpoint, const TlsClientContext *tls,
	                                                const std::vector<std::string> &accepted,
	                                                const RemoteBudget &budget);
	//! Unavailable when not even the first byte could be written, OutcomeUnknown afterwards.
	Status Send(const std::string &bytes, const RemoteBudget &budget);
	Result<HttpReply> ReadReply(const RemoteBudget &budget);

	//! Whether the peer closed an idle connection, or sent something unasked.
	bool IsStale() const {
		pollfd item {fd, POLLIN, 0};
		return poll(&item, 1, 0) != 0;
	}

	MonotonicNs last_use = 0;
	bool keep_alive = true;

private:
	Status Wait(short events, const RemoteBudget &budget, ErrorCode late);
	Status Handshake(const TlsClientContext &tls, const RemoteEndpoint &endpoint,
	                 const std::vector<std::string> &accepted, const RemoteBudget &budget);
	//! Appends at least one byte to `buffer`; sets `closed` at the end of the stream instead.
	Status Receive(const RemoteBudget &budget, bool &closed);
	Status FillUntil(size_t size, const RemoteBudget &budget);
	Status ReadHeader(HttpReply &reply, const RemoteBudget &budget);
	Status ReadChunked(HttpReply &reply, const RemoteBudget &budget);

	int fd;
	std::string peer;
	SSL *ssl = nullptr;
	std::string buffer; //! received, not yet consumed
};

struct HttpPool::Idle {
	RemoteEndpoint endpoint;
	std::unique_ptr<Connection> connection;
};

Status HttpPool::Connection::Wait(short events, const RemoteBudget &budget, ErrorCode late) {
	while (true) {
		pollfd item {fd, events, 0};
		auto ready = poll(&item, 1, POLL_SLICE_MS);
		if (ready > 0) {
			return Status::Ok();
		}
		if (ready < 0 && errno != EINTR) {
			return Status(ErrorCode::OutcomeUnknown, "poll on the connection to " + peer + ": " + strerror(errno));
		}
		if (budget.Interrupted()) {
			return Status(ErrorCode::Cancelled, "interrupted while waiting for node " + peer);
		}
		if (budget.Expired()) {
			return Status(late, "no answer from node " + peer + " before the deadline");
		}
	}
}

static void TuneSocket(int fd) {
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	// A peer whose machine vanished is noticed within half a minute, however long its answer may take.
	int idle_s = 10, interval_s = 5, count = 3;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	unsigned int unacked_ms = 20000;
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
}

//! A non-blocking socket connected to one address, or -1 with `error` set.
static int ConnectAddress(const addrinfo &address, const RemoteBudget &budget, std::string &error, bool &interrupted) {
	int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
	if (fd < 0) {
		error = strerror(errno);
		return -1;
	}
	TuneSocket(fd);
	auto deadline = Now() + static_cast<MonotonicNs>(CONNECT_TIMEOUT_MS) * NS_PER_MS;
	if (connect(fd, address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
		error = strerror(errno);
		close(fd);
		return -1;
	}
	while (true) {
		pollfd item {fd, POLLOUT, 0};
		auto ready = poll(&item, 1, POLL_SLICE_MS);
		interrupted = budget.Interrupted();
		if (ready > 0) {
			int failure = 0;
			socklen_t size = sizeof(failure);
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
			if (failure == 0) {
				return fd;
			}
			error = strerror(failure);
			break;
		}
		if (interrupted || budget.Expired() || Now() >= deadline) {
			error = interrupted ? "interrupted" : "no answer in time";
			break;
		}
	}
	close(fd);
	return -1;
}

Result<std::unique_ptr<HttpPool::Connection>> HttpPool::Connection::Open(const RemoteEndpoint &endpoint,
                                                                         const TlsClientContext *tls,
                                                                         const std::vector<std::string> &accepted,
                                                                         const RemoteBudget &budget) {
	addrinfo hints {};
	hints.ai_socktype = SOCK_STREAM;
	addrinfo *found = nullptr;
	auto failure = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
	if (failure != 0) {
		return Status(ErrorCode::Unavailable,
		              "cannot resolve host \"" + endpoint.host + "\": " + std::string(gai_strerror(failure)));
	}
	std::string error = "no address";
	int fd = -1;
	bool interrupted = false;
	for (auto address = found; address && fd < 0 && !interrupted; address = address->ai_next) {
		fd = ConnectAddress(*address, budget, error, interrupted);
	}
	freeaddrinfo(found);
	if (fd < 0) {
		return Status(interrupted ? ErrorCode::Cancelled : ErrorCode::Unavailable,
		              "cannot connect to node " + endpoint.ToString() + ": " + error);
	}
	std::unique_ptr<Connection> result(new Connection(fd, endpoint.ToString()));
	if (tls) {
		auto status = result->Handshake(*tls, endpoint, accepted, budget);
		if (!status.IsOk()) {
			return status;
		}
	}
	return result;
}

Status HttpPool::Connection::Handshake(const TlsClientContext &tls, const RemoteEndpoint &endpoint,
                                       const std::vector<std::string> &accepted, const RemoteBudget &budget) {
	ssl = tls.NewSession(endpoint.host);
	if (!ssl || SSL_set_fd(ssl, fd) != 1) {
		return Status(ErrorCode::Internal, "cannot start a TLS session");
	}
	while (true) {
		auto result = SSL_connect(ssl);
		if (result == 1) {
			return tls.CheckPeer(ssl, endpoint.host, accepted);
		}
		auto reason = SSL_get_error(ssl, result);
		if (reason == SSL_ERROR_SYSCALL && SSL_get_verify_result(ssl) == X509_V_OK) {
			return Status(ErrorCode::Unavailable, "node " + peer +
			                                          " closed the connection during the TLS handshake; does it speak "
			                                          "TLS? (plain nodes need plaintext true)");
		}
		if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) {
			return tls.ExplainHandshakeFailure(ssl, peer);
		}
		auto status = Wait(reason == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, budget, ErrorCode::Unavailable);
		if (!status.IsOk()) {
			return status;
		}
	}
}

Status HttpPool::Connection::Send(const std::string &bytes, const RemoteBudget &budget) {
	size_t sent = 0;
	while (sent < bytes.size()) {
		auto left = bytes.size() - sent;
		ssize_t count;
		short wanted = POLLOUT;
		if (ssl) {
			count = SSL_write(ssl, bytes.data() + sent, static_cast<int>(std::min<size_t>(left, 1 << 30)));
			auto reason = count > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, static_cast<int>(count));
			wanted = reason == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
			if (count <= 0 && reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) {
				return Status(sent == 0 ? ErrorCode::Unavailable : ErrorCode::OutcomeUnknown,
				              "the TLS connection to node " + peer + " broke while sending");
			}
		} else {
			count = send(fd, bytes.data() + sent, left, MSG_NOSIGNAL);
			if (count < 0 && errno != EAGAIN && errno != EINTR) {
				return Status(sent == 0 ? ErrorCode::Unavailable : ErrorCode::OutcomeUnknown,
				              "the connection to node " + peer + " broke while sending: " + strerror(errno));
			}
		}
		if (count > 0) {
			sent += static_cast<size_t>(count);
			continue;
		}
		auto status = Wait(wanted, budget, ErrorCode::DeadlineExceeded);
		if (!status.IsOk()) {
			return status;
		}
	}
	return Status::Ok();
}

Status HttpPool::Connection::Receive(const RemoteBudget &budget, bool &closed) {
	char block[64 * 1024];
	closed = false;
	while (true) {
		ssize_t count;
		short wanted = POLLIN;
		bool wait;
		if (ssl) {
			count = SSL_read(ssl, block, sizeof(block));
			auto reason = count > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, static_cast<int>(count));
			wanted = reason == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
			wait = reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE;
		} else {
			count = recv(fd, block, sizeof(block), 0);
			wait = count < 0 && (errno == EAGAIN || errno == EINTR);
		}
		if (count > 0) {
			buffer.append(block, static_cast<size_t>(count));
			return Status::Ok();
		}
		if (!wait) {
			closed = true;
			return Status::Ok();
		}
		auto status = Wait(wanted, budget, ErrorCode::DeadlineExceeded);
		if (!status.IsOk()) {
			return status;
		}
	}
}

Status HttpPool::Connection::FillUntil(size_t size, const RemoteBudget &budget) {
	while (buffer.size() < size) {
		bool closed;
		auto status = Receive(budget, closed);
		if (!status.IsOk()) {
			return status;
		}
		if (closed) {
			return Status(ErrorCode::OutcomeUnknown,
			              "node " + peer + " closed the connection in the middle of an answer");
		}
	}
	return Status::Ok();
}

static std::string Lowered(std::string text) {
	for (auto &c : text) {
		c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
	}
	return text;
}

Status HttpPool::Connection::ReadHeader(HttpReply &reply, const RemoteBudget &budget) {
	size_t end;
	while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
		bool plausible = buffer.compare(0, 5, "HTTP/", std::min<size_t>(5, buffer.size())) == 0;
		if (!plausible || buffer.size() > HEADER_BYTES_MAX) {
			return Status(ErrorCode::Incompatible,
			              "node " + peer +
			                  " does not answer in HTTP. If it speaks TLS, give client_ca_file (and server_name) in "
			                  "ATTACH; otherwise check the port");
		}
		bool closed;
		auto status = Receive(budget, closed);
		if (!status.IsOk()) {
			return status;
		}
		if (closed) {
			return Status(ErrorCode::OutcomeUnknown, "node " + peer + " closed the connection without an answer");
		}
	}
	auto head = buffer.substr(0, end);
	buffer.erase(0, end + 4);
	reply.status = head.size() >= 12 ? int(strtol(head.c_str() + 9, nullptr, 10)) : 0;
	size_t position = head.find("\r\n");
	while (position != std::string::npos) {
		auto start = position + 2;
		position = head.find("\r\n", start);
		auto line = head.substr(start, position == std::string::npos ? std::string::npos : position - start);
		auto colon = line.find(':');
		if (colon != std::string::npos) {
			auto value_at = line.find_first_not_of(" \t", colon + 1);
			reply.headers[Lowered(line.substr(0, colon))] =
			    value_at == std::string::npos ? std::string() : line.substr(value_at);
		}
	}
	return Status::Ok();
}

Status HttpPool::Connection::ReadChunked(HttpReply &reply, const RemoteBudget &budget) {
	while (true) {
		size_t end;
		while ((end = buffer.find("\r\n")) == std::string::npos) {
			auto status = FillUntil(buffer.size() + 1, budget);
			if (!status.IsOk()) {
				return status;
			}
		}
		auto size = strtoull(buffer.c_str(), nullptr, 16);
		buffer.erase(0, end + 2);
		if (reply.body.size() + size > REPLY_BYTES_MAX) {
			return Status(ErrorCode::Incompatible, "the answer of node " + peer + " is larger than 2 GiB");
		}
		auto status = FillUntil(size + 2, budget);
		if (!status.IsOk()) {
			return status;
		}
		reply.body.append(buffer, 0, size);
		buffer.erase(0, size + 2);
		if (size == 0) {
			return Status::Ok();
		}
	}
}

Result<HttpReply> HttpPool::Connection::ReadReply(const RemoteBudget &budget) {
	HttpReply reply;
	auto status = ReadHeader(reply, budget);
	if (!status.IsOk()) {
		return status;
	}
	keep_alive = Lowered(reply.headers["connection"]) != "close";
	if (Lowered(reply.headers["transfer-encoding"]) == "chunked") {
		status = ReadChunked(reply, budget);
		return status.IsOk() ? Result<HttpReply>(std::move(reply)) : Result<HttpReply>(status);
	}
	auto size = strtoull(reply.headers["content-length"].c_str(), nullptr, 10);
	if (size > REPLY_BYTES_MAX) {
		return Status(ErrorCode::Incompatible, "the answer of node " + peer + " is larger than 2 GiB");
	}
	buffer.reserve(size);
	status = FillUntil(size, budget);
	if (!status.IsOk()) {
		return status;
	}
	reply.body = std::move(buffer);
	buffer = reply.body.size() > size ? reply.body.substr(size) : std::string();
	reply.body.resize(size);
	return reply;
}

HttpPool::HttpPool() = default;
HttpPool::~HttpPool() = default;

Result<std::unique_ptr<HttpPool>> HttpPool::Create(const RemoteOptions &options) {
	std::unique_ptr<HttpPool> result(new HttpPool());
	if (options.use_tls) {
		auto tls = TlsClientContext::Create(options);
		if (!tls.IsOk()) {
			return tls.GetStatus();
		}
		result->tls = std::move(tls.Value());
	}
	for (auto &name : options.server_names) {
		result->names.Add(name);
	}
	if (options.server_names.empty()) {
		for (auto &host : options.hosts) {
			result->names.Add(host.host);
		}
	}
	return result;
}

std::unique_ptr<HttpPool::Connection> HttpPool::TakeIdle(const RemoteEndpoint &endpoint) {
	std::unique_ptr<Connection> result;
	std::vector<Idle> dead; // closed after the lock is free
	std::lock_guard<std::mutex> guard(lock);
	auto now = Now();
	for (size_t i = idle.size(); i-- > 0;) {
		if (now - idle[i].connection->last_use > IDLE_LIFETIME || idle[i].connection->IsStale()) {
			dead.push_back(std::move(idle[i]));
			idle.erase(idle.begin() + static_cast<ptrdiff_t>(i));
		} else if (!result && idle[i].endpoint == endpoint) {
			result = std::move(idle[i].connection);
			idle.erase(idle.begin() + static_cast<ptrdiff_t>(i));
		}
	}
	return result;
}

void HttpPool::PutIdle(const RemoteEndpoint &endpoint, std::unique_ptr<Connection> connection) {
	connection->last_use = Now();
	std::lock_guard<std::mutex> guard(lock);
	if (idle.size() < IDLE_CONNECTIONS_MAX) {
		idle.push_back(Idle {endpoint, std::move(connection)});
	}
}

void HttpPool::Clear() {
	std::vector<Idle> old;
	std::lock_guard<std::mutex> guard(lock);
	old.swap(idle);
}

Result<HttpReply> HttpPool::Post(const RemoteEndpoint &endpoint, const HttpHeaders &headers, const std::string &body,
                                 const RemoteBudget &budget) {
	std::string message = std::string("POST ") + QUACK_HTTP_PATH + " HTTP/1.1\r\nHost: " + endpoint.ToString() +
	                      "\r\nAccept: */*\r\nContent-Type: " + QUACK_REQUEST_CONTENT_TYPE +
	                      "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
	for (auto &header : headers) {
		message += header.first + ": " + header.second + "\r\n";
	}
	message += "\r\n";
	message += body;
	for (int attempt = 0;; attempt++) {
		auto connection = attempt == 0 ? TakeIdle(endpoint) : nullptr;
		bool reused = connection != nullptr;
		if (!connection) {
			auto accepted = names.List();
			auto opened = Connection::Open(endpoint, tls.get(), accepted, budget);
			if (!opened.IsOk()) {
				return opened.GetStatus();
			}
			connection = std::move(opened.Value());
		}
		auto status = connection->Send(message, budget);
		if (status.Code() == ErrorCode::Unavailable && reused) {
			continue; // nothing left this side: the idle connection was already dead
		}
		if (!status.IsOk()) {
			return status;
		}
		auto reply = connection->ReadReply(budget);
		if (reply.IsOk() && connection->keep_alive) {
			PutIdle(endpoint, std::move(connection));
		}
		return reply;
	}
}

} // namespace sql
} // namespace quack
