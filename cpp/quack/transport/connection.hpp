//! One TCP connection on the event loop: socket bytes, TLS when started, plaintext to and from its owner. Event-loop
//! thread only.
#pragma once

#include <memory>
#include <string>

#include <asio.hpp>

#include "quack/common/clock.hpp"
#include "quack/transport/tls_channel.hpp"

namespace quack {
namespace transport {

//! The owner of a connection. It may close or release the connection from inside any call.
class ConnectionEvents {
public:
	virtual ~ConnectionEvents() = default;
	//! The TLS handshake is done. Nothing is verified yet.
	virtual void OnHandshake() = 0;
	//! Bytes of the other side: decrypted, or raw before StartTls.
	virtual void OnBytes(ByteView bytes) = 0;
	//! Appends plaintext to send, about size_max at most.
	virtual void Produce(std::string &plaintext, size_t size_max) = 0;
	//! The connection ended by itself (other side, error, protocol); never after Close or Release by the owner.
	virtual void OnClosed(const std::string &reason) = 0;
};

//! What is left of a connection for blocking use.
struct ReleasedConnection {
	int file_descriptor = -1;
	std::unique_ptr<TlsChannel> channel; //! null = plain text
	std::string local_bytes;             //! sealed bytes not yet sent
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
	Connection(std::shared_ptr<asio::io_context> io_p, asio::ip::tcp::socket socket_p);

	//! The owner is held weakly; without one events are dropped.
	void SetEvents(std::weak_ptr<ConnectionEvents> events_p);
	//! From here on bytes are TLS; `already_read` are raw bytes that came before.
	void StartTls(std::unique_ptr<TlsChannel> channel_p, ByteView already_read);
	//! Begins to read; call once.
	void Start();
	//! Asks the owner for bytes to send. Inside an event it is done by itself after the event.
	void Flush();
	//! Sends what there is, then closes in order and waits at most a second for the other side, so that the last words
	//! arrive. The owner hears nothing more.
	void CloseAfterFlush(std::string last_words = "");
	//! At once.
	void Close();
	//! Hands socket and TLS state to a blocking user; this object is then dead. Only from inside an event.
	ReleasedConnection Release();

	TlsChannel *Channel() {
		return channel.get();
	}
	const std::string &RemoteAddress() const {
		return remote_address;
	}
	//! "address:port"
	std::string RemoteText() const;
	uint16_t RemotePort() const {
		return remote_port;
	}
	bool IsClosed() const {
		return is_closed;
	}
	MonotonicNs LastReceive() const {
		return last_receive;
	}
	//! True when bytes wait in the kernel: a late timer must not call the link dead.
	bool HasUnreadBytes();

private:
	void ReadMore();
	void HandleRead(const asio::error_code &error, size_t size);
	void Dispatch(ByteView bytes);
	void DispatchTls(ByteView bytes);
	Status CollectOutput();
	void HandleWrite(const asio::error_code &error);
	void Drain(bool is_end);
	void Fail(const std::string &reason);

	const std::shared_ptr<asio::io_context> io; //! outlives the socket
	asio::ip::tcp::socket socket;
	asio::steady_timer drain_timer;
	std::weak_ptr<ConnectionEvents> events;
	std::shared_ptr<ConnectionEvents> keep_owner; //! while the last words are sent
	std::unique_ptr<TlsChannel> channel;
	SystemClock clock;
	std::string remote_address;
	uint16_t remote_port = 0;
	MonotonicNs last_receive = 0;
	std::string read_buffer;
	std::string plaintext;
	std::string sending;    //! plaintext of the owner
	std::string writing;    //! with the kernel
	std::string last_words; //! plaintext to send before the close
	bool is_handshaken = false;
	bool is_writing = false;
	bool is_in_event = false;
	bool is_draining = false;
	bool is_shut = false;
	bool is_closed = false;
};

} // namespace transport
} // namespace quack
