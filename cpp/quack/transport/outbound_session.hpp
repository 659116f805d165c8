//! The dialing end of a session: proves the listener's identity, exchanges hellos, sends messages and calls.
#pragma once

#include <map>

#include "quack/transport/message_queue.hpp"
#include "quack/transport/session_base.hpp"

namespace quack {
namespace transport {

class OutboundSession;

class OutboundOwner {
public:
	virtual ~OutboundOwner() = default;
	virtual void OnSessionUp(const OutboundSession &session) = 0;
	//! Once per session; every call of it was answered before.
	virtual void OnSessionDown(const OutboundSession &session, const std::string &reason) = 0;
};

//! A call that waits for its stream or its answer.
struct PendingCall {
	std::string method;
	std::string body;
	MonotonicNs deadline = 0;
	Responder respond; //! called once
};

class OutboundSession final : public SessionBase {
public:
	OutboundSession(TransportCore &core_p, std::weak_ptr<OutboundOwner> owner_p, std::string peer_p,
	                std::shared_ptr<Connection> connection_p, std::shared_ptr<MessageQueue> queue_p);

	void Begin();
	bool IsUp() const {
		return is_up;
	}
	//! What is still missing to be up, for a dial timeout.
	const char *Phase() const;
	//! New messages are in the queue.
	void Wake();
	//! Answers through `call.respond` exactly once, on the event loop.
	void StartCall(PendingCall call);

	void OnHandshake() override;
	void OnHeaders(int32_t stream, const Http2Headers &headers) override;
	void OnData(int32_t stream, ByteView bytes) override;
	void OnEnd(int32_t stream) override;
	void OnStreamClosed(int32_t stream, uint32_t error_code) override;

protected:
	void OnBroken(const std::string &cause) override;

private:
	struct Exchange {
		int http_status = 0;
		int error_code = 0;
		std::string body;
		size_t body_bytes_max = 0;
		Responder respond; //! empty for the hello
		std::unique_ptr<asio::steady_timer> timer;
	};

	void SendHello();
	void FinishHello(Exchange &exchange);
	void OpenLanes();
	//! Tells the listener in words why this node does not talk to it, then ends.
	void RefuseListener(const std::string &words);
	void ArmDeadline(int32_t stream, Exchange &exchange, MonotonicNs deadline);
	void FinishCall(int32_t stream, Result<std::string> result);
	//! Of a call whose answer will not come.
	Status LostCall(int32_t stream, const std::string &reason) const;
	std::string Target() const;

	const std::weak_ptr<OutboundOwner> owner;
	const std::string peer;
	const std::shared_ptr<MessageQueue> queue;
	std::map<int32_t, Exchange> exchanges;
	int32_t hello_stream = -1;
	int32_t lane_streams[LANE_COUNT] = {-1, -1};
	bool is_handshaken = false;
	bool is_up = false;
};

} // namespace transport
} // namespace quack
