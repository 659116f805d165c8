#include "quack/transport/inbound_session.hpp"

#include <algorithm>
#include <cstdlib>

#include "quack/common/log.hpp"

namespace quack {
namespace transport {

namespace {

constexpr int HTTP_OK = 200;
constexpr int HTTP_FORBIDDEN = 403;
constexpr int HTTP_NOT_FOUND = 404;
constexpr int HTTP_CONFLICT = 409;
constexpr int HTTP_TOO_LARGE = 413;
constexpr int HTTP_MISDIRECTED = 421;
constexpr int HTTP_OVERLOADED = 503;
constexpr MonotonicNs NS_PER_US = 1000;

//! Brings one answer to the event loop exactly once, also when the handler forgets it.
class CallAnswer {
public:
	CallAnswer(std::shared_ptr<asio::io_context> io_p, std::weak_ptr<InboundSession> session_p, int32_t stream_p)
	    : io(std::move(io_p)), session(std::move(session_p)), stream(stream_p) {
	}
	~CallAnswer() {
		if (!is_answered) {
			Give(Status(ErrorCode::Internal, "the call's handler dropped its responder without an answer"));
		}
	}
	void Give(Result<std::string> result) {
		if (is_answered.exchange(true)) {
			Log(LogLevel::Error, "transport", "call_answered_twice", {});
			return;
		}
		auto shared = std::make_shared<Result<std::string>>(std::move(result));
		asio::post(*io, [target = session, id = stream, shared] {
			if (auto live = target.lock()) {
				live->Answer(id, std::move(*shared));
			}
		});
	}

private:
	const std::shared_ptr<asio::io_context> io;
	const std::weak_ptr<InboundSession> session;
	const int32_t stream;
	std::atomic<bool> is_answered {false};
};

} // namespace

InboundSession::InboundSession(TransportCore &core_p, InboundOwner &owner_p, std::shared_ptr<Connection> connection_p)
    : SessionBase(core_p, std::move(connection_p), Http2Session::Side::Server), owner(owner_p),
      begun_at(core_p.clock.Now()) {
}

void InboundSession::Begin(ByteView first_bytes) {
	connection->SetEvents(weak_from_this());
	if (connection->Channel()) {
		presented = connection->Channel()->Presented();
	}
	StartTicks();
	if (!first_bytes.empty()) {
		OnBytes(first_bytes);
	}
}

InboundSession::StreamState InboundSession::Classify(const std::string &path, const Http2Headers &headers) {
	StreamState state;
	auto is_up = !peer.empty();
	if (path == HELLO_PATH && !is_up) {
		state.kind = StreamKind::Hello;
		claimed = FindHeader(headers, FROM_HEADER);
		claimed_target = FindHeader(headers, TO_HEADER);
	} else if (path == REFUSE_PATH && !is_up) {
		state.kind = StreamKind::Refuse;
		claimed = FindHeader(headers, FROM_HEADER);
	} else if (is_up && (path == URGENT_PATH || path == BULK_PATH)) {
		state.kind = StreamKind::Messages;
		state.assembler = std::make_unique<MessageAssembler>(core.config.message_bytes_max);
	} else if (is_up && path.compare(0, std::strlen(CALL_PREFIX), CALL_PREFIX) == 0) {
		state.kind = StreamKind::Call;
		state.method = path.substr(std::strlen(CALL_PREFIX));
		auto timeout_us = std::strtoll(FindHeader(headers, TIMEOUT_HEADER).c_str(), nullptr, 10);
		constexpr long long TIMEOUT_US_MAX = 24LL * 3600 * 1000 * 1000;
		state.deadline = core.clock.Now() + std::min(std::max(timeout_us, 0LL), TIMEOUT_US_MAX) * NS_PER_US;
	}
	return state;
}

void InboundSession::OnHeaders(int32_t stream, const Http2Headers &headers) {
	if (is_over) {
		return;
	}
	auto path = FindHeader(headers, ":path");
	auto &state = streams[stream] = Classify(path, headers);
	if (state.kind != StreamKind::Rejected) {
		return;
	}
	if (peer.empty()) {
		RefuseDialer(stream, HTTP_FORBIDDEN,
		             "HTTP/2 on this port is for cluster peers, which begin with POST " + std::string(HELLO_PATH) +
		                 "; this request asked for " + Printable(path, 128) +
		                 "; clients use HTTP/1.1 (do not offer h2 alone in ALPN)");
		return;
	}
	Reject(stream, HTTP_NOT_FOUND, "node '" + core.config.node_id + "' knows no path " + Printable(path, 128));
}

void InboundSession::OnData(int32_t stream, ByteView bytes) {
	auto entry = streams.find(stream);
	if (is_over || entry == streams.end()) {
		return;
	}
	auto &state = entry->second;
	switch (state.kind) {
	case StreamKind::Hello:
		ReceiveBody(stream, state, bytes, HELLO_BYTES_MAX);
		break;
	case StreamKind::Refuse:
		ReceiveBody(stream, state, bytes, WORDS_BYTES_MAX);
		break;
	case StreamKind::Call:
		ReceiveBody(stream, state, bytes, core.config.message_bytes_max);
		break;
	case StreamKind::Messages: {
		auto status = state.assembler->Feed(bytes, [this](std::string message) {
			counters->message_count++;
			core.handler.OnMessage(peer, std::move(message));
		});
		if (!status.IsOk()) {
			EndWithWords("from '" + peer + "': " + status.Message());
		}
		break;
	}
	case StreamKind::Rejected:
		break;
	}
}

void InboundSession::ReceiveBody(int32_t stream, StreamState &state, ByteView bytes, size_t size_max) {
	if (state.body.size() + bytes.size() > size_max) {
		Reject(stream, HTTP_TOO_LARGE,
		       "the request body is larger than " + std::to_string(size_max) + " bytes (message_bytes_max)");
		return;
	}
	auto total_max = core.config.message_bytes_max + core.config.send_queue_bytes_max;
	if (body_bytes + bytes.size() > total_max) {
		Reject(stream, HTTP_OVERLOADED,
		       "bodies of unfinished calls hold more than " + std::to_string(total_max) + " bytes; retry later");
		return;
	}
	body_bytes += bytes.size();
	state.body.append(bytes.data(), bytes.size());
}

void InboundSession::OnEnd(int32_t stream) {
	auto entry = streams.find(stream);
	if (is_over || entry == streams.end()) {
		return;
	}
	auto &state = entry->second;
	body_bytes -= state.kind == StreamKind::Rejected ? 0 : state.body.size();
	switch (state.kind) {
	case StreamKind::Hello:
		FinishHello(stream, state.body);
		break;
	case StreamKind::Refuse:
		FinishRefuse(stream, state.body);
		break;
	case StreamKind::Call:
		FinishCall(stream, state);
		break;
	case StreamKind::Messages:
		Break("'" + peer + "' ended its message stream");
		break;
	case StreamKind::Rejected:
		break;
	}
	state.body = std::string();
}

Status InboundSession::CheckDialer() const {
	if (claimed.empty() || claimed == core.config.node_id) {
		return Status(ErrorCode::Unauthorized, "the hello names the dialer '" + Printable(claimed, 256) +
		                                           "', expected the name of another node" +
		                                           "; fix: give every node its own node_id");
	}
	if (core.config.plaintext) {
		return Status::Ok(); // loopback only: the hello is all there is
	}
	return CheckPeerIdentity(presented, claimed);
}

void InboundSession::FinishHello(int32_t stream, ByteView hello) {
	if (!peer.empty()) {
		Reject(stream, HTTP_CONFLICT, "a second hello on one session");
		return;
	}
	auto status = CheckDialer();
	if (!status.IsOk()) {
		RefuseDialer(stream, HTTP_FORBIDDEN, status.Message());
		return;
	}
	if (claimed_target != core.config.node_id) {
		RefuseDialer(stream, HTTP_MISDIRECTED,
		             "'" + Printable(claimed, 256) + "' dialed node '" + Printable(claimed_target, 256) +
		                 "' but this is node '" + core.config.node_id + "'; fix: correct the address of '" +
		                 Printable(claimed_target, 256) + "' in the peers list of '" + Printable(claimed, 256) + "'");
		return;
	}
	status = core.handler.CheckHello(claimed, hello);
	if (!status.IsOk()) {
		RefuseDialer(stream, HTTP_CONFLICT, "hello of '" + claimed + "' refused: " + status.Message());
		return;
	}
	peer = claimed;
	counters = owner.CountersOf(peer);
	http2.SubmitResponse(stream, HTTP_OK, {}, core.handler.LocalHello());
	owner.OnInboundUp(std::static_pointer_cast<InboundSession>(shared_from_this()));
}

void InboundSession::FinishRefuse(int32_t stream, ByteView words) {
	core.Refuse(RemoteText(), claimed,
	            "the dialer '" + Printable(claimed, 256) + "' refused this node: " + Printable(words, WORDS_BYTES_MAX));
	http2.SubmitResponse(stream, HTTP_OK, {}, "");
	EndAfterFlush();
	Leave("refused by the dialer");
}

void InboundSession::FinishCall(int32_t stream, StreamState &state) {
	counters->call_count++;
	auto answer =
	    std::make_shared<CallAnswer>(core.io, std::static_pointer_cast<InboundSession>(shared_from_this()), stream);
	auto left = std::max<MonotonicNs>(state.deadline - core.clock.Now(), 0);
	core.handler.OnCall(peer, state.method, std::move(state.body), left,
	                    [answer](Result<std::string> result) { answer->Give(std::move(result)); });
}

void InboundSession::Answer(int32_t stream, Result<std::string> result) {
	if (is_over || !streams.count(stream)) {
		return;
	}
	if (result.IsOk() && result.Value().size() > core.config.message_bytes_max) {
		result = Status(ErrorCode::InvalidArgument,
		                "the answer has " + std::to_string(result.Value().size()) + " bytes, at most " +
		                    std::to_string(core.config.message_bytes_max) + " may be sent (message_bytes_max)");
	}
	if (result.IsOk()) {
		http2.SubmitResponse(stream, HTTP_OK, {}, std::move(result.Value()));
	} else {
		auto &status = result.GetStatus();
		http2.SubmitResponse(stream, HTTP_OK, {{ERROR_HEADER, std::to_string(static_cast<int>(status.Code()))}},
		                     status.Message());
	}
	connection->Flush();
}

void InboundSession::Reject(int32_t stream, int http_status, const std::string &words) {
	auto &state = streams[stream];
	body_bytes -= state.kind == StreamKind::Rejected ? 0 : state.body.size();
	state = StreamState();
	auto code = http_status == HTTP_OVERLOADED ? ErrorCode::Overloaded : ErrorCode::InvalidArgument;
	http2.SubmitResponse(stream, http_status, {{ERROR_HEADER, std::to_string(static_cast<int>(code))}}, words);
}

void InboundSession::RefuseDialer(int32_t stream, int http_status, const std::string &words) {
	core.Refuse(RemoteText(), claimed, words);
	http2.SubmitResponse(stream, http_status, {}, words);
	http2.Goaway("");
	EndAfterFlush();
	Leave(words);
}

void InboundSession::EndWithWords(const std::string &words) {
	core.Refuse(RemoteText(), claimed, words);
	http2.Goaway(words);
	EndAfterFlush();
	Leave(words);
}

void InboundSession::OnStreamClosed(int32_t stream, uint32_t) {
	auto entry = streams.find(stream);
	if (entry == streams.end()) {
		return;
	}
	auto kind = entry->second.kind;
	body_bytes -= kind == StreamKind::Rejected ? 0 : entry->second.body.size();
	streams.erase(entry);
	if (kind == StreamKind::Messages && !is_over) {
		Break("'" + peer + "' reset its message stream");
	}
}

void InboundSession::OnTick() {
	if (peer.empty()) {
		if (core.clock.Now() - begun_at > core.config.handshake_timeout) {
			auto words = "no hello within " + std::to_string(core.config.handshake_timeout / NS_PER_MS) +
			             " ms (handshake_timeout)";
			core.Refuse(RemoteText(), claimed, words);
			Break(words);
		}
		return;
	}
	counters->last_receive = LastReceive();
}

void InboundSession::OnBroken(const std::string &reason) {
	Leave(reason);
}

void InboundSession::Leave(const std::string &reason) {
	if (is_gone) {
		return;
	}
	is_gone = true;
	owner.OnInboundGone(std::static_pointer_cast<InboundSession>(shared_from_this()), reason);
}

} // namespace transport
} // namespace quack
