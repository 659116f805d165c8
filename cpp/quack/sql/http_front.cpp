#include "quack/sql/http_front.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "quack/sql/http.hpp"
#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

namespace {

//! How long the rest of a refused body is taken in.
constexpr MonotonicNs LINGER_TIMEOUT = 2 * NS_PER_SECOND;

//! Adapts a ByteStream to what cpp-httplib reads and writes, with a read buffer for header lines.
class StreamAdapter final : public httplib::Stream {
public:
	StreamAdapter(transport::ByteStream &stream_p, MonotonicNs timeout_p) : stream(stream_p), timeout(timeout_p) {
	}

	//! Waits for the first byte of the next request. False at the end of the connection.
	bool WaitForRequest(MonotonicNs idle_timeout) {
		return begin < end || Fill(idle_timeout);
	}

	//! Looks for the end of the stream; bytes of a further request are kept.
	bool PeerGone() {
		if (begin < end || failed) {
			return failed;
		}
		auto count = stream.Read(buffer.data(), buffer.size(), NS_PER_MS);
		if (!count.IsOk()) {
			return count.GetStatus().Code() != ErrorCode::DeadlineExceeded;
		}
		begin = 0;
		end = count.Value();
		return end == 0;
	}

	//! Takes and drops the rest of a refused body. Closing a connection with unread bytes resets it, and the reset can
	//! reach the client before the refusal does (RFC 9112 section 9.6).
	void Linger() {
		SystemClock clock;
		auto deadline = clock.Now() + LINGER_TIMEOUT;
		while (clock.Now() < deadline && Fill(deadline - clock.Now())) {
		}
	}
	void SetBodyRefused() {
		is_body_refused = true;
	}
	bool IsBodyRefused() const {
		return is_body_refused;
	}

	bool is_readable() const override {
		return true;
	}
	bool wait_readable() const override {
		return true;
	}
	bool wait_writable() const override {
		return !failed;
	}
	ssize_t read(char *ptr, size_t size) override {
		if (begin < end) {
			auto count = std::min(size, end - begin);
			std::memcpy(ptr, buffer.data() + begin, count);
			begin += count;
			return static_cast<ssize_t>(count);
		}
		if (size >= buffer.size()) {
			return ReadStream(ptr, size, timeout);
		}
		if (!Fill(timeout)) {
			return failed ? -1 : 0;
		}
		return read(ptr, size);
	}
	ssize_t write(const char *ptr, size_t size) override {
		if (!stream.WriteAll(ByteView(ptr, size), timeout).IsOk()) {
			failed = true;
			return -1;
		}
		return static_cast<ssize_t>(size);
	}
	const char *buffered_data(size_t &size) const override {
		size = end - begin;
		return size == 0 ? nullptr : buffer.data() + begin;
	}
	void consume_buffered(size_t size) override {
		begin += std::min(size, end - begin);
	}
	void get_remote_ip_and_port(std::string &ip, int &port) const override {
		ip = stream.RemoteAddress();
		port = stream.RemotePort();
	}
	void get_local_ip_and_port(std::string &, int &) const override {
	}
	::socket_t socket() const override {
		return INVALID_SOCKET;
	}
	time_t duration() const override {
		return 0;
	}

private:
	ssize_t ReadStream(char *ptr, size_t size, MonotonicNs wait) {
		auto count = stream.Read(ptr, size, wait);
		if (!count.IsOk()) {
			failed = true;
			return -1;
		}
		return static_cast<ssize_t>(count.Value());
	}
	bool Fill(MonotonicNs wait) {
		auto count = ReadStream(buffer.data(), buffer.size(), wait);
		begin = 0;
		end = count > 0 ? static_cast<size_t>(count) : 0;
		return count > 0;
	}

	transport::ByteStream &stream;
	MonotonicNs timeout;
	std::array<char, 32 * 1024> buffer;
	size_t begin = 0;
	size_t end = 0;
	bool failed = false;
	bool is_body_refused = false;
};

} // namespace

class HttpFront::Server final : public httplib::Server {
public:
	Server(const HttpFrontConfig &config_p, HttpHandler &handler_p) : config(config_p), handler(handler_p) {
		set_payload_max_length(config.body_bytes_max);
		set_keep_alive_timeout(config.keep_alive_timeout / NS_PER_SECOND);
		set_keep_alive_max_count(config.requests_per_connection_max);
		set_default_headers({{"Access-Control-Allow-Origin", "*"}});
		set_pre_routing_handler([this](const httplib::Request &request, httplib::Response &response) {
			return RefuseOversize(request, response);
		});
		Get("/", [this](const httplib::Request &, httplib::Response &response) {
			response.set_content(handler.Banner(), "text/plain");
		});
		Options(QUACK_HTTP_PATH, [](const httplib::Request &, httplib::Response &response) {
			response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
			response.set_header("Access-Control-Allow-Headers", "*");
			response.status = 204;
		});
		Post(QUACK_HTTP_PATH, [this](const httplib::Request &request, httplib::Response &response,
		                             const httplib::ContentReader &reader) { OnPost(request, response, reader); });
	}

