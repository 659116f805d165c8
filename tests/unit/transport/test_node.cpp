#include "test_node.hpp"

#include <future>
#include <thread>

#include "quack/common/log.hpp"

namespace quack {
namespace transport {

namespace {

//! Refusals are wanted in these tests; their lines would drown the runner's. QUACK_TEST_LOG=1 shows them.
void QuietLog() {
	static const bool once = [] {
		if (!std::getenv("QUACK_TEST_LOG")) {
			SetLogSink([](LogLevel, const std::string &) {}, LogLevel::Info);
		}
		return true;
	}();
	static_cast<void>(once);
}

} // namespace

bool WaitUntil(const std::function<bool()> &condition) {
	SystemClock clock;
	auto deadline = clock.Now() + TEST_DEADLINE;
	while (!condition()) {
		if (clock.Now() > deadline) {
			return false;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(2));
	}
	return true;
}

bool HasAll(const std::string &text, const std::vector<std::string> &words) {
	for (auto &word : words) {
		if (text.find(word) == std::string::npos) {
			return false;
		}
	}
	return true;
}

TestNode::TestNode(const std::string &node_id, TlsFiles tls) {
	QuietLog();
	config.node_id = node_id;
	config.listen_host = "127.0.0.1";
	config.tls = std::move(tls);
	config.backoff_min = 20 * NS_PER_MS;
	config.backoff_max = 200 * NS_PER_MS;
	// Sanitizers on a busy machine are slow; the tests of limits set their own.
	config.dial_timeout = 10 * NS_PER_SECOND;
	config.idle_timeout = 10 * NS_PER_SECOND;
	config.handshake_timeout = 10 * NS_PER_SECOND;
}

TestNode::~TestNode() {
	Stop();
}

Status TestNode::TryStart() {
	transport = MakeHttp2Transport(config, *this);
	return transport->Start();
}

void TestNode::Start() {
	auto status = TryStart();
	REQUIRE_MESSAGE(status.IsOk(), status.ToString());
}

void TestNode::Stop() {
	if (transport) {
		transport->Stop();
	}
}

PeerAddress TestNode::Address() const {
	return {config.node_id, "127.0.0.1", transport->ListenPort()};
}

PeerStatus TestNode::Peer(const std::string &peer) const {
	for (auto &status : transport->GetPeers()) {
		if (status.node_id == peer) {
			return status;
		}
	}
	return PeerStatus();
}

Result<std::string> TestNode::CallAndWait(const std::string &peer, const std::string &method, std::string body,
                                          MonotonicNs timeout) {
	auto promise = std::make_shared<std::promise<Result<std::string>>>();
	auto future = promise->get_future();
	transport->Call(peer, method, std::move(body), timeout,
	                [promise](Result<std::string> result) { promise->set_value(std::move(result)); });
	auto limit = std::chrono::nanoseconds(timeout + TEST_DEADLINE);
	REQUIRE(future.wait_for(limit) == std::future_status::ready);
	return future.get();
}

std::vector<std::string> TestNode::Messages(const std::string &peer) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = messages.find(peer);
	return entry == messages.end() ? std::vector<std::string>() : entry->second;
}

size_t TestNode::MessageCount(const std::string &peer) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = messages.find(peer);
	return entry == messages.end() ? 0 : entry->second.size();
}

bool TestNode::HasRefusal(const std::vector<std::string> &words) const {
	for (auto &refusal : transport->GetRefusals()) {
		if (HasAll(refusal.reason, words)) {
			return true;
		}
	}
	return false;
}

std::string TestNode::RefusalText() const {
	std::string text;
	for (auto &refusal : transport->GetRefusals()) {
		text += refusal.remote_address + ": " + refusal.reason + "\n";
	}
	return text;
}

size_t TestNode::UpCount(const std::string &peer) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = ups.find(peer);
	return entry == ups.end() ? 0 : entry->second;
}

size_t TestNode::DownCount(const std::string &peer) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = downs.find(peer);
	return entry == downs.end() ? 0 : entry->second;
}

std::string TestNode::LastDownReason() const {
	std::lock_guard<std::mutex> guard(lock);
	return last_down_reason;
}

std::string TestNode::LocalHello() {
	return hello;
}

Status TestNode::CheckHello(const std::string &peer, ByteView bytes) {
	if (bytes == hello) {
		return Status::Ok();
	}
	return Status(ErrorCode::Incompatible, "expected " + hello + ", '" + peer + "' sent " + std::string(bytes));
}

void TestNode::OnMessage(const std::string &peer, std::string bytes) {
	std::lock_guard<std::mutex> guard(lock);
	messages[peer].push_back(std::move(bytes));
}

void TestNode::OnCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
                      Responder respond) {
	if (on_call) {
		on_call(peer, method, std::move(body), timeout, std::move(respond));
	} else {
		respond(std::move(body));
	}
}

void TestNode::OnPeerUp(const std::string &peer) {
	std::lock_guard<std::mutex> guard(lock);
	ups[peer]++;
}

void TestNode::OnPeerDown(const std::string &peer, const std::string &reason) {
	std::lock_guard<std::mutex> guard(lock);
	last_down_reason = reason;
	downs[peer]++;
}

void TestNode::OnByteStream(std::shared_ptr<ByteStream> stream) {
	if (on_byte_stream) {
		on_byte_stream(std::move(stream));
	}
}

void Introduce(const std::vector<TestNode *> &nodes) {
	std::vector<PeerAddress> addresses;
	for (auto node : nodes) {
		addresses.push_back(node->Address());
	}
	for (auto node : nodes) {
		node->Get().SetPeers(addresses);
	}
}

void Connect(const std::vector<TestNode *> &nodes) {
	Introduce(nodes);
	for (auto node : nodes) {
		for (auto other : nodes) {
			auto name = other->config.node_id;
			auto is_up = node == other || WaitUntil([&] { return node->IsConnected(name); });
			REQUIRE_MESSAGE(is_up, node->Peer(name).last_error);
		}
	}
}

} // namespace transport
} // namespace quack
