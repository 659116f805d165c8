//! The HTTP/1.1 side of the node's port: requests off a byte stream, answers back. Knows no Quack message.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "quack/common/bytes.hpp"
#include "quack/common/clock.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace sql {

struct HttpServerRequest {
	std::string body;
	std::string remote_address;
	uint16_t remote_port = 0;
	//! It came over a connection past the ordinary limit: only what is urgent may be done.
	bool is_reserve = false;
	//! URI SAN of the verified client certificate; empty without one.
	std::string peer_identity;
	//! Whether the client closed the connection while its request is being worked on. Only from the thread that handles
	//! the request; costs up to a millisecond.
	std::function<bool()> peer_gone;
	//! Value of a header, empty when absent. Names ignore case.
	std::function<std::string(const char *)> header;
};

struct HttpServerReply {
	int status = 200;
	std::string body;
	std::multimap<std::string, std::string> headers;
};

class HttpHandler {
public:
	virtual ~HttpHandler() = default;
	//! POST /quack with its whole body. Called on the connection's thread; may block.
	virtual HttpServerReply HandlePost(const HttpServerRequest &request) = 0;
	//! Whether the body that starts with `prefix` and has `bytes` in all may grow past
	//! HttpFrontConfig::small_body_bytes: 0 = yes, else the HTTP status of the refusal. Each yes is answered by one
	//! EndLargeBody.
	virtual int AllowLargeBody(const std::string &prefix, uint64_t bytes) = 0;
	virtual void EndLargeBody(uint64_t bytes) = 0;
	//! The line that GET / answers.
	virtual std::string Banner() = 0;
};

struct HttpFrontConfig {
	size_t body_bytes_max = 256 * 1024 * 1024;
	//! A body may grow past this only when the handler knows its sender.
	size_t small_body_bytes = 64 * 1024;
	//! Between two requests on one connection.
	MonotonicNs keep_alive_timeout = 300 * NS_PER_SECOND;
	//! Within one request: without a byte for this long the connection ends.
	MonotonicNs io_timeout = 30 * NS_PER_SECOND;
	size_t requests_per_connection_max = 1024 * 1024;
};

//! Thread-safe: one ServeConnection per connection, any number at once.
class HttpFront {
public:
	//! `handler` outlives this object.
	HttpFront(const HttpFrontConfig &config, HttpHandler &handler);
	~HttpFront();

	//! Serves requests until the peer leaves, an error, or stream.Close(). Never throws. `is_reserve`: passed on with
	//! each request.
	void ServeConnection(transport::ByteStream &stream, bool is_reserve);

private:
	class Server;
	std::unique_ptr<Server> server;
};

} // namespace sql
} // namespace quack
