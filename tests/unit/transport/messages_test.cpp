#include <atomic>
#include <thread>

#include "test_node.hpp"

namespace quack {
namespace transport {

namespace {

struct Cluster {
	TemporaryFolder folder;
	TestAuthority authority {"cluster ca"};
	std::vector<std::unique_ptr<TestNode>> nodes;

	explicit Cluster(size_t count) {
		for (size_t i = 0; i < count; i++) {
			nodes.push_back(MakeNode("n" + std::to_string(i)));
		}
	}
	std::unique_ptr<TestNode> MakeNode(const std::string &name) {
		return std::make_unique<TestNode>(name, authority.IssueFiles(folder, name, CertificateSpec::ForNode(name)));
	}
	void Connect() {
		std::vector<TestNode *> all;
		for (auto &node : nodes) {
			node->Start();
			all.push_back(node.get());
		}
		transport::Connect(all);
	}
	TestNode &operator[](size_t index) {
		return *nodes[index];
	}
};

} // namespace

// Goal: messages of three nodes arrive whole and in order on every pair, in both directions. Method: each node sends
// numbered messages of growing size to both others at the same time.
TEST_CASE("messages arrive in order between three nodes") {
	Cluster cluster(3);
	cluster.Connect();
	constexpr size_t COUNT = 2000;
	for (size_t i = 0; i < COUNT; i++) {
		for (size_t from = 0; from < 3; from++) {
			for (size_t to = 0; to < 3; to++) {
				if (from != to) {
					auto bytes = std::to_string(i) + ":" + std::string(i % 700, 'x');
					REQUIRE(cluster[from].Get().Send("n" + std::to_string(to), bytes).IsOk());
				}
			}
		}
	}
	for (size_t from = 0; from < 3; from++) {
		for (size_t to = 0; to < 3; to++) {
			auto name = "n" + std::to_string(from);
			if (from == to) {
				continue;
			}
			REQUIRE(WaitUntil([&] { return cluster[to].MessageCount(name) == COUNT; }));
			auto received = cluster[to].Messages(name);
			for (size_t i = 0; i < COUNT; i++) {
				REQUIRE(received[i] == std::to_string(i) + ":" + std::string(i % 700, 'x'));
			}
			CHECK(cluster[to].Peer(name).received_messages == COUNT);
			CHECK(cluster[from].Peer("n" + std::to_string(to)).sent_messages == COUNT);
		}
	}
}

// Goal: calls with 20 MiB bodies and answers work beside a stream of messages. Method: four echo calls in parallel
// while 500 messages of 64 KiB go the same way; bodies are compared, messages counted.
TEST_CASE("large calls run in parallel with messages") {
	Cluster cluster(2);
	cluster.Connect();
	std::string body(20 * 1024 * 1024, '\0');
	for (size_t i = 0; i < body.size(); i++) {
		body[i] = static_cast<char>(i * 2654435761U >> 13);
	}
	std::atomic<int> right {0};
	std::atomic<int> answered {0};
	for (int i = 0; i < 3; i++) {
		cluster[0].Get().Call("n1", "echo", body, TEST_DEADLINE, [&](Result<std::string> result) {
			right += result.IsOk() && result.Value() == body ? 1 : 0;
			answered++;
		});
	}
	size_t sent = 0;
	for (size_t i = 0; i < 500; i++) {
		sent += cluster[0].Get().Send("n1", std::string(64 * 1024, static_cast<char>('a' + i % 26))).IsOk() ? 1 : 0;
	}
	CHECK(sent == 500);
	REQUIRE(WaitUntil([&] { return answered == 3 && cluster[1].MessageCount("n0") == sent; }));
	CHECK(right == 3);
}

// Goal: a call to a silent handler ends at its deadline, exactly once, and later answers do no harm; the session lives.
TEST_CASE("a call ends at its deadline") {
	Cluster cluster(2);
	std::mutex lock;
	Responder late;
	cluster[1].on_call = [&](const std::string &, const std::string &method, std::string body, MonotonicNs timeout,
	                         Responder respond) {
		CHECK(timeout > 0);
		if (method == "silent") {
			std::lock_guard<std::mutex> guard(lock);
			late = std::move(respond);
		} else {
			respond(std::move(body));
		}
	};
	cluster.Connect();
	auto result = cluster[0].CallAndWait("n1", "silent", "x", 100 * NS_PER_MS);
	REQUIRE(!result.IsOk());
	CHECK(result.GetStatus().Code() == ErrorCode::DeadlineExceeded);
	{
		std::lock_guard<std::mutex> guard(lock);
		REQUIRE(late);
		late(std::string("too late"));
		late = nullptr;
	}
	CHECK(cluster[0].CallAndWait("n1", "echo", "still there").Value() == "still there");
	CHECK(cluster[0].UpCount("n1") == 1);
}

// Goal: a handler's failure travels with its code and words; a dropped responder becomes an answer.
TEST_CASE("failures of a call travel in words") {
	Cluster cluster(2);
	cluster[1].on_call = [](const std::string &, const std::string &method, std::string, MonotonicNs,
	                        Responder respond) {
		if (method == "fail") {
			respond(Status(ErrorCode::Conflict, "row 7 changed"));
		}
	};
	cluster.Connect();
	auto failed = cluster[0].CallAndWait("n1", "fail", "");
	CHECK(failed.GetStatus().Code() == ErrorCode::Conflict);
	CHECK(failed.GetStatus().Message() == "row 7 changed");
	auto dropped = cluster[0].CallAndWait("n1", "drop", "");
	CHECK(dropped.GetStatus().Code() == ErrorCode::Internal);
	auto unknown = cluster[0].CallAndWait("n9", "echo", "");
	CHECK(unknown.GetStatus().Code() == ErrorCode::Unavailable);
}

// Goal: a restarted peer is reached again by itself and messages flow both ways. Method: stop and start a node on the
// same port; calls under way get OutcomeUnknown.
TEST_CASE("a restarted peer is dialed again") {
	Cluster cluster(2);
	std::atomic<int> seen {0};
	std::mutex lock;
	std::vector<Responder> kept;
	cluster[1].on_call = [&](const std::string &, const std::string &, std::string, MonotonicNs, Responder respond) {
		std::lock_guard<std::mutex> guard(lock);
		kept.push_back(std::move(respond));
		seen++;
	};
	cluster.Connect();
	std::atomic<int> code {-1};
	cluster[0].Get().Call("n1", "never", "x", TEST_DEADLINE,
	                      [&](Result<std::string> result) { code = static_cast<int>(result.GetStatus().Code()); });
	REQUIRE(WaitUntil([&] { return seen == 1; }));
	auto port = cluster[1].Get().ListenPort();
	cluster[1].Stop();
	REQUIRE(WaitUntil([&] { return code >= 0 && !cluster[0].IsConnected("n1"); }));
	CHECK(code == static_cast<int>(ErrorCode::OutcomeUnknown));
	auto dropped = cluster[0].Get().Send("n1", "lost");
	CHECK(dropped.Code() == ErrorCode::Unavailable);
	CHECK(cluster[0].Peer("n1").dropped_messages >= 1);

	auto again = cluster.MakeNode("n1");
	again->config.listen_port = port;
	again->Start();
	again->Get().SetPeers({cluster[0].Address()});
	REQUIRE(WaitUntil([&] { return cluster[0].IsConnected("n1") && again->IsConnected("n0"); }));
	REQUIRE(cluster[0].Get().Send("n1", "hello again").IsOk());
	REQUIRE(again->Get().Send("n0", "and back").IsOk());
	CHECK(WaitUntil([&] { return again->MessageCount("n0") == 1 && cluster[0].MessageCount("n1") == 1; }));
	CHECK(cluster[0].DownCount("n1") == 1);
	CHECK(cluster[0].UpCount("n1") == 2);
}

} // namespace transport
} // namespace quack
