//! The one port: accepts, tells TLS from plain text and peers from clients, and hands each to its owner. Event-loop
//! thread only unless said otherwise.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <thread>

#include "quack/transport/inbound_session.hpp"
#include "quack/transport/socket_byte_stream.hpp"

namespace quack {
namespace transport {

//! Threads that run TransportHandler::OnByteStream, bounded. Any thread.
class ByteStreamPool {
public:
	explicit ByteStreamPool(TransportCore &core_p) : core(core_p) {
	}
	//! False when byte_streams_max run already, or no thread can be made.
	bool Run(const std::shared_ptr<SocketByteStream> &stream);
	//! Closes all streams and joins their threads.
	void Stop();
	size_t Count() const;

private:
	struct Conversation {
		std::thread thread;
		std::shared_ptr<SocketByteStream> stream;
		bool is_over = false;
	};

	void JoinFinished();

	TransportCore &core;
	mutable std::mutex lock; //! guards the fields below; never held while a handler runs or a thread is joined
	std::list<Conversation> conversations;
	size_t running_count = 0;
	bool is_stopped = false;
};

class InboundHandshake;

class Listener {
public:
	Listener(TransportCore &core_p, InboundOwner &owner_p);

	//! InvalidArgument (address, plain text beyond loopback), IoError (port in use and the like). Before the loop runs.
	Status Open();
	void Start();
	//! Stops accepting and drops what is not handed over yet.
	void Close();
	uint16_t Port() const {
		return port;
	}
	ByteStreamPool &Streams() {
		return streams;
	}
	const ByteStreamPool &Streams() const {
		return streams;
	}
	size_t PendingCount() const {
		return pending_count;
	}

private:
	friend class InboundHandshake;

	void AcceptMore();
	void HandleAccept(const asio::error_code &error, asio::ip::tcp::socket socket);

	TransportCore &core;
	InboundOwner &owner;
	asio::ip::tcp::acceptor acceptor;
	asio::steady_timer retry_timer;
	std::map<uint64_t, std::shared_ptr<InboundHandshake>> pending; //! oldest first
	uint64_t accept_number = 0;
	std::atomic<size_t> pending_count {0};
	ByteStreamPool streams;
	uint16_t port = 0;
	bool is_closed = false;
};

//! One accepted connection until it is known who speaks which protocol.
class InboundHandshake final : public ConnectionEvents, public std::enable_shared_from_this<InboundHandshake> {
public:
	InboundHandshake(TransportCore &core_p, Listener &listener_p, uint64_t number_p,
	                 std::shared_ptr<Connection> connection_p);

	void Begin();
	void Close();
	//! Records, sends an HTTP/1.1 answer when a status line is given, closes.
	void Refuse(const std::string &reason, const char *http_status_line);

	void OnHandshake() override;
	void OnBytes(ByteView bytes) override;
	void Produce(std::string &, size_t) override {
	}
	void OnClosed(const std::string &reason) override;

private:
	void SortPlainText();
	void SortBeforeTls();
	void BecomePeer(ByteView bytes);
	void BecomeByteStream(std::string bytes);
	void Leave();

	TransportCore &core;
	Listener &listener;
	const uint64_t number;
	const std::shared_ptr<Connection> connection;
	asio::steady_timer timer;
	std::string first_bytes;
	bool is_tls_started = false;
	bool is_left = false;
};

} // namespace transport
} // namespace quack
