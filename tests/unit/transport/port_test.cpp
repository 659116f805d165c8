#include <atomic>
#include <thread>

#include "quack/transport/http2_session.hpp"
#include "test_client.hpp"
#include "test_node.hpp"

namespace quack {
namespace transport {

namespace {

const std::string ALPN_HTTP1 = "\x08http/1.1";
const std::string ALPN_H2 = "\x02h2";
const std::string ALPN_BOTH = "\x02h2\x08http/1.1";

//! One node whose byte streams echo lines and tell who came.
struct Port {
	TemporaryFolder folder;
	TestAuthority authority {"cluster ca"};
	TestNode node {"n0", authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0"))};
	std::atomic<int> streams_over {0};

	Port() {
		node.on_byte_stream = [this](std::shared_ptr<ByteStream> stream) {
			Echo(*stream);
			streams_over++;
		};
	}
	~Port() {
		node.Stop();
	}
	static void Echo(ByteStream &stream) {
		char buffer[1000];
		while (true) {
			auto count = stream.Read(buffer, sizeof(buffer), TEST_DEADLINE);
			if (!count.IsOk() || count.Value() == 0) {
				return;
			}
			auto answer = "<" + stream.PeerNodeId() + "@" + stream.RemoteAddress() + "> ";
			auto text = std::string(buffer, count.Value());
			if (!stream.WriteAll(text.find('?') == std::string::npos ? text : answer + text, TEST_DEADLINE).IsOk()) {
				return;
			}
		}
	}
	TestClient Client() {
		return TestClient(node.Get().ListenPort());
	}
};

//! Collects what a server answers to one HTTP/2 request.
struct AnswerCollector final : public Http2Observer {
	std::string status;
	std::string body;
	bool is_done = false;

