#include <deque>

#include <doctest/doctest.h>

#include "quack/transport/http2_session.hpp"
#include "quack/transport/message_queue.hpp"

namespace quack {
namespace transport {

namespace {

//! Writes down what happens, and answers requests with their own body.
struct Recorder final : public Http2Observer {
	Http2Session *session = nullptr;
	bool is_echo = false;
	std::map<int32_t, std::string> bodies;
	std::map<int32_t, std::string> paths;
	std::map<int32_t, uint32_t> closed;
	std::string goaway;

	void OnHeaders(int32_t stream, const Http2Headers &headers) override {
		paths[stream] = FindHeader(headers, ":path") + FindHeader(headers, ":status");
	}
	void OnData(int32_t stream, ByteView bytes) override {
		bodies[stream].append(bytes.data(), bytes.size());
	}
	void OnEnd(int32_t stream) override {
		if (is_echo) {
			session->SubmitResponse(stream, 200, {}, bodies[stream]);
		}
	}
	void OnStreamClosed(int32_t stream, uint32_t error_code) override {
		closed[stream] = error_code;
	}
	void OnGoaway(const std::string &text) override {
		goaway = text;
	}
};

//! Client and server joined by memory.
struct Wire {
	Recorder client_log;
	Recorder server_log;
	Http2Session client {Http2Session::Side::Client, client_log};
	Http2Session server {Http2Session::Side::Server, server_log};

