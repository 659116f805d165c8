//! What the two ends of an HTTP/2 session between peers have in common: the pump between connection and HTTP/2, PING,
//! the idle limit, and ending exactly once. Event-loop thread only.
#pragma once

#include "quack/transport/connection.hpp"
#include "quack/transport/http2_session.hpp"
#include "quack/transport/transport_core.hpp"

namespace quack {
namespace transport {

class SessionBase : public ConnectionEvents, public Http2Observer, public std::enable_shared_from_this<SessionBase> {
public:
	//! Ends the session at once; the heir hears of it through OnBroken.
	void Break(const std::string &reason);
	//! Ends it without a word to the heir.
	void Abandon();
	std::string RemoteText() const {
		return connection->RemoteText();
	}
	MonotonicNs LastReceive() const {
		return connection->LastReceive();
	}

	void OnBytes(ByteView bytes) override;
	void Produce(std::string &plaintext, size_t size_max) override;
	void OnClosed(const std::string &reason) override;
	void OnGoaway(const std::string &text) override;

protected:
	SessionBase(TransportCore &core_p, std::shared_ptr<Connection> connection_p, Http2Session::Side side);

	//! The session is over for good: called once, never after Abandon, connection closed.
	virtual void OnBroken(const std::string &reason) = 0;
	//! Called before each round of the idle check.
	virtual void OnTick() {
	}
	void StartTicks();
	//! Sends what is queued and closes in order; for refusals. No OnBroken any more.
	void EndAfterFlush();

	TransportCore &core;
	const std::shared_ptr<Connection> connection;
	Http2Session http2;
	bool is_over = false;

private:
	void ScheduleTick();
	void Tick();
	void BreakLater(const std::string &reason);

	asio::steady_timer tick_timer;
	std::string goaway_text;
	std::string pending_break; //! found inside an HTTP/2 callback, done after it
	bool is_feeding = false;
};

} // namespace transport
} // namespace quack
