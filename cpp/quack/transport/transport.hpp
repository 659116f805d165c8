//! Peers, streams and bytes over HTTP/2 with mutual TLS. Never looks inside what it carries.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/transport/certificate.hpp"

namespace quack {
namespace transport {

//! Files of one TLS identity. Reloaded when they change; a bad new file keeps the old identity and raises an alarm.
struct TlsFiles {
	std::string cert_file; //! PEM leaf then intermediates
	std::string key_file;  //! PEM private key; its bytes never reach logs or errors
	std::string ca_file;   //! PEM bundle that signs peers (and clients)
};

struct PeerAddress {
	std::string node_id; //! name as in the certificate: DNS:<node_id> and URI:<node_id>
	std::string host;    //! re-resolved at every dial
	uint16_t port = 0;
};

struct TransportConfig {
	std::string node_id;
	std::string listen_host = "0.0.0.0";
	uint16_t listen_port = 0; //! 0 = any free port; see ListenPort()
	TlsFiles tls;
	//! Loopback plain text instead of TLS, for `quack dev` only; refused for a listen_host that is not loopback.
	bool plaintext = false;
	size_t send_queue_bytes_max = 64 * 1024 * 1024; //! per peer
	size_t message_bytes_max = 512 * 1024 * 1024;
	MonotonicNs dial_timeout = 2 * NS_PER_SECOND;
	MonotonicNs backoff_min = 50 * NS_PER_MS;
	MonotonicNs backoff_max = 2 * NS_PER_SECOND;
	//! A session without any byte from the peer for this long is dropped (half-open links). HTTP/2 PING keeps it alive.
	MonotonicNs idle_timeout = 3 * NS_PER_SECOND;
	//! An accepted connection must finish TLS within this, and a peer its hello within the same again.
	MonotonicNs handshake_timeout = 5 * NS_PER_SECOND;
	size_t handshakes_max = 256;    //! accepted connections that are not sorted yet
	size_t byte_streams_max = 1024; //! HTTP/1.1 connections, one thread each
	//! Start fails when no peer would accept the own certificate (names, EKUs, issuer; not its dates). When off it only
	//! raises the alarm; peers refuse it all the same.
	bool check_own_certificate = true;
};

//! What is known about one peer, for status and `quack doctor`.
struct PeerStatus {
	std::string node_id;
	std::string address; //! host:port
	bool connected = false;
	uint64_t dial_count = 0;
	size_t queue_bytes = 0;
	uint64_t dropped_messages = 0;
	//! Why the last dial or handshake failed: expected name, names in the certificate, issuer, expiry, the fix.
	std::string last_error;
	//! Of either session; 0 = never.
	MonotonicNs last_receive = 0;
	//! Why this node last refused an inbound session that claimed this peer's name; empty = never.
	std::string last_inbound_refusal;
	bool inbound_connected = false; //! the peer's own session to this node is up
	uint64_t sent_messages = 0;     //! queued with success
	uint64_t received_messages = 0;
	uint64_t received_calls = 0;
};

//! The transport as a whole, for status and alarms.
struct TransportStatus {
	CertificateFacts certificate;  //! in use for new handshakes; empty in plain text
	std::string certificate_alarm; //! empty = well; else why the changed or present files are unfit, and the fix
	uint64_t certificate_reloads = 0;
	size_t byte_streams = 0;
	size_t pending_handshakes = 0;
	uint64_t refused_connections = 0;
};

//! A refused inbound connection, newest last, bounded.
struct InboundRefusal {
	std::string remote_address;
	std::string reason;
	MonotonicNs when = 0;
};

//! A blocking byte stream for the HTTP/1.1 side of the port. One thread at a time; Close from any thread wakes it.
class ByteStream {
public:
	virtual ~ByteStream() = default;
	//! Up to `size` bytes; 0 = orderly end. DeadlineExceeded after the timeout without a byte.
	virtual Result<size_t> Read(char *buffer, size_t size, MonotonicNs timeout) = 0;
	virtual Status WriteAll(ByteView bytes, MonotonicNs timeout) = 0;
	virtual void Close() = 0;
	virtual std::string RemoteAddress() const = 0;
	virtual uint16_t RemotePort() const = 0;
	//! First URI SAN of the verified client certificate, empty without one.
	virtual std::string PeerNodeId() const = 0;
};

//! Answers one call exactly once, from any thread.
using Responder = std::function<void(Result<std::string>)>;

//! Called on the transport's event-loop thread unless said otherwise; must not block.
class TransportHandler {
public:
	virtual ~TransportHandler() = default;
	//! Bytes this node sends first on every new session (cluster id, versions), and the check of the peer's: a failure
	//! refuses the session with its message on both sides.
	virtual std::string LocalHello() = 0;
	virtual Status CheckHello(const std::string &peer, ByteView hello) = 0;
	//! A one-way message. Order is kept per peer while a session lives; messages may be lost with a session.
	virtual void OnMessage(const std::string &peer, std::string bytes) = 0;
	//! A request with an answer. Peers only.
	virtual void OnCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	                    Responder respond) = 0;
	virtual void OnPeerUp(const std::string &peer) = 0;
	virtual void OnPeerDown(const std::string &peer, const std::string &reason) = 0;
	//! A connection that did not choose HTTP/2 (ALPN, or the preface on plain text). Runs on its own thread, owned by
	//! the transport; returns when the conversation is over.
	virtual void OnByteStream(std::shared_ptr<ByteStream> stream) = 0;
};

class Transport {
public:
	virtual ~Transport() = default;
	//! Binds and starts the event loop. InvalidArgument, IoError (port in use: names the port and the fix),
	//! Unauthorized (bad certificate files).
	virtual Status Start() = 0;
	//! Stops accepting, closes sessions (unanswered calls are answered first), closes byte streams and joins threads:
	//! waits for OnByteStream calls to return. Idempotent. Never from a callback of the handler. A stopped transport
	//! stays so.
	virtual void Stop() = 0;
	virtual uint16_t ListenPort() const = 0;
	//! Replaces the set of peers to keep sessions to. Own node_id is ignored.
	virtual void SetPeers(const std::vector<PeerAddress> &peers) = 0;
	//! Queues a one-way message. Unavailable (not connected) or Overloaded (queue full): dropped and counted.
	virtual Status Send(const std::string &peer, std::string bytes) = 0;
	//! Sends a request; `respond` is called exactly once, on the event loop: the answer, Unavailable (surely not
	//! delivered), OutcomeUnknown (session lost after sending) or DeadlineExceeded (outcome unknown as well).
	//! Overloaded (calls under way hold send_queue_bytes_max), InvalidArgument (larger than message_bytes_max here or
	//! there). When the transport is not running, Unavailable comes on the calling thread.
	virtual void Call(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	                  Responder respond) = 0;
	//! Like Send, but on a lane of its own that passes queued bulk: for heartbeats and votes. Order is kept among
	//! urgent messages; an urgent message may overtake those of Send.
	virtual Status SendUrgent(const std::string &peer, std::string bytes) {
		return Send(peer, std::move(bytes));
	}
	virtual std::vector<PeerStatus> GetPeers() const = 0;
	virtual std::vector<InboundRefusal> GetRefusals() const = 0;
	virtual TransportStatus GetTransportStatus() const {
		return TransportStatus();
	}
};

//! Checks a TLS identity as `node_id` without opening a port, for a doctor command: the facts of the own certificate,
//! or Unauthorized with the words a peer would say (dates included).
Result<CertificateFacts> CheckTlsFiles(const TlsFiles &files, const std::string &node_id);

//! `handler` outlives the transport.
std::unique_ptr<Transport> MakeHttp2Transport(const TransportConfig &config, TransportHandler &handler);

} // namespace transport
} // namespace quack