	Wire() {
		server_log.session = &server;
		server_log.is_echo = true;
	}
	//! Moves bytes both ways, in pieces of at most `piece`, until all is quiet.
	void Run(size_t piece = 1 << 20) {
		while (Move(client, server, piece) || Move(server, client, piece)) {
		}
	}
	static bool Move(Http2Session &from, Http2Session &to, size_t piece) {
		std::string bytes;
		REQUIRE(from.Collect(bytes, 1 << 20).IsOk());
		for (size_t at = 0; at < bytes.size(); at += piece) {
			REQUIRE(to.Feed(ByteView(bytes).substr(at, piece)).IsOk());
		}
		return !bytes.empty();
	}
	int32_t Post(const std::string &path, std::string body, StreamWeight weight = StreamWeight::Call) {
		return client.SubmitRequest(path, "n0", {}, std::make_unique<StringBody>(std::move(body)), weight).Value();
	}
};

class QueueBody final : public Http2Body {
public:
	explicit QueueBody(std::deque<std::string> &parts_p) : parts(parts_p) {
	}
	size_t Read(char *buffer, size_t size, bool &) override {
		if (parts.empty()) {
			return 0;
		}
		auto part = parts.front();
		parts.pop_front();
		REQUIRE(part.size() <= size);
		part.copy(buffer, part.size());
		return part.size();
	}

private:
	std::deque<std::string> &parts;
};

} // namespace

// Goal: bodies larger than the flow-control window pass both ways whole, whatever the pieces. Method: two sessions
// joined in memory.
TEST_CASE("http/2 carries large bodies in any pieces") {
	for (size_t piece : {7, 1000, 1 << 20}) {
		Wire wire;
		auto size = piece == 1 << 20 ? 40 * 1000 * 1000 : 200 * 1000;
		auto body = std::string(static_cast<size_t>(size), 'a');
		auto stream = wire.Post("/x", body);
		wire.Run(piece);
		CHECK(wire.server_log.paths[stream] == "/x");
		CHECK(wire.client_log.paths[stream] == "200");
		CHECK(wire.client_log.bodies[stream] == body);
		CHECK(wire.client_log.closed.at(stream) == 0);
	}
}

// Goal: a body that pauses goes on after Resume, and an open stream does not hinder others.
TEST_CASE("http/2 streams pause and go on") {
	Wire wire;
	std::deque<std::string> parts = {"one "};
	auto stream = wire.client.SubmitRequest("/m", "n0", {}, std::make_unique<QueueBody>(parts), StreamWeight::Bulk);
	wire.Run();
	CHECK(wire.server_log.bodies[stream.Value()] == "one ");
	auto other = wire.Post("/call", "body");
	parts.push_back("two");
	wire.client.Resume(stream.Value());
	wire.Run();
	CHECK(wire.server_log.bodies[stream.Value()] == "one two");
	CHECK(wire.client_log.bodies[other] == "body");
	CHECK(!wire.client.IsSent(stream.Value()));
}

// Goal: IsSent tells whether the whole request left, which decides between Unavailable and OutcomeUnknown.
TEST_CASE("http/2 knows what left") {
	Wire wire;
	wire.Run(); // the windows are known only after the first exchange
	auto stream = wire.Post("/x", std::string(30 * 1024 * 1024, 'b'));
	std::string out;
	REQUIRE(wire.client.Collect(out, 1 << 20).IsOk());
	CHECK(!wire.client.IsSent(stream));
	REQUIRE(wire.server.Feed(out).IsOk());
	auto small = wire.Post("/y", "b");
	out.clear();
	wire.server_log.is_echo = false;
	REQUIRE(wire.client.Collect(out, 64 << 20).IsOk());
	CHECK(wire.client.IsSent(small));
	CHECK(!wire.client.IsSent(stream)); // waits for window
}

// Goal: a request after the other side's GOAWAY is reported as closed with REFUSED_STREAM, never lost in silence.
TEST_CASE("http/2 reports requests that can not be sent any more") {
	Wire wire;
	wire.Run();
	wire.server.Goaway("going home");
	Wire::Move(wire.server, wire.client, 1 << 20);
	CHECK(wire.client_log.goaway == "going home");
	auto stream = wire.client.SubmitRequest("/x", "n0", {}, std::make_unique<StringBody>("b"), StreamWeight::Call);
	if (stream.IsOk()) {
		std::string out;
		REQUIRE(wire.client.Collect(out, 1 << 20).IsOk());
		CHECK(wire.client_log.closed.at(stream.Value()) == NGHTTP2_REFUSED_STREAM);
	} else {
		CHECK(stream.GetStatus().Code() == ErrorCode::Unavailable);
	}
}

TEST_CASE("http/2 resets a request that is still waiting") {
	Wire wire;
	auto stream = wire.Post("/x", "b");
	wire.client.Reset(stream, NGHTTP2_CANCEL);
	wire.Run();
	CHECK(wire.client_log.closed.count(stream) == 1);
	CHECK(wire.server_log.paths.count(stream) == 0);
}

// Goal: bytes that are no HTTP/2 end the session as a failure. Method: a wrong preface and a flipped frame length.
TEST_CASE("http/2 refuses broken bytes") {
	Wire wire;
	CHECK(!wire.server.Feed("GET / HTTP/1.1\r\nHost: there\r\n\r\n").IsOk());
	Wire second;
	second.Run();
	second.client.Ping();
	std::string out;
	REQUIRE(second.client.Collect(out, 1 << 20).IsOk());
	out[2] = 9; // PING must have 8 bytes
	out.push_back('x');
	auto status = second.server.Feed(out);
	std::string answer;
	auto collected = second.server.Collect(answer, 1 << 20);
	CHECK((!status.IsOk() || !collected.IsOk() || second.server.IsFinished()));
}

TEST_CASE("http/2 bounds request headers") {
	Wire wire;
	Http2Headers many;
	for (int i = 0; i < 100; i++) {
		many.emplace_back("x-" + std::to_string(i), "v");
	}
	auto stream = wire.client.SubmitRequest("/x", "n0", many, std::make_unique<StringBody>("b"), StreamWeight::Call);
	wire.Run();
	CHECK(wire.client_log.closed.at(stream.Value()) != 0);
	CHECK(wire.server_log.paths.count(stream.Value()) == 0);
}

// Goal: framing of messages is independent of the pieces in which it is read and fed; both lanes keep their order.
TEST_CASE("messages survive any cut") {
	for (size_t piece : {1, 3, 10, 5000}) {
		MessageQueue queue(1 << 20);
		MessageAssembler assembler(1 << 20);
		bool needs_wake = false;
		queue.Open();
		std::vector<std::string> sent;
		for (size_t i = 0; i < 200; i++) {
			sent.push_back(std::string(i * 7 % 300, static_cast<char>('a' + i % 26)));
			REQUIRE(queue.Push(Lane::Bulk, sent.back(), needs_wake).IsOk());
			CHECK(needs_wake == (i == 0));
		}
		std::vector<std::string> received;
		std::string buffer(piece, '\0');
		while (auto count = queue.Read(Lane::Bulk, &buffer[0], piece)) {
			auto fed = assembler.Feed(ByteView(buffer).substr(0, count),
			                          [&](std::string message) { received.push_back(std::move(message)); });
			REQUIRE(fed.IsOk());
		}
		CHECK(received == sent);
		CHECK(queue.Bytes() == 0);
	}
}

TEST_CASE("the message queue is bounded, closed at first, and counts what it drops") {
	MessageQueue queue(1000);
	bool needs_wake = false;
	CHECK(queue.Push(Lane::Bulk, "x", needs_wake).Code() == ErrorCode::Unavailable);
	queue.Open();
	CHECK(queue.Push(Lane::Bulk, std::string(5000, 'x'), needs_wake).IsOk()); // alone, whatever its size
	CHECK(queue.Push(Lane::Bulk, "x", needs_wake).Code() == ErrorCode::Overloaded);
	CHECK(queue.Push(Lane::Urgent, "x", needs_wake).IsOk());
	char buffer[100];
	CHECK(queue.Read(Lane::Bulk, buffer, sizeof(buffer)) == 100);
	CHECK(queue.Close() == 2); // the half-sent one is lost as well
	CHECK(queue.Bytes() == 0);
	CHECK(queue.Push(Lane::Urgent, "x", needs_wake).Code() == ErrorCode::Unavailable);
	queue.Open();
	CHECK(queue.Push(Lane::Bulk, "fresh", needs_wake).IsOk());
	CHECK(needs_wake);
	CHECK(queue.Read(Lane::Bulk, buffer, sizeof(buffer)) == 9);
	CHECK(std::string(buffer + 4, 5) == "fresh");
}

TEST_CASE("an announced length above the bound is refused before memory is taken") {
	MessageAssembler assembler(1000);
	std::string header;
	ByteWriter(header).PutU32(0xfffffff0U);
	auto status = assembler.Feed(header, [](std::string) { FAIL("nothing to deliver"); });
	CHECK(status.Code() == ErrorCode::InvalidArgument);
	CHECK(status.Message().find("4294967280") != std::string::npos);
}

} // namespace transport
} // namespace quack
