//! HTTP/2 over byte buffers with nghttp2: bytes in, bytes out, no socket, no clock. One owner thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace transport {

using Http2Headers = std::vector<std::pair<std::string, std::string>>;

//! The value of a header, or empty.
std::string FindHeader(const Http2Headers &headers, const char *name);

//! Where the DATA of one outgoing stream comes from. Owned by the session until the stream closes.
class Http2Body {
public:
	virtual ~Http2Body() = default;
	//! Fills up to `size` bytes. 0 without is_end = nothing now; Http2Session::Resume asks again.
	virtual size_t Read(char *buffer, size_t size, bool &is_end) = 0;
};

//! A body that is known whole.
class StringBody final : public Http2Body {
public:
	explicit StringBody(std::string bytes_p) : bytes(std::move(bytes_p)) {
	}
	size_t Read(char *buffer, size_t size, bool &is_end) override;

private:
	std::string bytes;
	size_t offset = 0;
};

//! Calls come from inside Feed and Collect. A callee may submit, resume and reset; it must not Feed, Collect or destroy
//! the session.
class Http2Observer {
public:
	virtual ~Http2Observer() = default;
	//! All headers of a request (server side) or of the final response (client side).
	virtual void OnHeaders(int32_t stream, const Http2Headers &headers) = 0;
	virtual void OnData(int32_t stream, ByteView bytes) = 0;
	//! The other side ended its half of the stream.
	virtual void OnEnd(int32_t stream) = 0;
	//! Nothing comes for this stream any more. `error_code` as in RFC 9113 section 7.
	virtual void OnStreamClosed(int32_t stream, uint32_t error_code) = 0;
	virtual void OnGoaway(const std::string &text) = 0;
};

//! Relative shares of the link between streams that have data to send, 1..256.
enum class StreamWeight : int32_t { Bulk = 16, Call = 64, Urgent = 256 };

class Http2Session {
public:
	enum class Side { Client, Server };

	Http2Session(Side side_p, Http2Observer &observer_p);
	~Http2Session();
	Http2Session(const Http2Session &) = delete;
	Http2Session &operator=(const Http2Session &) = delete;

	//! Bytes from the other side. A failure is final: the session is broken.
	Status Feed(ByteView bytes);
	//! Appends bytes to send until `size_max` is passed or nothing is left. A failure is final.
	Status Collect(std::string &out, size_t size_max);

	//! POST to `path`; the stream id. Unavailable when no stream can be opened any more.
	Result<int32_t> SubmitRequest(const std::string &path, const std::string &authority, const Http2Headers &headers,
	                              std::unique_ptr<Http2Body> body, StreamWeight weight);
	void SubmitResponse(int32_t stream, int http_status, const Http2Headers &headers, std::string body);
	//! A body that had nothing has bytes again.
	void Resume(int32_t stream);
	void Reset(int32_t stream, uint32_t error_code);
	void Ping();
	void Goaway(const std::string &text);

	//! True once the last byte of the outgoing half left through Collect. False for an unknown stream.
	bool IsSent(int32_t stream) const;
	//! True when both sides are done and the connection has no further use.
	bool IsFinished() const;

private:
	struct StreamState {
		Http2Headers headers;
		size_t header_bytes = 0;
		std::unique_ptr<Http2Body> body;
		bool is_sent = false;
	};

	friend struct Http2Callbacks;

	const Side side;
	Http2Observer &observer;
	nghttp2_session *session = nullptr;
	std::map<int32_t, StreamState> streams;
};

} // namespace transport
} // namespace quack
