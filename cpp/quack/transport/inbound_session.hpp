//! The accepting end of a session: proves the dialer's identity, exchanges hellos, receives messages and calls.
#pragma once

#include <map>

#include "quack/transport/message_queue.hpp"
#include "quack/transport/session_base.hpp"

namespace quack {
namespace transport {

class InboundSession;

class InboundOwner {
public:
	virtual ~InboundOwner() = default;
	//! A connection turned out to speak HTTP/2; the owner keeps the session alive until OnInboundGone.
	virtual void OnInboundBegun(const std::shared_ptr<InboundSession> &session) = 0;
	//! The hello was accepted; messages follow.
	virtual void OnInboundUp(const std::shared_ptr<InboundSession> &session) = 0;
	//! Called once per session that was begun, up or not.
	virtual void OnInboundGone(const std::shared_ptr<InboundSession> &session, const std::string &reason) = 0;
	virtual std::shared_ptr<ReceiveCounters> CountersOf(const std::string &peer) = 0;
};

class InboundSession final : public SessionBase {
public:
	InboundSession(TransportCore &core_p, InboundOwner &owner_p, std::shared_ptr<Connection> connection_p);

	//! Takes over the connection's events; `first_bytes` are plaintext already read.
	void Begin(ByteView first_bytes);
	//! Name that the dialer gave; unproven before Peer() is set.
	const std::string &Claimed() const {
		return claimed;
	}
	//! Proven name of the dialer; empty before the hello.
	const std::string &Peer() const {
		return peer;
	}
	//! Sends a call's answer; unknown streams are ignored (reset meanwhile).
	void Answer(int32_t stream, Result<std::string> result);

	void OnHandshake() override {
	}
	void OnHeaders(int32_t stream, const Http2Headers &headers) override;
	void OnData(int32_t stream, ByteView bytes) override;
	void OnEnd(int32_t stream) override;
	void OnStreamClosed(int32_t stream, uint32_t error_code) override;

protected:
	void OnBroken(const std::string &reason) override;
	void OnTick() override;

private:
	enum class StreamKind { Hello, Refuse, Messages, Call, Rejected };

	struct StreamState {
		StreamKind kind = StreamKind::Rejected;
		std::string method;
		MonotonicNs deadline = 0;
		std::string body;
		std::unique_ptr<MessageAssembler> assembler;
	};

	StreamState Classify(const std::string &path, const Http2Headers &headers);
	void ReceiveBody(int32_t stream, StreamState &state, ByteView bytes, size_t size_max);
	void FinishHello(int32_t stream, ByteView hello);
	Status CheckDialer() const;
	void FinishRefuse(int32_t stream, ByteView words);
	void FinishCall(int32_t stream, StreamState &state);
	void Reject(int32_t stream, int http_status, const std::string &words);
	//! Answers with the words, records the refusal and closes in order.
	void RefuseDialer(int32_t stream, int http_status, const std::string &words);
	//! The same for an established session: the words travel in GOAWAY.
	void EndWithWords(const std::string &words);
	void Leave(const std::string &reason);

	InboundOwner &owner;
	const MonotonicNs begun_at;
	PresentedCertificate presented;
	std::string claimed; //! name in the hello request, unproven
	std::string claimed_target;
	std::string peer;
	std::shared_ptr<ReceiveCounters> counters;
	std::map<int32_t, StreamState> streams;
	size_t body_bytes = 0; //! of all unfinished bodies
	bool is_gone = false;
};

} // namespace transport
} // namespace quack
