#include "quack/transport/dialer.hpp"

#include <algorithm>

#include <openssl/rand.h>

#include "quack/common/log.hpp"

namespace quack {
namespace transport {

namespace {

constexpr MonotonicNs REPEATED_LOG_INTERVAL = 30 * NS_PER_SECOND;

uint64_t RandomSeed() {
	uint64_t seed = 0;
	RAND_bytes(reinterpret_cast<unsigned char *>(&seed), sizeof(seed));
	return seed;
}

} // namespace

PeerLink::PeerLink(TransportCore &core_p, PeerAddress address_p, std::shared_ptr<ReceiveCounters> counters_p)
    : core(core_p), peer(address_p.node_id), queue(std::make_shared<MessageQueue>(core_p.config.send_queue_bytes_max)),
      counters(std::move(counters_p)), dial_timer(*core_p.io), retry_timer(*core_p.io), resolver(*core_p.io),
      jitter(RandomSeed()), address(std::move(address_p)) {
	status.node_id = peer;
	status.last_error = "not dialed yet";
}

std::string PeerLink::AddressText() const {
	auto is_v6 = address.host.find(':') != std::string::npos;
	return (is_v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Status PeerLink::Send(Lane lane, std::string bytes) {
	if (bytes.size() > core.config.message_bytes_max) {
		return Status(ErrorCode::InvalidArgument,
		              "a message of " + std::to_string(bytes.size()) + " bytes for '" + peer + "' is larger than " +
		                  std::to_string(core.config.message_bytes_max) + " (message_bytes_max)");
	}
	bool needs_wake = false;
	auto pushed = queue->Push(lane, std::move(bytes), needs_wake);
	{
		std::lock_guard<std::mutex> guard(lock);
		if (!pushed.IsOk()) {
			status.dropped_messages++;
			return Status(pushed.Code(), "message to '" + peer + "' dropped: " + pushed.Message() +
			                                 (status.connected ? "" : "; last error: " + status.last_error));
		}
		status.sent_messages++;
	}
	if (needs_wake) {
		auto self = shared_from_this();
		asio::post(*core.io, [self] {
			self->queue->TakeWake();
			if (self->session) {
				self->session->Wake();
			}
		});
	}
	return Status::Ok();
}

void PeerLink::Call(const std::string &method, std::string body, MonotonicNs timeout, Responder respond) {
	auto size = body.size();
	Status refusal;
	{
		std::lock_guard<std::mutex> guard(lock);
		if (size > core.config.message_bytes_max) {
			refusal = Status(ErrorCode::InvalidArgument,
			                 "the call body has " + std::to_string(size) + " bytes, at most " +
			                     std::to_string(core.config.message_bytes_max) + " may be sent (message_bytes_max)");
		} else if (!status.connected) {
			refusal = Status(ErrorCode::Unavailable,
			                 "no session with '" + peer + "' at " + AddressText() + ": " + status.last_error);
		} else if (call_bytes > 0 && call_bytes + size > core.config.send_queue_bytes_max) {
			refusal = Status(ErrorCode::Overloaded, "calls to '" + peer + "' hold " + std::to_string(call_bytes) +
			                                            " bytes already (send_queue_bytes_max); retry later");
		} else {
			call_bytes += size;
		}
	}
	auto self = shared_from_this();
	if (!refusal.IsOk()) {
		asio::post(*core.io, [refusal, respond] { respond(refusal); });
		return;
	}
	auto call = std::make_shared<PendingCall>();
	call->method = method;
	call->body = std::move(body);
	call->deadline = core.clock.Now() + std::max<MonotonicNs>(timeout, 0);
	call->respond = [self, size, respond](Result<std::string> result) {
		{
			std::lock_guard<std::mutex> guard(self->lock);
			self->call_bytes -= size;
		}
		respond(std::move(result));
	};
	asio::post(*core.io, [self, call] {
		if (self->session && self->session->IsUp()) {
			self->session->StartCall(std::move(*call));
		} else {
			call->respond(
			    Status(ErrorCode::Unavailable, "the session with '" + self->peer + "' ended before the call"));
		}
	});
}

PeerStatus PeerLink::GetStatus() const {
	std::lock_guard<std::mutex> guard(lock);
	auto copy = status;
	copy.address = AddressText();
	copy.queue_bytes = queue->Bytes() + call_bytes;
	copy.received_messages = counters->message_count;
	copy.received_calls = counters->call_count;
	copy.inbound_connected = counters->is_inbound_up;
	copy.last_receive = std::max(copy.last_receive, counters->last_receive.load());
	return copy;
}

void PeerLink::Start() {
	if (is_stopped) {
		is_stopped = false;
		Dial();
	}
}

void PeerLink::Stop(const std::string &reason) {
	is_stopped = true;
	is_dialing = false;
	attempt_number++;
	dial_timer.cancel();
	retry_timer.cancel();
	resolver.cancel();
	if (connecting) {
		asio::error_code ignored;
		connecting->close(ignored);
		connecting.reset();
	}
	if (auto ending = session) {
		ending->Break(reason);
	}
}

void PeerLink::SetAddress(const PeerAddress &address_p) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (address.host == address_p.host && address.port == address_p.port) {
			return;
		}
		address = address_p;
	}
	last_endpoints.clear();
	Stop("the address of '" + peer + "' changed");
	failure_count = 0;
	Start();
}

void PeerLink::DialSoon() {
	if (!is_stopped && !is_dialing && !session) {
		failure_count = 0;
		retry_timer.cancel();
		Dial();
	}
}

void PeerLink::NoteInboundRefusal(const std::string &reason) {
	std::lock_guard<std::mutex> guard(lock);
	status.last_inbound_refusal = reason;
}

void PeerLink::Dial() {
	is_dialing = true;
	auto attempt = ++attempt_number;
	{
		std::lock_guard<std::mutex> guard(lock);
		status.dial_count++;
	}
	if (!core.config.plaintext) {
		core.tls.Refresh(false);
	}
	auto self = shared_from_this();
	dial_timer.expires_after(Nanoseconds(core.config.dial_timeout));
	dial_timer.async_wait([self, attempt](const asio::error_code &error) {
		if (!error && attempt == self->attempt_number && self->is_dialing) {
			self->DialTimedOut();
		}
	});
	Resolve(attempt);
}

void PeerLink::Resolve(uint64_t attempt) {
	asio::error_code error;
	auto literal = asio::ip::make_address(address.host, error);
	if (!error) {
		Connect(attempt, {asio::ip::tcp::endpoint(literal, address.port)});
		return;
	}
	dial_phase = "resolving the name";
	auto self = shared_from_this();
	resolver.async_resolve(address.host, std::to_string(address.port),
	                       [self, attempt](const asio::error_code &failure,
	                                       asio::ip::tcp::resolver::results_type found) {
		                       if (attempt != self->attempt_number || !self->is_dialing) {
			                       return;
		                       }
		                       if (!failure) {
			                       self->last_endpoints.clear();
			                       for (auto &entry : found) {
				                       self->last_endpoints.push_back(entry.endpoint());
			                       }
		                       } else if (self->last_endpoints.empty()) {
			                       self->DialFailed("cannot resolve the name: " + failure.message());
			                       return;
		                       }
		                       // The identity check makes an address of an earlier resolution safe to try.
		                       self->Connect(attempt, self->last_endpoints);
	                       });
}

void PeerLink::Connect(uint64_t attempt, Endpoints endpoints) {
	dial_phase = "connecting";
	for (auto &endpoint : endpoints) {
		if (core.config.plaintext && !endpoint.address().is_loopback()) {
			DialFailed("plain text is for loopback only, this is " + endpoint.address().to_string() +
			           "; fix: configure tls for peers on other hosts");
			return;
		}
	}
	connecting = std::make_shared<asio::ip::tcp::socket>(*core.io);
	auto self = shared_from_this();
	auto socket = connecting;
	auto targets = std::make_shared<Endpoints>(std::move(endpoints));
	asio::async_connect(*socket, *targets,
	                    [self, attempt, socket, targets](const asio::error_code &error,
	                                                     const asio::ip::tcp::endpoint &) {
		                    if (attempt != self->attempt_number || !self->is_dialing) {
			                    return;
		                    }
		                    self->connecting.reset();
		                    if (error) {
			                    self->DialFailed("cannot connect: " + error.message());
		                    } else {
			                    self->BeginSession(std::move(*socket));
		                    }
	                    });
}

void PeerLink::BeginSession(asio::ip::tcp::socket socket) {
	auto connection = std::make_shared<Connection>(core.io, std::move(socket));
	session = std::make_shared<OutboundSession>(core, weak_from_this(), peer, connection, queue);
	session->Begin();
}

void PeerLink::DialTimedOut() {
	auto limit =
	    "no session within " + std::to_string(core.config.dial_timeout / NS_PER_MS) + " ms (dial_timeout), " + "still ";
	if (session) {
		auto ending = session;
		ending->Break(limit + ending->Phase());
		return;
	}
	if (connecting) {
		asio::error_code ignored;
		connecting->close(ignored);
		connecting.reset();
	}
	resolver.cancel();
	DialFailed(limit + dial_phase);
}

void PeerLink::DialFailed(const std::string &reason) {
	NoteFailure("peer_unreachable", "peer '" + peer + "' at " + AddressText() + ": " + reason);
	ScheduleDial();
}

void PeerLink::ScheduleDial() {
	is_dialing = false;
	attempt_number++;
	dial_timer.cancel();
	if (is_stopped) {
		return;
	}
	auto shift = std::min<uint32_t>(failure_count, 20);
	auto longest = std::min(core.config.backoff_max, core.config.backoff_min << shift);
	failure_count++;
	// Between half and all of it, so that restarted peers do not dial in step.
	auto delay = longest / 2 + static_cast<MonotonicNs>(jitter.Below(static_cast<uint64_t>(longest / 2 + 1)));
	auto self = shared_from_this();
	retry_timer.expires_after(Nanoseconds(delay));
	retry_timer.async_wait([self](const asio::error_code &error) {
		if (!error && !self->is_stopped && !self->is_dialing && !self->session) {
			self->Dial();
		}
	});
}

void PeerLink::NoteFailure(const char *event, const std::string &reason) {
	{
		std::lock_guard<std::mutex> guard(lock);
		status.last_error = reason;
	}
	if (is_stopped) {
		return; // wanted by this side: no news for the log
	}
	auto now = core.clock.Now();
	if (reason != logged_reason || now - logged_at > REPEATED_LOG_INTERVAL) {
		logged_reason = reason;
		logged_at = now;
		Log(LogLevel::Warn, "transport", event, {{"node", core.config.node_id}, {"peer", peer}, {"reason", reason}});
	}
}

void PeerLink::OnSessionUp(const OutboundSession &) {
	is_dialing = false;
	dial_timer.cancel();
	up_since = core.clock.Now();
	logged_reason.clear();
	{
		std::lock_guard<std::mutex> guard(lock);
		status.connected = true;
		status.last_error.clear();
	}
	Log(LogLevel::Info, "transport", "peer_up",
	    {{"node", core.config.node_id}, {"peer", peer}, {"address", AddressText()}});
	core.handler.OnPeerUp(peer);
}

void PeerLink::OnSessionDown(const OutboundSession &down, const std::string &reason) {
	if (session.get() != &down) {
		return;
	}
	auto ended = std::move(session);
	session.reset();
	bool was_up = false;
	{
		std::lock_guard<std::mutex> guard(lock);
		was_up = status.connected;
		status.connected = false;
		status.last_receive = ended->LastReceive();
		status.dropped_messages += queue->Close();
	}
	NoteFailure(was_up ? "peer_down" : "peer_unreachable", reason);
	// A session that lived shows that dialing works: start over with short delays.
	if (was_up && core.clock.Now() - up_since > core.config.backoff_max) {
		failure_count = 0;
	}
	ScheduleDial();
	if (was_up) {
		core.handler.OnPeerDown(peer, reason);
	}
}

} // namespace transport
} // namespace quack