	void Serve(transport::ByteStream &stream, bool is_reserve) {
		StreamAdapter adapter(stream, config.io_timeout);
		auto address = stream.RemoteAddress();
		auto port = stream.RemotePort();
		auto identity = stream.PeerNodeId();
		for (size_t left = config.requests_per_connection_max; left > 0; left--) {
			if (!adapter.WaitForRequest(config.keep_alive_timeout)) {
				return;
			}
			bool closed = false;
			current_identity = &identity;
			current_stream = &adapter;
			current_is_reserve = is_reserve;
			auto ok = process_request(adapter, address, port, "", 0, left == 1, closed, nullptr);
			current_identity = nullptr;
			if (adapter.IsBodyRefused()) {
				adapter.Linger();
				return;
			}
			if (!ok || closed) {
				return;
			}
		}
	}

private:
	//! A body that announces more than the limit is refused before any of it is read.
	httplib::Server::HandlerResponse RefuseOversize(const httplib::Request &request,
	                                                httplib::Response &response) const {
		auto announced = request.get_header_value_u64("Content-Length");
		if (announced <= config.body_bytes_max) {
			return HandlerResponse::Unhandled;
		}
		response.status = 413;
		current_stream->SetBodyRefused();
		response.set_header("Connection", "close");
		response.set_content("The body has " + std::to_string(announced) + " bytes, at most " +
		                         std::to_string(config.body_bytes_max) + " are taken; send smaller batches\n",
		                     "text/plain");
		return HandlerResponse::Handled;
	}

	//! Counts a large body while it is here.
	class LargeBody {
	public:
		explicit LargeBody(HttpHandler &handler_p) : handler(handler_p) {
		}
		~LargeBody() {
			if (bytes != 0) {
				handler.EndLargeBody(bytes);
			}
		}
		int Admit(const std::string &prefix, uint64_t bytes_p) {
			auto status = handler.AllowLargeBody(prefix, bytes_p);
			bytes = status == 0 ? bytes_p : 0;
			return status;
		}

	private:
		HttpHandler &handler;
		uint64_t bytes = 0;
	};

	//! False when the body broke off, was too large, or came from nobody we know; then the reply says why.
	bool ReadBody(const httplib::Request &request, const httplib::ContentReader &reader, std::string &body,
	              LargeBody &large, httplib::Response &response) {
		bool checked = false;
		int refusal = 0;
		auto announced = request.get_header_value_u64("Content-Length");
		auto complete = reader([&](const char *data, size_t size) {
			body.append(data, size);
			if (!checked && body.size() > config.small_body_bytes) {
				checked = true;
				// A chunked body does not say how long it is.
				refusal = large.Admit(body, announced != 0 ? announced : config.body_bytes_max);
				return refusal == 0;
			}
			return true;
		});
		if (refusal != 0) {
			response.status = refusal;
			if (refusal == 503) {
				response.set_header("Retry-After", "1");
			}
		} else if (!complete && checked && response.status == -1) {
			response.status = 413;
		}
		return complete;
	}

	void OnPost(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &reader) {
		HttpServerRequest out;
		LargeBody large(handler);
		if (!ReadBody(request, reader, out.body, large, response)) {
			if (response.status == -1) {
				response.status = 400;
			}
			current_stream->SetBodyRefused();
			response.set_header("Connection", "close");
			return;
		}
		out.is_reserve = current_is_reserve;
		out.remote_address = request.remote_addr;
		out.remote_port = static_cast<uint16_t>(request.remote_port);
		out.peer_identity = current_identity != nullptr ? *current_identity : std::string();
		out.peer_gone = [stream = current_stream] {
			return stream->PeerGone();
		};
		out.header = [&request](const char *name) {
			return request.get_header_value(name);
		};
		auto reply = handler.HandlePost(out);
		response.status = reply.status;
		for (auto &header : reply.headers) {
			response.set_header(header.first, header.second);
		}
		if (reply.status == 200) {
			response.set_content(std::move(reply.body), QUACK_RESPONSE_CONTENT_TYPE);
		}
	}

	HttpFrontConfig config;
	HttpHandler &handler;
	//! Of the connection this thread serves.
	static thread_local const std::string *current_identity;
	static thread_local StreamAdapter *current_stream;
	static thread_local bool current_is_reserve;
};

thread_local const std::string *HttpFront::Server::current_identity = nullptr;
thread_local StreamAdapter *HttpFront::Server::current_stream = nullptr;
thread_local bool HttpFront::Server::current_is_reserve = false;

HttpFront::HttpFront(const HttpFrontConfig &config, HttpHandler &handler)
    : server(std::make_unique<Server>(config, handler)) {
}

HttpFront::~HttpFront() = default;

void HttpFront::ServeConnection(transport::ByteStream &stream, bool is_reserve) {
	try {
		server->Serve(stream, is_reserve);
	} catch (std::exception &) { // NOLINT: a broken connection is not our failure; the stream is closed below
	}
	stream.Close();
}

} // namespace sql
} // namespace quack
