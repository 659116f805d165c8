//! The blocking ByteStream over a released connection. Reads and writes on one thread at a time; Close from any.
#pragma once

#include <atomic>
#include <mutex>

#include "quack/transport/connection.hpp"

namespace quack {
namespace transport {

class SocketByteStream final : public ByteStream {
public:
	//! `local_bytes` of `released` are sent first; `first_bytes` are plaintext already read from the other side.
	SocketByteStream(ReleasedConnection released, std::string first_bytes_p, std::string remote_address_p,
	                 uint16_t remote_port_p, std::string peer_node_id_p);
	~SocketByteStream() override;

	Result<size_t> Read(char *buffer, size_t size, MonotonicNs timeout) override;
	Status WriteAll(ByteView bytes, MonotonicNs timeout) override;
	void Close() override;
	std::string RemoteAddress() const override {
		return remote_address;
	}
	uint16_t RemotePort() const override {
		return remote_port;
	}
	std::string PeerNodeId() const override {
		return peer_node_id;
	}

private:
	//! Waits for `events` of poll(2) until `deadline`. DeadlineExceeded, Cancelled (closed).
	Status Wait(short events, MonotonicNs deadline);
	//! 0 = end of the connection.
	Result<size_t> Receive(char *buffer, size_t size, MonotonicNs deadline);
	Status SendRaw(ByteView bytes, MonotonicNs deadline);

	const int file_descriptor; //! open until the destructor, so that Close never hits a reused number
	const std::string remote_address;
	const uint16_t remote_port;
	const std::string peer_node_id;
	const SystemClock clock;
	std::atomic<bool> is_closed {false};

	//! Guards the TLS state against Close from another thread; never held while waiting for the socket.
	std::mutex lock;
	std::unique_ptr<TlsChannel> channel;
	std::string unsent; //! sealed bytes
	std::string first_bytes;
	std::string receive_buffer; //! of the reading thread
	bool is_at_end = false;
};

} // namespace transport
} // namespace quack
