//! A transport with a handler that records what comes, for tests over real sockets on loopback. Waits are on
//! conditions with a deadline.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include <doctest/doctest.h>

#include "quack/transport/transport.hpp"
#include "test_certificates.hpp"

namespace quack {
namespace transport {

constexpr MonotonicNs TEST_DEADLINE = 60 * NS_PER_SECOND;

//! Polls `condition` until it holds; false after TEST_DEADLINE.
bool WaitUntil(const std::function<bool()> &condition);

class TestNode final : public TransportHandler {
public:
	using CallHandler = std::function<void(const std::string &peer, const std::string &method, std::string body,
	                                       MonotonicNs timeout, Responder respond)>;

	TestNode(const std::string &node_id, TlsFiles tls);
	~TestNode() override;

	//! Change before Start.
	TransportConfig config;
	std::string hello = "cluster-1";
	CallHandler on_call; //! default: echo
	std::function<void(std::shared_ptr<ByteStream>)> on_byte_stream;

	void Start();
	Status TryStart();
	void Stop();
	Transport &Get() {
		return *transport;
	}
	PeerAddress Address() const;
	PeerStatus Peer(const std::string &peer) const;
	bool IsConnected(const std::string &peer) const {
		return Peer(peer).connected;
	}
	//! Calls and waits for the answer; fails the test when none comes.
	Result<std::string> CallAndWait(const std::string &peer, const std::string &method, std::string body,
	                                MonotonicNs timeout = TEST_DEADLINE);
	//! Sends until it is taken: for the moment between sessions.
	std::vector<std::string> Messages(const std::string &peer) const;
	size_t MessageCount(const std::string &peer) const;
	bool HasRefusal(const std::vector<std::string> &words) const;
	std::string RefusalText() const;
	size_t UpCount(const std::string &peer) const;
	size_t DownCount(const std::string &peer) const;
	//! Reason of the last OnPeerDown of any peer.
	std::string LastDownReason() const;

	std::string LocalHello() override;
	Status CheckHello(const std::string &peer, ByteView bytes) override;
	void OnMessage(const std::string &peer, std::string bytes) override;
	void OnCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	            Responder respond) override;
	void OnPeerUp(const std::string &peer) override;
	void OnPeerDown(const std::string &peer, const std::string &reason) override;
	void OnByteStream(std::shared_ptr<ByteStream> stream) override;

private:
	std::unique_ptr<Transport> transport;
	mutable std::mutex lock;
	std::map<std::string, std::vector<std::string>> messages;
	std::map<std::string, size_t> ups;
	std::map<std::string, size_t> downs;
	std::string last_down_reason;
};

//! True when `text` holds each of the words.
bool HasAll(const std::string &text, const std::vector<std::string> &words);

//! Makes each the peer of the others.
void Introduce(const std::vector<TestNode *> &nodes);
//! Introduces and waits until all sessions are up.
void Connect(const std::vector<TestNode *> &nodes);

} // namespace transport
} // namespace quack
