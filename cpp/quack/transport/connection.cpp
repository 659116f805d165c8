#include "quack/transport/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace quack {
namespace transport {

namespace {

constexpr size_t READ_SIZE = 64 * 1024;
constexpr size_t WRITE_SIZE = 256 * 1024;
//! Unsent bytes the kernel takes: what is there cannot be passed by an urgent message any more.
constexpr int NOT_SENT_BYTES_MAX = 256 * 1024;
constexpr auto DRAIN_TIMEOUT = std::chrono::seconds(1);

} // namespace

Connection::Connection(std::shared_ptr<asio::io_context> io_p, asio::ip::tcp::socket socket_p)
    : io(std::move(io_p)), socket(std::move(socket_p)), drain_timer(*io) {
	asio::error_code ignored;
	socket.set_option(asio::ip::tcp::no_delay(true), ignored);
	auto limit = NOT_SENT_BYTES_MAX;
	setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof(limit));
	auto endpoint = socket.remote_endpoint(ignored);
	remote_address = endpoint.address().to_string();
	remote_port = endpoint.port();
	last_receive = clock.Now();
}

void Connection::SetEvents(std::weak_ptr<ConnectionEvents> events_p) {
	events = std::move(events_p);
}

std::string Connection::RemoteText() const {
	auto is_v6 = remote_address.find(':') != std::string::npos;
	return (is_v6 ? "[" + remote_address + "]" : remote_address) + ":" + std::to_string(remote_port);
}

bool Connection::HasUnreadBytes() {
	asio::error_code error;
	return !is_closed && socket.available(error) > 0 && !error;
}

void Connection::StartTls(std::unique_ptr<TlsChannel> channel_p, ByteView already_read) {
	channel = std::move(channel_p);
	if (!already_read.empty()) {
		Dispatch(already_read);
		return;
	}
	if (channel->Handshake() == TlsChannel::Progress::Failed) {
		auto self = shared_from_this();
		asio::post(*io, [self] { self->Fail("TLS handshake failed: " + self->channel->ErrorText()); });
	}
}

void Connection::Start() {
	read_buffer.resize(READ_SIZE);
	ReadMore();
	Flush();
}

void Connection::ReadMore() {
	auto self = shared_from_this();
	socket.async_read_some(asio::buffer(&read_buffer[0], read_buffer.size()),
	                       [self](const asio::error_code &error, size_t size) { self->HandleRead(error, size); });
}

void Connection::HandleRead(const asio::error_code &error, size_t size) {
	if (is_closed) {
		return;
	}
	if (is_draining) {
		Drain(!!error);
		return;
	}
	if (error) {
		Fail(error == asio::error::eof ? "connection closed by the other side" : "connection lost: " + error.message());
		return;
	}
	last_receive = clock.Now();
	Dispatch(ByteView(read_buffer.data(), size));
	if (is_closed) {
		return;
	}
	Flush();
	ReadMore();
}

void Connection::Dispatch(ByteView bytes) {
	auto was_in_event = is_in_event;
	is_in_event = true;
	if (channel) {
		DispatchTls(bytes);
	} else if (auto owner = events.lock()) {
		owner->OnBytes(bytes);
	}
	is_in_event = was_in_event;
}

void Connection::DispatchTls(ByteView bytes) {
	channel->Feed(bytes);
	if (!is_handshaken) {
		auto progress = channel->Handshake();
		if (progress == TlsChannel::Progress::Failed) {
			Fail("TLS handshake failed: " + channel->ErrorText());
			return;
		}
		if (progress == TlsChannel::Progress::NeedsBytes) {
			return;
		}
		is_handshaken = true;
		if (auto owner = events.lock()) {
			owner->OnHandshake();
		}
		if (is_closed || is_draining) {
			return;
		}
	}
	auto is_end = false;
	plaintext.clear();
	auto status = channel->Read(plaintext, is_end);
	auto owner = events.lock();
	if (owner && !plaintext.empty()) {
		owner->OnBytes(plaintext);
	}
	if (is_closed || is_draining) {
		return;
	}
	if (!status.IsOk()) {
		Fail(status.Message());
	} else if (is_end) {
		Fail("connection closed by the other side");
	}
}

void Connection::Flush() {
	if (is_closed || is_writing || is_in_event || is_shut) {
		return;
	}
	writing.clear();
	auto status = CollectOutput();
	if (is_closed) {
		return;
	}
	if (!status.IsOk()) {
		Fail(status.Message());
		return;
	}
	is_shut = writing.empty() && is_draining;
	if (is_shut && channel && is_handshaken) {
		channel->WriteClose();
		channel->TakeOutput(writing);
	}
	if (writing.empty() && !is_shut) {
		return;
	}
	is_writing = true;
	auto self = shared_from_this();
	asio::async_write(socket, asio::buffer(writing),
	                  [self](const asio::error_code &error, size_t) { self->HandleWrite(error); });
}

Status Connection::CollectOutput() {
	if (channel && !is_handshaken) {
		channel->TakeOutput(writing);
		return Status::Ok();
	}
	sending.clear();
	if (auto owner = events.lock()) {
		is_in_event = true;
		owner->Produce(sending, WRITE_SIZE);
		is_in_event = false;
	}
	if (is_draining && sending.empty()) {
		sending.swap(last_words);
	}
	if (!channel) {
		writing.swap(sending);
		return Status::Ok();
	}
	auto status = channel->Write(sending);
	channel->TakeOutput(writing);
	return status;
}

void Connection::HandleWrite(const asio::error_code &error) {
	is_writing = false;
	if (is_closed) {
		return;
	}
	if (error) {
		Fail("connection lost: " + error.message());
	} else if (is_shut) {
		asio::error_code ignored;
		socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
	} else {
		Flush();
	}
}

void Connection::CloseAfterFlush(std::string last_words_p) {
	if (is_closed || is_draining) {
		return;
	}
	last_words = std::move(last_words_p);
	is_draining = true;
	keep_owner = events.lock();
	auto self = shared_from_this();
	drain_timer.expires_after(DRAIN_TIMEOUT);
	drain_timer.async_wait([self](const asio::error_code &) { self->Close(); });
	asio::post(*io, [self] { self->Flush(); });
}

void Connection::Drain(bool is_end) {
	if (is_end) {
		Close();
	} else {
		ReadMore();
	}
}

void Connection::Close() {
	if (is_closed) {
		return;
	}
	is_closed = true;
	asio::error_code ignored;
	drain_timer.cancel();
	socket.close(ignored);
	events.reset();
	keep_owner.reset();
}

void Connection::Fail(const std::string &reason) {
	if (is_closed) {
		return;
	}
	auto owner = is_draining ? nullptr : events.lock();
	if (channel && !is_writing) {
		// The alert that tells the other side why, as far as TLS can say it.
		std::string alert;
		channel->TakeOutput(alert);
		asio::error_code ignored;
		if (!alert.empty()) {
			socket.non_blocking(true, ignored);
			socket.write_some(asio::buffer(alert), ignored);
		}
	}
	Close();
	if (owner) {
		owner->OnClosed(reason);
	}
}

ReleasedConnection Connection::Release() {
	QUACK_CHECK(is_in_event && !is_closed, "a connection is released from inside its own event");
	ReleasedConnection released;
	if (channel) {
		channel->TakeOutput(released.local_bytes);
	}
	// A write that is still marked as under way is a handshake flight which the other side has answered already.
	asio::error_code error;
	drain_timer.cancel();
	released.file_descriptor = socket.release(error);
	released.channel = std::move(channel);
	is_closed = true;
	events.reset();
	return released;
}

} // namespace transport
} // namespace quack
