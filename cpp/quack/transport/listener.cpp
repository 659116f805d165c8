#include "quack/transport/listener.hpp"

#include <algorithm>

#include "quack/common/log.hpp"

namespace quack {
namespace transport {

namespace {

constexpr auto ACCEPT_RETRY_DELAY = std::chrono::milliseconds(100);
constexpr ByteView HTTP2_PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr char TLS_HANDSHAKE_RECORD = 0x16;

bool LooksLikeHttp(ByteView bytes) {
	for (auto method : {"GET ", "POST ", "PUT ", "HEAD ", "OPTIONS ", "DELETE ", "PATCH ", "CONNECT ", "PRI "}) {
		auto word = ByteView(method);
		auto size = std::min(word.size(), bytes.size());
		if (size > 0 && bytes.substr(0, size) == word.substr(0, size)) {
			return true;
		}
	}
	return false;
}

std::string HttpAnswer(const std::string &status_line, const std::string &words) {
	auto body = words + "\n";
	return "HTTP/1.1 " + status_line +
	       "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " + std::to_string(body.size()) +
	       "\r\nConnection: close\r\n\r\n" + body;
}

} // namespace

Listener::Listener(TransportCore &core_p, InboundOwner &owner_p)
    : core(core_p), owner(owner_p), acceptor(*core_p.io), retry_timer(*core_p.io), streams(core_p) {
}

Status Listener::Open() {
	auto &config = core.config;
	auto where = config.listen_host + ":" + std::to_string(config.listen_port);
	asio::error_code error;
	asio::ip::tcp::resolver resolver(*core.io);
	auto found = resolver.resolve(config.listen_host, std::to_string(config.listen_port),
	                              asio::ip::resolver_base::passive, error);
	if (error || found.empty()) {
		return Status(ErrorCode::InvalidArgument, "cannot listen on '" + config.listen_host +
		                                              "': not an address or name of this host (" + error.message() +
		                                              "); use 0.0.0.0 for all addresses");
	}
	auto endpoint = found.begin()->endpoint();
	if (config.plaintext && !endpoint.address().is_loopback()) {
		return Status(ErrorCode::InvalidArgument,
		              "plain text without TLS is for loopback only, but the listen address is " + config.listen_host +
		                  "; fix: listen on 127.0.0.1 or configure tls");
	}
	acceptor.open(endpoint.protocol(), error);
	if (!error) {
		acceptor.set_option(asio::ip::tcp::acceptor::reuse_address(true), error);
	}
	if (!error) {
		acceptor.bind(endpoint, error);
	}
	if (!error) {
		acceptor.listen(asio::socket_base::max_listen_connections, error);
	}
	if (error) {
		auto fix = error == asio::error::address_in_use
		               ? "; another process holds the port: stop it (ss -ltnp shows it) or configure another port, 0 "
		                 "takes any free one"
		               : "; check that the address belongs to this host and that the port may be used";
		return Status(ErrorCode::IoError, "cannot listen on " + where + ": " + error.message() + fix);
	}
	port = acceptor.local_endpoint(error).port();
	return Status::Ok();
}

void Listener::Start() {
	AcceptMore();
}

void Listener::AcceptMore() {
	acceptor.async_accept([this](const asio::error_code &error, asio::ip::tcp::socket socket) {
		if (!is_closed) {
			HandleAccept(error, std::move(socket));
		}
	});
}

void Listener::HandleAccept(const asio::error_code &error, asio::ip::tcp::socket socket) {
	if (error) {
		Log(LogLevel::Error, "transport", "accept_failed",
		    {{"node", core.config.node_id}, {"reason", error.message() + "; retried in 100 ms (raise ulimit -n?)"}});
		retry_timer.expires_after(ACCEPT_RETRY_DELAY);
		retry_timer.async_wait([this](const asio::error_code &cancelled) {
			if (!cancelled && !is_closed) {
				AcceptMore();
			}
		});
		return;
	}
	auto connection = std::make_shared<Connection>(core.io, std::move(socket));
	if (pending.size() >= core.config.handshakes_max) {
		// The oldest goes: slow connections then cannot keep peers out.
		auto oldest = pending.begin()->second;
		oldest->Refuse("the oldest of more than " + std::to_string(core.config.handshakes_max) +
		                   " unfinished handshakes (handshakes_max) made room",
		               nullptr);
	}
	auto number = ++accept_number;
	auto handshake = std::make_shared<InboundHandshake>(core, *this, number, connection);
	pending[number] = handshake;
	pending_count = pending.size();
	handshake->Begin();
	AcceptMore();
}

void Listener::Close() {
	is_closed = true;
	asio::error_code ignored;
	acceptor.close(ignored);
	retry_timer.cancel();
	auto leaving = pending;
	for (auto &entry : leaving) {
		entry.second->Close();
	}
}

InboundHandshake::InboundHandshake(TransportCore &core_p, Listener &listener_p, uint64_t number_p,
                                   std::shared_ptr<Connection> connection_p)
    : core(core_p), listener(listener_p), number(number_p), connection(std::move(connection_p)), timer(*core_p.io) {
}

void InboundHandshake::Begin() {
	connection->SetEvents(weak_from_this());
	auto self = shared_from_this();
	timer.expires_after(Nanoseconds(core.config.handshake_timeout));
	timer.async_wait([self](const asio::error_code &error) {
		if (!error && !self->is_left) {
			self->Refuse("no finished handshake within " +
			                 std::to_string(self->core.config.handshake_timeout / NS_PER_MS) +
			                 " ms (handshake_timeout), " + std::to_string(self->first_bytes.size()) +
			                 " bytes came before TLS",
			             nullptr);
		}
	});
	connection->Start();
}

void InboundHandshake::Leave() {
	is_left = true;
	timer.cancel();
	listener.pending.erase(number);
	listener.pending_count = listener.pending.size();
}

void InboundHandshake::Close() {
	auto self = shared_from_this();
	connection->Close();
	Leave();
}

void InboundHandshake::OnClosed(const std::string &reason) {
	auto self = shared_from_this();
	// A bare connect and close (a port probe) is no refusal.
	if (!is_left && is_tls_started) {
		core.Refuse(connection->RemoteText(), "", reason);
	}
	Leave();
}

void InboundHandshake::OnBytes(ByteView bytes) {
	first_bytes.append(bytes.data(), bytes.size());
	if (core.config.plaintext) {
		SortPlainText();
	} else if (!is_tls_started) {
		SortBeforeTls();
	}
}

void InboundHandshake::SortBeforeTls() {
	if (first_bytes[0] == TLS_HANDSHAKE_RECORD && (first_bytes.size() < 2 || first_bytes[1] == 0x03)) {
		is_tls_started = true;
		core.tls.Refresh(false);
		auto channel = std::make_unique<TlsChannel>(core.tls.Current(), TlsChannel::Side::Server, "");
		auto already_read = std::move(first_bytes);
		connection->StartTls(std::move(channel), already_read);
		return;
	}
	if (LooksLikeHttp(first_bytes)) {
		Refuse("plain HTTP came to the TLS port of node '" + core.config.node_id + "'; use https (TLS)",
		       "400 Bad Request");
		return;
	}
	Refuse("the first bytes are neither TLS nor HTTP: '" + Printable(first_bytes, 16) + "'", nullptr);
}

void InboundHandshake::SortPlainText() {
	auto size = std::min(first_bytes.size(), HTTP2_PREFACE.size());
	auto is_preface_so_far = ByteView(first_bytes).substr(0, size) == HTTP2_PREFACE.substr(0, size);
	if (is_preface_so_far && size == HTTP2_PREFACE.size()) {
		BecomePeer(first_bytes);
	} else if (!is_preface_so_far && first_bytes[0] == TLS_HANDSHAKE_RECORD) {
		Refuse("TLS came to the plain-text port of node '" + core.config.node_id +
		           "'; fix: use http, or configure tls on this node",
		       nullptr);
	} else if (!is_preface_so_far) {
		BecomeByteStream(std::move(first_bytes));
	}
}

void InboundHandshake::OnHandshake() {
	auto self = shared_from_this();
	if (connection->Channel()->Alpn() == "h2") {
		BecomePeer(ByteView());
		return;
	}
	auto status = CheckClientCertificate(connection->Channel()->Presented());
	if (!status.IsOk()) {
		Refuse(status.Message(), "403 Forbidden");
	} else {
		BecomeByteStream("");
	}
}

void InboundHandshake::BecomePeer(ByteView bytes) {
	auto self = shared_from_this();
	Leave();
	auto session = std::make_shared<InboundSession>(core, listener.owner, connection);
	listener.owner.OnInboundBegun(session);
	session->Begin(bytes);
}

void InboundHandshake::BecomeByteStream(std::string bytes) {
	auto self = shared_from_this();
	if (listener.streams.Count() >= core.config.byte_streams_max) {
		Refuse("more than " + std::to_string(core.config.byte_streams_max) +
		           " client connections (byte_streams_max); retry later",
		       "503 Service Unavailable");
		return;
	}
	std::string node_id;
	if (connection->Channel()) {
		auto presented = connection->Channel()->Presented();
		node_id = presented.is_present && !presented.facts.uri_names.empty() ? presented.facts.uri_names[0] : "";
	}
	Leave();
	auto stream = std::make_shared<SocketByteStream>(connection->Release(), std::move(bytes),
	                                                 connection->RemoteAddress(), connection->RemotePort(), node_id);
	if (!listener.streams.Run(stream)) {
		core.Refuse(connection->RemoteText(), "", "no thread for another client connection; retry later");
	}
}

void InboundHandshake::Refuse(const std::string &reason, const char *http_status_line) {
	auto self = shared_from_this();
	core.Refuse(connection->RemoteText(), "", reason);
	Leave();
	if (http_status_line) {
		connection->CloseAfterFlush(HttpAnswer(http_status_line, reason));
	} else {
		connection->Close();
	}
}

} // namespace transport
} // namespace quack
