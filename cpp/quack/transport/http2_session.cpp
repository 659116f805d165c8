#include "quack/transport/http2_session.hpp"

#include <algorithm>
#include <cstring>

namespace quack {
namespace transport {

namespace {

constexpr int32_t WINDOW_SIZE = 16 * 1024 * 1024;
//! More than one stream may take, so that a stalled bulk stream leaves room for urgent ones.
constexpr int32_t CONNECTION_WINDOW_SIZE = 2 * WINDOW_SIZE;
//! Larger frames mean fewer headers, smaller ones finer interleaving of urgent streams.
constexpr uint32_t FRAME_SIZE_MAX = 64 * 1024;
constexpr uint32_t CONCURRENT_STREAMS_MAX = 1024;
constexpr size_t HEADER_COUNT_MAX = 64;
constexpr size_t HEADER_BYTES_MAX = 16 * 1024;

nghttp2_nv Field(const std::string &name, const std::string &value) {
	return {reinterpret_cast<uint8_t *>(const_cast<char *>(name.data())),
	        reinterpret_cast<uint8_t *>(const_cast<char *>(value.data())), name.size(), value.size(),
	        NGHTTP2_NV_FLAG_NONE};
}

std::vector<nghttp2_nv> Fields(const Http2Headers &headers) {
	std::vector<nghttp2_nv> fields;
	for (auto &header : headers) {
		fields.push_back(Field(header.first, header.second));
	}
	return fields;
}

} // namespace

//! nghttp2's callbacks; each gets the session as user data.
struct Http2Callbacks {
	static Http2Session &Self(void *user_data) {
		return *static_cast<Http2Session *>(user_data);
	}

	static int OnBeginHeaders(nghttp2_session *, const nghttp2_frame *frame, void *user_data) {
		if (frame->hd.type == NGHTTP2_HEADERS) {
			auto &stream = Self(user_data).streams[frame->hd.stream_id];
			stream.headers.clear();
			stream.header_bytes = 0;
		}
		return 0;
	}

	static int OnHeader(nghttp2_session *, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
	                    const uint8_t *value, size_t value_size, uint8_t, void *user_data) {
		auto entry = Self(user_data).streams.find(frame->hd.stream_id);
		if (entry == Self(user_data).streams.end()) {
			return 0;
		}
		auto &stream = entry->second;
		stream.header_bytes += name_size + value_size;
		if (stream.headers.size() >= HEADER_COUNT_MAX || stream.header_bytes > HEADER_BYTES_MAX) {
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; // resets this stream only
		}
		stream.headers.emplace_back(std::string(reinterpret_cast<const char *>(name), name_size),
		                            std::string(reinterpret_cast<const char *>(value), value_size));
		return 0;
	}

	static int OnFrame(nghttp2_session *, const nghttp2_frame *frame, void *user_data) {
		auto &self = Self(user_data);
		auto id = frame->hd.stream_id;
		if (frame->hd.type == NGHTTP2_GOAWAY) {
			auto &goaway = frame->goaway;
			self.observer.OnGoaway(
			    std::string(reinterpret_cast<const char *>(goaway.opaque_data), goaway.opaque_data_len));
			return 0;
		}
		auto entry = self.streams.find(id);
		if (entry == self.streams.end()) {
			return 0;
		}
		auto expected = self.side == Http2Session::Side::Server ? NGHTTP2_HCAT_REQUEST : NGHTTP2_HCAT_RESPONSE;
		if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == expected) {
			auto headers = std::move(entry->second.headers);
			self.observer.OnHeaders(id, headers);
		}
		auto carries_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
		if (carries_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
			self.observer.OnEnd(id);
		}
		return 0;
	}

	static int OnData(nghttp2_session *, uint8_t, int32_t id, const uint8_t *data, size_t size, void *user_data) {
		Self(user_data).observer.OnData(id, ByteView(reinterpret_cast<const char *>(data), size));
		return 0;
	}

