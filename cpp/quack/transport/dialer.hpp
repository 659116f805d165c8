//! One outgoing link to a peer: dials, keeps one session, dials again with back-off, queues what is sent.
#pragma once

#include "quack/common/prng.hpp"
#include "quack/transport/outbound_session.hpp"

namespace quack {
namespace transport {

class PeerLink final : public OutboundOwner, public std::enable_shared_from_this<PeerLink> {
public:
	PeerLink(TransportCore &core_p, PeerAddress address_p, std::shared_ptr<ReceiveCounters> counters_p);

	//! Any thread.
	Status Send(Lane lane, std::string bytes);
	//! Any thread. The caller has made sure that the event loop will run what is posted.
	void Call(const std::string &method, std::string body, MonotonicNs timeout, Responder respond);
	PeerStatus GetStatus() const;

	//! Event loop only, all of the following.
	void Start();
	void Stop(const std::string &reason);
	//! A changed address ends the session and dials the new one.
	void SetAddress(const PeerAddress &address_p);
	//! The peer has just shown that it lives: no more waiting.
	void DialSoon();
	//! This node refused a session that claimed the peer's name.
	void NoteInboundRefusal(const std::string &reason);

	void OnSessionUp(const OutboundSession &up) override;
	void OnSessionDown(const OutboundSession &down, const std::string &reason) override;

private:
	using Endpoints = std::vector<asio::ip::tcp::endpoint>;

	void Dial();
	void Resolve(uint64_t attempt);
	void Connect(uint64_t attempt, Endpoints endpoints);
	void BeginSession(asio::ip::tcp::socket socket);
	void DialTimedOut();
	void DialFailed(const std::string &reason);
	void ScheduleDial();
	void NoteFailure(const char *event, const std::string &reason);
	std::string AddressText() const;

	TransportCore &core;
	const std::string peer;
	const std::shared_ptr<MessageQueue> queue;
	const std::shared_ptr<ReceiveCounters> counters;

	//! Event loop only.
	asio::steady_timer dial_timer;
	asio::steady_timer retry_timer;
	asio::ip::tcp::resolver resolver;
	std::shared_ptr<asio::ip::tcp::socket> connecting;
	std::shared_ptr<OutboundSession> session;
	Endpoints last_endpoints; //! of the last resolution that worked
	Prng jitter;
	uint64_t attempt_number = 0; //! stale callbacks carry an older one
	uint32_t failure_count = 0;
	MonotonicNs up_since = 0;
	MonotonicNs logged_at = 0;
	std::string logged_reason;
	const char *dial_phase = "";
	bool is_dialing = false;
	bool is_stopped = true;

	mutable std::mutex lock; //! guards the fields below; never held across a handler or responder
	PeerAddress address;
	PeerStatus status;
	size_t call_bytes = 0;
};

} // namespace transport
} // namespace quack