	void OnHeaders(int32_t, const Http2Headers &headers) override {
		status = FindHeader(headers, ":status");
	}
	void OnData(int32_t, ByteView bytes) override {
		body.append(bytes.data(), bytes.size());
	}
	void OnEnd(int32_t) override {
		is_done = true;
	}
	void OnStreamClosed(int32_t, uint32_t) override {
		is_done = true;
	}
	void OnGoaway(const std::string &) override {
	}
};

//! POSTs over HTTP/2; "status: body".
std::string PostHttp2(TestClient &client, const std::string &path, const Http2Headers &headers) {
	AnswerCollector collector;
	Http2Session session(Http2Session::Side::Client, collector);
	REQUIRE(session.SubmitRequest(path, "n0", headers, std::make_unique<StringBody>("cluster-1"), StreamWeight::Call)
	            .IsOk());
	while (!collector.is_done) {
		std::string out;
		REQUIRE(session.Collect(out, 1 << 20).IsOk());
		if (!out.empty() && !client.Send(out)) {
			break;
		}
		auto bytes = client.ReceiveSome();
		if (bytes.empty() || !session.Feed(bytes).IsOk()) {
			break;
		}
	}
	return collector.status + ": " + collector.body;
}

} // namespace

// Goal: clients that speak HTTP/1.1, nothing, or offer both get a blocking byte stream over the same TLS connection,
// with and without a client certificate.
TEST_CASE("http/1.1 and no ALPN become byte streams") {
	Port port;
	port.node.Start();
	for (auto &alpn : {ALPN_HTTP1, ALPN_BOTH, std::string()}) {
		auto client = port.Client();
		REQUIRE(client.StartTls(alpn));
		CHECK(client.Alpn() == (alpn.empty() ? "" : "http/1.1"));
		REQUIRE(client.Send("who?"));
		CHECK(client.ReceiveUntil("?") == "<@127.0.0.1> who?");
	}
	auto files = port.authority.IssueFiles(port.folder, "client", CertificateSpec::ForNode("worker-7"));
	auto client = port.Client();
	REQUIRE(client.StartTls(ALPN_HTTP1, files));
	REQUIRE(client.Send("who?"));
	CHECK(client.ReceiveUntil("?") == "<worker-7@127.0.0.1> who?");
	CHECK(port.node.Get().GetRefusals().empty());
}

// Goal: large writes and reads pass a byte stream whole. Method: 8 MiB echoed while the client reads and writes in
// turns.
TEST_CASE("a byte stream carries much data") {
	Port port;
	port.node.Start();
	auto client = port.Client();
	REQUIRE(client.StartTls(ALPN_HTTP1));
	std::string sent;
	std::string received;
	for (int i = 0; i < 256; i++) {
		auto part = std::string(32 * 1024, static_cast<char>('a' + i % 26));
		REQUIRE(client.Send(part));
		sent += part;
		while (received.size() < sent.size()) {
			auto bytes = client.ReceiveSome();
			REQUIRE(!bytes.empty());
			received += bytes;
		}
	}
	CHECK(received == sent);
}

// Goal: Read keeps its deadline, and Close from another thread wakes a reader.
TEST_CASE("a byte stream read ends at its deadline and at Close") {
	Port port;
	std::atomic<int> first {-1};
	std::atomic<int> second {-1};
	std::atomic<bool> is_reading {false};
	std::mutex lock;
	std::shared_ptr<ByteStream> open_stream;
	port.node.on_byte_stream = [&](std::shared_ptr<ByteStream> stream) {
		char buffer[10];
		first = static_cast<int>(stream->Read(buffer, sizeof(buffer), 20 * NS_PER_MS).GetStatus().Code());
		{
			std::lock_guard<std::mutex> guard(lock);
			open_stream = stream;
		}
		is_reading = true;
		second = static_cast<int>(stream->Read(buffer, sizeof(buffer), TEST_DEADLINE).GetStatus().Code());
	};
	port.node.Start();
	auto client = port.Client();
	REQUIRE(client.StartTls(ALPN_HTTP1));
	REQUIRE(WaitUntil([&] { return is_reading.load(); }));
	{
		std::lock_guard<std::mutex> guard(lock);
		open_stream->Close();
		open_stream.reset();
	}
	REQUIRE(WaitUntil([&] { return second >= 0; }));
	CHECK(first == static_cast<int>(ErrorCode::DeadlineExceeded));
	CHECK(second == static_cast<int>(ErrorCode::Cancelled));
	CHECK(client.ReceiveAll().empty());
}

// Goal: Stop ends open byte streams and returns.
TEST_CASE("stop closes byte streams") {
	Port port;
	port.node.Start();
	auto client = port.Client();
	REQUIRE(client.StartTls(ALPN_HTTP1));
	REQUIRE(client.Send("who?"));
	REQUIRE(client.ReceiveUntil("?").size() > 0);
	CHECK(port.node.Get().GetTransportStatus().byte_streams == 1);
	port.node.Stop();
	CHECK(port.streams_over == 1);
	CHECK(client.ReceiveAll().empty());
}

TEST_CASE("an invalid client certificate is refused in words") {
	Port port;
	port.node.Start();
	TestAuthority other("other ca");
	auto spec = CertificateSpec::ForNode("worker-7");
	auto client = port.Client();
	REQUIRE(client.StartTls(ALPN_HTTP1, other.IssueFiles(port.folder, "other", spec)));
	CHECK(HasAll(client.ReceiveAll(), {"HTTP/1.1 403", "client certificate refused", "other ca", "fix:"}));
	spec.valid_until_s = -5;
	auto late = port.Client();
	REQUIRE(late.StartTls(ALPN_HTTP1, port.authority.IssueFiles(port.folder, "late", spec)));
	CHECK(HasAll(late.ReceiveAll(), {"HTTP/1.1 403", "certificate has expired"}));
	CHECK(port.node.HasRefusal({"client certificate refused", "other ca"}));
	CHECK(port.streams_over == 0);
}

TEST_CASE("more byte streams than allowed are refused in words") {
	Port port;
	port.node.config.byte_streams_max = 2;
	port.node.Start();
	auto first = port.Client();
	auto second = port.Client();
	for (auto client : {&first, &second}) {
		REQUIRE(client->StartTls(ALPN_HTTP1));
		REQUIRE(client->Send("who?"));
		REQUIRE(client->ReceiveUntil("?").size() > 0);
	}
	{
		auto third = port.Client();
		REQUIRE(third.StartTls(ALPN_HTTP1));
		CHECK(HasAll(third.ReceiveAll(), {"HTTP/1.1 503", "byte_streams_max"}));
	}
	CHECK(port.node.HasRefusal({"byte_streams_max"}));
}

// Goal: an HTTP/2 client that is no peer learns why in words: without certificate, with a client's one, without hello.
TEST_CASE("h2 without a peer's certificate is refused in words") {
	Port port;
	port.node.Start();
	{
		auto client = port.Client();
		REQUIRE(client.StartTls(ALPN_H2));
		auto answer = PostHttp2(client, "/quack-peer/hello", {{"quack-from", "n1"}, {"quack-to", "n0"}});
		CHECK_MESSAGE(HasAll(answer, {"403", "peer 'n1' presented no certificate", "fix:"}), answer);
	}
	{
		auto client = port.Client();
		auto files = port.authority.IssueFiles(port.folder, "n7", CertificateSpec::ForNode("n7"));
		REQUIRE(client.StartTls(ALPN_H2, files));
		auto answer = PostHttp2(client, "/quack-peer/hello", {{"quack-from", "n1"}, {"quack-to", "n0"}});
		CHECK_MESSAGE(HasAll(answer, {"403", "does not prove node 'n1'", "DNS:[n7]"}), answer);
	}
	{
		auto client = port.Client();
		auto files = port.authority.IssueFiles(port.folder, "n1", CertificateSpec::ForNode("n1"));
		REQUIRE(client.StartTls(ALPN_H2, files));
		auto answer = PostHttp2(client, "/quack-peer/hello", {{"quack-from", "n1"}, {"quack-to", "n2"}});
		CHECK_MESSAGE(HasAll(answer, {"421", "dialed node 'n2' but this is node 'n0'", "fix:"}), answer);
	}
	{
		auto client = port.Client();
		REQUIRE(client.StartTls(ALPN_H2));
		auto answer = PostHttp2(client, "/quack-peer/call/secret", {});
		CHECK_MESSAGE(HasAll(answer, {"403", "HTTP/2 on this port is for cluster peers"}), answer);
	}
	CHECK(port.node.HasRefusal({"presented no certificate"}));
	CHECK(port.node.HasRefusal({"dialed node 'n2'"}));
}

// Goal: rubbish on the port is closed with a clear reason and harms nobody. Method: a peer keeps its session meanwhile.
TEST_CASE("garbage and plain HTTP on the TLS port are refused") {
	Port port;
	port.node.Start();
	TestNode peer("n1", port.authority.IssueFiles(port.folder, "n1", CertificateSpec::ForNode("n1")));
	peer.Start();
	Connect({&port.node, &peer});
	{
		auto client = port.Client();
		REQUIRE(client.Send("GET / HTTP/1.1\r\nHost: n0\r\n\r\n"));
		CHECK(HasAll(client.ReceiveAll(), {"HTTP/1.1 400", "plain HTTP came to the TLS port", "https"}));
	}
	{
		auto client = port.Client();
		REQUIRE(client.Send(std::string("\x00\xff garbage", 10)));
		CHECK(client.ReceiveAll().empty());
	}
	{
		auto client = port.Client();
		REQUIRE(client.Send(std::string("\x16\x03\x01\x00\x20", 5) + std::string(64, 'x')));
		client.ReceiveAll();
	}
	CHECK(WaitUntil([&] { return port.node.HasRefusal({"plain HTTP came to the TLS port"}); }));
	CHECK(WaitUntil([&] { return port.node.HasRefusal({"neither TLS nor HTTP", "\\x00\\xff"}); }));
	CHECK_MESSAGE(WaitUntil([&] { return port.node.HasRefusal({"TLS handshake failed"}); }), port.node.RefusalText());
	CHECK(peer.CallAndWait("n0", "echo", "still well").Value() == "still well");
	CHECK(peer.DownCount("n0") == 0);
	CHECK(port.node.DownCount("n1") == 0);
}

// Goal: a slow connection does not hold a place for ever. Method: a client that sends one byte of a TLS record.
TEST_CASE("an unfinished handshake ends at its timeout") {
	Port port;
	port.node.config.handshake_timeout = 100 * NS_PER_MS;
	port.node.Start();
	auto client = port.Client();
	REQUIRE(client.Send("\x16"));
	CHECK(client.ReceiveAll().empty());
	CHECK(WaitUntil([&] { return port.node.HasRefusal({"handshake_timeout"}); }));
	auto silent_peer = port.Client();
	REQUIRE(silent_peer.StartTls(ALPN_H2));
	silent_peer.ReceiveAll();
	CHECK(WaitUntil([&] { return port.node.HasRefusal({"no hello within"}); }));
	CHECK(port.node.Get().GetTransportStatus().pending_handshakes == 0);
}

// Goal: a flood of silent connections cannot keep anyone out: the oldest makes room.
TEST_CASE("the oldest unfinished handshake makes room") {
	Port port;
	port.node.config.handshakes_max = 2;
	port.node.Start();
	auto first = port.Client();
	auto second = port.Client();
	auto third = port.Client();
	CHECK(first.ReceiveAll().empty());
	CHECK(port.node.HasRefusal({"handshakes_max"}));
	auto client = port.Client();
	REQUIRE(client.StartTls(ALPN_HTTP1));
	REQUIRE(client.Send("who?"));
	CHECK(client.ReceiveUntil("?").size() > 0);
}

TEST_CASE("a port in use is named with the fix") {
	Port port;
	port.node.Start();
	TestNode second("n1", port.authority.IssueFiles(port.folder, "n1", CertificateSpec::ForNode("n1")));
	second.config.listen_port = port.node.Get().ListenPort();
	auto status = second.TryStart();
	CHECK(status.Code() == ErrorCode::IoError);
	CHECK_MESSAGE(HasAll(status.Message(),
	                     {std::to_string(second.config.listen_port), "another process holds the port"}),
	              status.Message());
	second.config.listen_host = "no such host";
	CHECK(second.TryStart().Code() == ErrorCode::InvalidArgument);
}

// Goal: loopback plain text carries peers and byte streams on one port; identity comes from the hello.
TEST_CASE("plain text on loopback") {
	TestNode n0("n0", TlsFiles());
	TestNode n1("n1", TlsFiles());
	for (auto node : {&n0, &n1}) {
		node->config.plaintext = true;
		node->on_byte_stream = [](std::shared_ptr<ByteStream> stream) {
			Port::Echo(*stream);
		};
		node->Start();
	}
	Connect({&n0, &n1});
	REQUIRE(n0.Get().Send("n1", "a").IsOk());
	CHECK(WaitUntil([&] { return n1.MessageCount("n0") == 1; }));
	CHECK(n1.CallAndWait("n0", "echo", "b").Value() == "b");

	TestClient client(n0.Get().ListenPort());
	REQUIRE(client.Send("P"));
	REQUIRE(client.Send("OST /quack?"));
	CHECK(HasAll(client.ReceiveUntil("?"), {"OST /quack?"}));

	TestClient tls(n0.Get().ListenPort());
	CHECK(!tls.StartTls(ALPN_HTTP1));
	CHECK(WaitUntil([&] { return n0.HasRefusal({"TLS came to the plain-text port"}); }));

	TestNode n2("n2", TlsFiles());
	n2.config.plaintext = true;
	n2.Start();
	auto wrong = n0.Address();
	wrong.node_id = "n9";
	n2.Get().SetPeers({wrong, {"far", "192.0.2.1", 9494}});
	CHECK(WaitUntil([&] { return HasAll(n2.Peer("n9").last_error, {"dialed node 'n9' but this is node 'n0'"}); }));
	CHECK(WaitUntil([&] { return HasAll(n2.Peer("far").last_error, {"loopback only"}); }));
}

TEST_CASE("plain text beyond loopback is refused") {
	TestNode node("n0", TlsFiles());
	node.config.plaintext = true;
	node.config.listen_host = "0.0.0.0";
	auto status = node.TryStart();
	CHECK(status.Code() == ErrorCode::InvalidArgument);
	CHECK(HasAll(status.Message(), {"loopback only", "fix:"}));
}

// Goal: a TLS node that dials a plain-text port, or any other service, says so.
TEST_CASE("dialing a plain-text port is told") {
	Port port;
	port.node.Start();
	TestNode plain("n1", TlsFiles());
	plain.config.plaintext = true;
	plain.Start();
	port.node.Get().SetPeers({plain.Address(), {"gone", "127.0.0.1", 1}});
	CHECK_MESSAGE(WaitUntil([&] {
		              return HasAll(port.node.Peer("n1").last_error, {"peer 'n1' at 127.0.0.1", "plain-text"});
	              }),
	              port.node.Peer("n1").last_error);
	CHECK(WaitUntil([&] { return HasAll(port.node.Peer("gone").last_error, {"cannot connect", "127.0.0.1:1"}); }));
}

} // namespace transport
} // namespace quack