	static int OnClose(nghttp2_session *, int32_t id, uint32_t error_code, void *user_data) {
		auto &self = Self(user_data);
		self.observer.OnStreamClosed(id, error_code);
		self.streams.erase(id);
		return 0;
	}

	static int OnSent(nghttp2_session *, const nghttp2_frame *frame, void *user_data) {
		auto &streams = Self(user_data).streams;
		auto entry = streams.find(frame->hd.stream_id);
		auto carries_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
		if (entry != streams.end() && carries_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
			entry->second.is_sent = true;
		}
		return 0;
	}

	//! A request that never left (the other side goes away, or it was reset first): nghttp2 opens no stream, so no
	//! close callback would come.
	static int OnNotSent(nghttp2_session *session, const nghttp2_frame *frame, int, void *user_data) {
		auto &self = Self(user_data);
		auto id = frame->hd.stream_id;
		auto is_request = frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
		if (is_request && !nghttp2_session_find_stream(session, id) && self.streams.count(id)) {
			return OnClose(session, id, NGHTTP2_REFUSED_STREAM, user_data);
		}
		return 0;
	}

	static ssize_t ReadBody(nghttp2_session *, int32_t, uint8_t *buffer, size_t size, uint32_t *flags,
	                        nghttp2_data_source *source, void *) {
		bool is_end = false;
		auto count = static_cast<Http2Body *>(source->ptr)->Read(reinterpret_cast<char *>(buffer), size, is_end);
		if (is_end) {
			*flags |= NGHTTP2_DATA_FLAG_EOF;
		} else if (count == 0) {
			return NGHTTP2_ERR_DEFERRED;
		}
		return static_cast<ssize_t>(count);
	}

	static ssize_t FrameSize(nghttp2_session *, uint8_t, int32_t, int32_t session_window, int32_t stream_window,
	                         uint32_t remote_frame_size_max, void *) {
		auto size = std::min<int64_t>(std::min(session_window, stream_window), remote_frame_size_max);
		return static_cast<ssize_t>(std::min<int64_t>(size, FRAME_SIZE_MAX));
	}

	static nghttp2_session_callbacks *Make() {
		nghttp2_session_callbacks *callbacks = nullptr;
		QUACK_CHECK(nghttp2_session_callbacks_new(&callbacks) == 0, "out of memory for HTTP/2 callbacks");
		nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, OnBeginHeaders);
		nghttp2_session_callbacks_set_on_header_callback(callbacks, OnHeader);
		nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, OnFrame);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnData);
		nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, OnClose);
		nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, OnSent);
		nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, OnNotSent);
		nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, FrameSize);
		return callbacks;
	}
};

std::string FindHeader(const Http2Headers &headers, const char *name) {
	for (auto &header : headers) {
		if (header.first == name) {
			return header.second;
		}
	}
	return "";
}

size_t StringBody::Read(char *buffer, size_t size, bool &is_end) {
	auto count = std::min(size, bytes.size() - offset);
	std::memcpy(buffer, bytes.data() + offset, count);
	offset += count;
	is_end = offset == bytes.size();
	return count;
}

Http2Session::Http2Session(Side side_p, Http2Observer &observer_p) : side(side_p), observer(observer_p) {
	auto callbacks = Http2Callbacks::Make();
	nghttp2_option *option = nullptr;
	QUACK_CHECK(nghttp2_option_new(&option) == 0, "out of memory for HTTP/2 options");
	// Calls that pass their deadline are reset; the default of 33/s would end the session of a busy peer.
	nghttp2_option_set_stream_reset_rate_limit(option, 20000, 5000);
	auto made = side == Side::Server ? nghttp2_session_server_new2(&session, callbacks, this, option)
	                                 : nghttp2_session_client_new2(&session, callbacks, this, option);
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	QUACK_CHECK(made == 0, "out of memory for an HTTP/2 session");
	const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_SIZE},
	    {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_SIZE_MAX},
	    {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, CONCURRENT_STREAMS_MAX},
	    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX},
	    {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
	};
	// A server must not send ENABLE_PUSH other than 0 and need not send it at all.
	auto count = side == Side::Client ? 5 : 4;
	nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, count);
	nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_SIZE);
}

