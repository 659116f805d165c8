#include "quack/transport/session_base.hpp"

#include <algorithm>

namespace quack {
namespace transport {

SessionBase::SessionBase(TransportCore &core_p, std::shared_ptr<Connection> connection_p, Http2Session::Side side)
    : core(core_p), connection(std::move(connection_p)), http2(side, *this), tick_timer(*core_p.io) {
}

void SessionBase::OnBytes(ByteView bytes) {
	if (is_over) {
		return;
	}
	is_feeding = true;
	auto status = http2.Feed(bytes);
	is_feeding = false;
	if (!status.IsOk()) {
		Break(status.Message());
	} else if (!pending_break.empty()) {
		Break(pending_break);
	} else if (http2.IsFinished()) {
		Break("HTTP/2 session ended by the other side" + (goaway_text.empty() ? "" : ": " + goaway_text));
	}
}

void SessionBase::Produce(std::string &plaintext, size_t size_max) {
	is_feeding = true;
	auto status = http2.Collect(plaintext, size_max);
	is_feeding = false;
	if (!status.IsOk()) {
		BreakLater(status.Message());
	} else if (!pending_break.empty()) {
		BreakLater(pending_break);
	} else if (plaintext.empty() && http2.IsFinished() && !is_over) {
		BreakLater("HTTP/2 session ended" + (goaway_text.empty() ? "" : ": " + goaway_text));
	}
}

void SessionBase::OnClosed(const std::string &reason) {
	if (is_over) {
		return;
	}
	is_over = true;
	tick_timer.cancel();
	OnBroken(goaway_text.empty() ? reason : reason + " (its last words: " + goaway_text + ")");
}

void SessionBase::OnGoaway(const std::string &text) {
	goaway_text = Printable(text);
}

void SessionBase::Break(const std::string &reason) {
	if (is_over) {
		return;
	}
	if (is_feeding) {
		pending_break = reason;
		return;
	}
	auto self = shared_from_this();
	connection->Close();
	OnClosed(reason);
}

void SessionBase::BreakLater(const std::string &reason) {
	auto self = shared_from_this();
	asio::post(*core.io, [self, reason] { self->Break(reason); });
}

void SessionBase::Abandon() {
	is_over = true;
	tick_timer.cancel();
	connection->Close();
}

void SessionBase::EndAfterFlush() {
	is_over = true;
	tick_timer.cancel();
	connection->CloseAfterFlush();
}

void SessionBase::StartTicks() {
	ScheduleTick();
}

void SessionBase::ScheduleTick() {
	auto self = shared_from_this();
	tick_timer.expires_after(Nanoseconds(std::max<MonotonicNs>(core.config.idle_timeout / 6, NS_PER_MS)));
	tick_timer.async_wait([self](const asio::error_code &error) {
		if (!error && !self->is_over) {
			self->Tick();
		}
	});
}

void SessionBase::Tick() {
	OnTick();
	if (is_over) {
		return;
	}
	auto silence = core.clock.Now() - connection->LastReceive();
	if (silence > core.config.idle_timeout && !connection->HasUnreadBytes()) {
		Break("no byte from the other side for " + std::to_string(silence / NS_PER_MS) +
		      " ms (idle_timeout): the link is half-open or the other side hangs");
		return;
	}
	if (silence > core.config.idle_timeout / 3) {
		http2.Ping();
		connection->Flush();
	}
	ScheduleTick();
}

} // namespace transport
} // namespace quack
