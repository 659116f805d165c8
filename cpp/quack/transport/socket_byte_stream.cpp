#include "quack/transport/socket_byte_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quack {
namespace transport {

namespace {

constexpr size_t CIPHER_READ_SIZE = 64 * 1024;
constexpr size_t WRITE_PART_SIZE = 256 * 1024;
//! poll(2) is left this often, so that Close is seen even where shutdown(2) does not wake it.
constexpr MonotonicNs POLL_SLICE = 500 * NS_PER_MS;

} // namespace

SocketByteStream::SocketByteStream(ReleasedConnection released, std::string first_bytes_p, std::string remote_address_p,
                                   uint16_t remote_port_p, std::string peer_node_id_p)
    : file_descriptor(released.file_descriptor), remote_address(std::move(remote_address_p)),
      remote_port(remote_port_p), peer_node_id(std::move(peer_node_id_p)), channel(std::move(released.channel)),
      unsent(std::move(released.local_bytes)), first_bytes(std::move(first_bytes_p)) {
}

SocketByteStream::~SocketByteStream() {
	Close();
	close(file_descriptor);
}

Status SocketByteStream::Wait(short events, MonotonicNs deadline) {
	while (!is_closed) {
		auto left = deadline - clock.Now();
		if (left <= 0) {
			return Status(ErrorCode::DeadlineExceeded, "no progress with " + remote_address + " before the deadline");
		}
		pollfd entry {file_descriptor, events, 0};
		auto slice_ms = (std::min(left, POLL_SLICE) + NS_PER_MS - 1) / NS_PER_MS;
		auto ready = poll(&entry, 1, static_cast<int>(slice_ms));
		if (ready > 0) {
			return Status::Ok();
		}
		if (ready < 0 && errno != EINTR) {
			return Status(ErrorCode::IoError, std::string("poll failed: ") + std::strerror(errno));
		}
	}
	return Status(ErrorCode::Cancelled, "the stream was closed on this side");
}

Result<size_t> SocketByteStream::Receive(char *buffer, size_t size, MonotonicNs deadline) {
	while (!is_closed) {
		auto count = recv(file_descriptor, buffer, size, MSG_DONTWAIT);
		if (count >= 0) {
			return static_cast<size_t>(count);
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK) {
			auto status = Wait(POLLIN, deadline);
			if (!status.IsOk()) {
				return status;
			}
		} else if (errno != EINTR) {
			return Status(ErrorCode::IoError,
			              "connection with " + remote_address + " lost: " + std::string(std::strerror(errno)));
		}
	}
	return Status(ErrorCode::Cancelled, "the stream was closed on this side");
}

Status SocketByteStream::SendRaw(ByteView bytes, MonotonicNs deadline) {
	while (!bytes.empty()) {
		if (is_closed) {
			return Status(ErrorCode::Cancelled, "the stream was closed on this side");
		}
		auto count = send(file_descriptor, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (count > 0) {
			bytes.remove_prefix(static_cast<size_t>(count));
		} else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			auto status = Wait(POLLOUT, deadline);
			if (!status.IsOk()) {
				return status;
			}
		} else if (count < 0 && errno != EINTR) {
			return Status(ErrorCode::IoError,
			              "connection with " + remote_address + " lost: " + std::string(std::strerror(errno)));
		}
	}
	return Status::Ok();
}

Result<size_t> SocketByteStream::Read(char *buffer, size_t size, MonotonicNs timeout) {
	auto deadline = clock.Now() + timeout;
	if (!first_bytes.empty()) {
		auto count = std::min(size, first_bytes.size());
		std::memcpy(buffer, first_bytes.data(), count);
		first_bytes.erase(0, count);
		return count;
	}
	if (!channel) {
		return Receive(buffer, size, deadline);
	}
	receive_buffer.resize(CIPHER_READ_SIZE);
	while (!is_at_end) {
		std::string to_send;
		{
			std::lock_guard<std::mutex> guard(lock);
			auto count = channel->ReadSome(buffer, size, is_at_end);
			if (!count.IsOk() || count.Value() > 0 || is_at_end) {
				return count;
			}
			channel->TakeOutput(unsent); // handshake rest, key updates
			to_send.swap(unsent);
		}
		auto sent = SendRaw(to_send, deadline);
		if (!sent.IsOk()) {
			return sent;
		}
		auto received = Receive(&receive_buffer[0], receive_buffer.size(), deadline);
		if (!received.IsOk()) {
			return received;
		}
		if (received.Value() == 0) {
			is_at_end = true;
			break;
		}
		std::lock_guard<std::mutex> guard(lock);
		channel->Feed(ByteView(receive_buffer.data(), received.Value()));
	}
	return size_t(0);
}

Status SocketByteStream::WriteAll(ByteView bytes, MonotonicNs timeout) {
	auto deadline = clock.Now() + timeout;
	if (!channel) {
		return SendRaw(bytes, deadline);
	}
	while (!bytes.empty()) {
		auto part = bytes.substr(0, WRITE_PART_SIZE);
		std::string to_send;
		{
			std::lock_guard<std::mutex> guard(lock);
			if (is_closed) {
				return Status(ErrorCode::Cancelled, "the stream was closed on this side");
			}
			auto status = channel->Write(part);
			if (!status.IsOk()) {
				return status;
			}
			channel->TakeOutput(unsent);
			to_send.swap(unsent);
		}
		auto status = SendRaw(to_send, deadline);
		if (!status.IsOk()) {
			// A part of a TLS record may be out: the connection is of no further use.
			Close();
			return status;
		}
		bytes.remove_prefix(part.size());
	}
	return Status::Ok();
}

void SocketByteStream::Close() {
	std::lock_guard<std::mutex> guard(lock);
	if (is_closed.exchange(true)) {
		return;
	}
	if (channel) {
		channel->WriteClose();
		channel->TakeOutput(unsent);
		// Best effort: the closing alert must not wait for a slow reader.
		auto ignored = send(file_descriptor, unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
		static_cast<void>(ignored);
	}
	shutdown(file_descriptor, SHUT_RDWR);
}

} // namespace transport
} // namespace quack