Http2Session::~Http2Session() {
	nghttp2_session_del(session);
}

Status Http2Session::Feed(ByteView bytes) {
	auto used = nghttp2_session_mem_recv(session, reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
	if (used < 0) {
		return Status(ErrorCode::IoError, std::string("HTTP/2 protocol error in received bytes: ") +
		                                      nghttp2_strerror(static_cast<int>(used)));
	}
	return Status::Ok();
}

Status Http2Session::Collect(std::string &out, size_t size_max) {
	while (out.size() < size_max) {
		const uint8_t *data = nullptr;
		auto size = nghttp2_session_mem_send(session, &data);
		if (size < 0) {
			return Status(ErrorCode::IoError,
			              std::string("HTTP/2 cannot send: ") + nghttp2_strerror(static_cast<int>(size)));
		}
		if (size == 0) {
			break;
		}
		out.append(reinterpret_cast<const char *>(data), static_cast<size_t>(size));
	}
	return Status::Ok();
}

Result<int32_t> Http2Session::SubmitRequest(const std::string &path, const std::string &authority,
                                            const Http2Headers &headers, std::unique_ptr<Http2Body> body,
                                            StreamWeight weight) {
	Http2Headers all = {{":method", "POST"}, {":scheme", "https"}, {":authority", authority}, {":path", path}};
	all.insert(all.end(), headers.begin(), headers.end());
	auto fields = Fields(all);
	nghttp2_priority_spec priority;
	nghttp2_priority_spec_init(&priority, 0, static_cast<int32_t>(weight), 0);
	nghttp2_data_provider provider {};
	provider.source.ptr = body.get();
	provider.read_callback = Http2Callbacks::ReadBody;
	auto id = nghttp2_submit_request(session, &priority, fields.data(), fields.size(), &provider, nullptr);
	if (id < 0) {
		return Status(ErrorCode::Unavailable,
		              std::string("cannot open an HTTP/2 stream: ") + nghttp2_strerror(static_cast<int>(id)));
	}
	streams[id].body = std::move(body);
	return id;
}

void Http2Session::SubmitResponse(int32_t stream, int http_status, const Http2Headers &headers, std::string body) {
	auto entry = streams.find(stream);
	if (entry == streams.end()) {
		return; // reset meanwhile
	}
	Http2Headers all = {{":status", std::to_string(http_status)}};
	all.insert(all.end(), headers.begin(), headers.end());
	auto fields = Fields(all);
	entry->second.body = std::make_unique<StringBody>(std::move(body));
	nghttp2_data_provider provider {};
	provider.source.ptr = entry->second.body.get();
	provider.read_callback = Http2Callbacks::ReadBody;
	nghttp2_submit_response(session, stream, fields.data(), fields.size(), &provider);
}

void Http2Session::Resume(int32_t stream) {
	nghttp2_session_resume_data(session, stream);
}

void Http2Session::Reset(int32_t stream, uint32_t error_code) {
	nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, error_code);
}

void Http2Session::Ping() {
	nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, nullptr);
}

void Http2Session::Goaway(const std::string &text) {
	nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session),
	                      NGHTTP2_NO_ERROR, reinterpret_cast<const uint8_t *>(text.data()), text.size());
}

bool Http2Session::IsSent(int32_t stream) const {
	auto entry = streams.find(stream);
	return entry != streams.end() && entry->second.is_sent;
}

bool Http2Session::IsFinished() const {
	return !nghttp2_session_want_read(session) && !nghttp2_session_want_write(session);
}

} // namespace transport
} // namespace quack
