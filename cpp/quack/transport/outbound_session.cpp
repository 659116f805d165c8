#include "quack/transport/outbound_session.hpp"

#include <algorithm>
#include <charconv>

namespace quack {
namespace transport {

namespace {

constexpr int HTTP_OK = 200;
constexpr MonotonicNs NS_PER_US = 1000;

//! The endless body of a message stream.
class LaneBody final : public Http2Body {
public:
	LaneBody(std::shared_ptr<MessageQueue> queue_p, Lane lane_p) : queue(std::move(queue_p)), lane(lane_p) {
	}
	size_t Read(char *buffer, size_t size, bool &) override {
		return queue->Read(lane, buffer, size);
	}

private:
	const std::shared_ptr<MessageQueue> queue;
	const Lane lane;
};

//! 0 when the text is no number.
int ParseNumber(const std::string &text) {
	int number = 0;
	std::from_chars(text.data(), text.data() + text.size(), number);
	return number;
}

Status StatusFromWire(int code, std::string words) {
	auto is_known = code > 0 && code <= static_cast<int>(ErrorCode::Internal);
	return Status(is_known ? static_cast<ErrorCode>(code) : ErrorCode::Internal, std::move(words));
}

} // namespace

OutboundSession::OutboundSession(TransportCore &core_p, std::weak_ptr<OutboundOwner> owner_p, std::string peer_p,
                                 std::shared_ptr<Connection> connection_p, std::shared_ptr<MessageQueue> queue_p)
    : SessionBase(core_p, std::move(connection_p), Http2Session::Side::Client), owner(std::move(owner_p)),
      peer(std::move(peer_p)), queue(std::move(queue_p)) {
}

void OutboundSession::Begin() {
	connection->SetEvents(weak_from_this());
	StartTicks();
	if (core.config.plaintext) {
		is_handshaken = true;
		SendHello();
	} else {
		connection->StartTls(std::make_unique<TlsChannel>(core.tls.Current(), TlsChannel::Side::Client, peer),
		                     ByteView());
	}
	connection->Start();
}

const char *OutboundSession::Phase() const {
	if (is_up) {
		return "up";
	}
	return is_handshaken ? "waiting for its hello" : "in the TLS handshake";
}

std::string OutboundSession::Target() const {
	return "peer '" + peer + "' at " + connection->RemoteText();
}

void OutboundSession::OnHandshake() {
	is_handshaken = true;
	auto alpn = connection->Channel()->Alpn();
	auto status = CheckPeerIdentity(connection->Channel()->Presented(), peer);
	if (alpn != "h2") {
		Break("it did not choose HTTP/2 (ALPN '" + Printable(alpn, 32) + "'); is another service listening there? " +
		      status.Message());
	} else if (!status.IsOk()) {
		RefuseListener(status.Message());
	} else {
		SendHello();
	}
}

void OutboundSession::SendHello() {
	auto stream = http2.SubmitRequest(HELLO_PATH, peer, {{FROM_HEADER, core.config.node_id}, {TO_HEADER, peer}},
	                                  std::make_unique<StringBody>(core.handler.LocalHello()), StreamWeight::Urgent);
	if (!stream.IsOk()) {
		Break(stream.GetStatus().Message());
		return;
	}
	hello_stream = stream.Value();
	exchanges[hello_stream].body_bytes_max = HELLO_BYTES_MAX;
}

void OutboundSession::FinishHello(Exchange &exchange) {
	hello_stream = -1;
	if (exchange.http_status != HTTP_OK) {
		Break("it refused this node: " + Printable(exchange.body, WORDS_BYTES_MAX));
		return;
	}
	auto status = core.handler.CheckHello(peer, exchange.body);
	if (!status.IsOk()) {
		RefuseListener("hello of '" + peer + "' refused: " + status.Message());
		return;
	}
	OpenLanes();
}

void OutboundSession::OpenLanes() {
	queue->Open();
	for (auto lane : {Lane::Urgent, Lane::Bulk}) {
		auto stream = http2.SubmitRequest(lane == Lane::Urgent ? URGENT_PATH : BULK_PATH, peer, {},
		                                  std::make_unique<LaneBody>(queue, lane),
		                                  lane == Lane::Urgent ? StreamWeight::Urgent : StreamWeight::Bulk);
		if (!stream.IsOk()) {
			Break(stream.GetStatus().Message());
			return;
		}
		lane_streams[static_cast<size_t>(lane)] = stream.Value();
	}
	is_up = true;
	if (auto heir = owner.lock()) {
		heir->OnSessionUp(*this);
	}
}

void OutboundSession::RefuseListener(const std::string &words) {
	auto stream = http2.SubmitRequest(REFUSE_PATH, peer, {{FROM_HEADER, core.config.node_id}, {TO_HEADER, peer}},
	                                  std::make_unique<StringBody>(words), StreamWeight::Urgent);
	static_cast<void>(stream); // without a stream the listener learns nothing; this side does
	EndAfterFlush();
	if (auto heir = owner.lock()) {
		heir->OnSessionDown(*this, Target() + ": " + words);
	}
}

void OutboundSession::Wake() {
	for (auto stream : lane_streams) {
		if (stream >= 0 && !is_over) {
			http2.Resume(stream);
		}
	}
	connection->Flush();
}

void OutboundSession::StartCall(PendingCall call) {
	auto left = call.deadline - core.clock.Now();
	if (left <= 0) {
		call.respond(Status(ErrorCode::DeadlineExceeded, "the deadline passed before the call was sent"));
		return;
	}
	auto stream =
	    http2.SubmitRequest(CALL_PREFIX + call.method, peer, {{TIMEOUT_HEADER, std::to_string(left / NS_PER_US)}},
		                    std::make_unique<StringBody>(std::move(call.body)), StreamWeight::Call);
	if (!stream.IsOk()) {
		call.respond(stream.GetStatus());
		Break(stream.GetStatus().Message()); // stream ids are used up: a new session has new ones
		return;
	}
	auto &exchange = exchanges[stream.Value()];
	exchange.body_bytes_max = core.config.message_bytes_max;
	exchange.respond = std::move(call.respond);
	ArmDeadline(stream.Value(), exchange, call.deadline);
	connection->Flush();
}

void OutboundSession::ArmDeadline(int32_t stream, Exchange &exchange, MonotonicNs deadline) {
	exchange.timer = std::make_unique<asio::steady_timer>(*core.io);
	exchange.timer->expires_after(Nanoseconds(deadline - core.clock.Now()));
	std::weak_ptr<SessionBase> weak = weak_from_this();
	exchange.timer->async_wait([this, weak, stream](const asio::error_code &error) {
		auto self = weak.lock();
		if (error || !self || is_over || !exchanges.count(stream)) {
			return;
		}
		FinishCall(stream, Status(ErrorCode::DeadlineExceeded,
		                          "no answer of '" + peer + "' before the deadline; the outcome is unknown"));
		http2.Reset(stream, NGHTTP2_CANCEL);
		connection->Flush();
	});
}

void OutboundSession::OnHeaders(int32_t stream, const Http2Headers &headers) {
	auto entry = exchanges.find(stream);
	if (entry == exchanges.end()) {
		return;
	}
	entry->second.http_status = ParseNumber(FindHeader(headers, ":status"));
	entry->second.error_code = ParseNumber(FindHeader(headers, ERROR_HEADER));
}

void OutboundSession::OnData(int32_t stream, ByteView bytes) {
	auto entry = exchanges.find(stream);
	if (is_over || entry == exchanges.end()) {
		return;
	}
	auto &exchange = entry->second;
	if (exchange.body.size() + bytes.size() <= exchange.body_bytes_max) {
		exchange.body.append(bytes.data(), bytes.size());
		return;
	}
	auto words = "'" + peer + "' answered with more than " + std::to_string(exchange.body_bytes_max) + " bytes";
	if (!exchange.respond) {
		Break(words);
		return;
	}
	FinishCall(stream, Status(ErrorCode::OutcomeUnknown, words + " (message_bytes_max); the answer was dropped"));
	http2.Reset(stream, NGHTTP2_CANCEL);
}

void OutboundSession::OnEnd(int32_t stream) {
	auto entry = exchanges.find(stream);
	if (is_over || entry == exchanges.end()) {
		return;
	}
	if (!entry->second.respond) {
		auto exchange = std::move(entry->second);
		exchanges.erase(entry);
		FinishHello(exchange);
		return;
	}
	auto &exchange = entry->second;
	if (exchange.http_status == HTTP_OK && exchange.error_code == 0) {
		FinishCall(stream, std::move(exchange.body));
	} else {
		FinishCall(stream, StatusFromWire(exchange.error_code, std::move(exchange.body)));
	}
}

void OutboundSession::FinishCall(int32_t stream, Result<std::string> result) {
	auto entry = exchanges.find(stream);
	auto respond = std::move(entry->second.respond);
	exchanges.erase(entry);
	respond(std::move(result));
}

Status OutboundSession::LostCall(int32_t stream, const std::string &reason) const {
	// The listener acts on whole requests only: one that did not leave whole was surely not seen.
	if (http2.IsSent(stream)) {
		return Status(ErrorCode::OutcomeUnknown, "'" + peer + "' did not answer a call that was sent: " + reason);
	}
	return Status(ErrorCode::Unavailable, "the call to '" + peer + "' was not sent: " + reason);
}

void OutboundSession::OnStreamClosed(int32_t stream, uint32_t error_code) {
	if (is_over) {
		return;
	}
	auto words = std::string("stream closed with ") + nghttp2_http2_strerror(error_code);
	auto entry = exchanges.find(stream);
	if (entry != exchanges.end() && entry->second.respond) {
		auto is_refused = error_code == NGHTTP2_REFUSED_STREAM;
		FinishCall(stream, is_refused ? Status(ErrorCode::Unavailable, "'" + peer + "' took no more calls: " + words)
		                              : LostCall(stream, words));
	} else if (stream == hello_stream || stream == lane_streams[0] || stream == lane_streams[1]) {
		Break("it ended the session: " + words);
	}
}

void OutboundSession::OnBroken(const std::string &cause) {
	auto reason = Target() + ": " + cause;
	if (!is_handshaken) {
		reason += "; no TLS handshake was finished: is it a plain-text port, another service, or overloaded?";
	}
	is_up = false;
	while (!exchanges.empty()) {
		auto stream = exchanges.begin()->first;
		if (exchanges.begin()->second.respond) {
			FinishCall(stream, LostCall(stream, reason));
		} else {
			exchanges.erase(stream);
		}
	}
	if (auto heir = owner.lock()) {
		heir->OnSessionDown(*this, reason);
	}
}

} // namespace transport
} // namespace quack
