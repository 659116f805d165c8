#include <atomic>
#include <condition_variable>
#include <thread>

#include <asio.hpp>

#include "test_node.hpp"

namespace quack {
namespace transport {

namespace {

//! Blocks whoever passes until opened; used to stall a receiver's event loop on purpose.
class Gate {
public:
	void Pass() {
		std::unique_lock<std::mutex> guard(lock);
		waiting = true;
		changed.notify_all();
		changed.wait(guard, [this] { return is_open; });
	}
	void Open() {
		std::lock_guard<std::mutex> guard(lock);
		is_open = true;
		changed.notify_all();
	}
	bool IsWaiting() {
		std::lock_guard<std::mutex> guard(lock);
		return waiting;
	}

private:
	std::mutex lock;
	std::condition_variable changed;
	bool is_open = false;
	bool waiting = false;
};

struct TwoNodes {
	TemporaryFolder folder;
	TestAuthority authority {"cluster ca"};
	TestNode n0 {"n0", authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0"))};
	TestNode n1 {"n1", authority.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1"))};

	void Connect() {
		n0.Start();
		n1.Start();
		transport::Connect({&n0, &n1});
	}
	~TwoNodes() {
		n0.Stop();
		n1.Stop();
	}
};

//! Forwards one port to another until frozen; frozen, it swallows everything and closes nothing: a half-open link.
class FreezingProxy {
public:
	explicit FreezingProxy(uint16_t target_p)
	    : target(target_p), acceptor(io, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
		Accept();
		thread = std::thread([this] { io.run(); });
	}
	~FreezingProxy() {
		io.stop();
		thread.join();
	}
	uint16_t Port() const {
		return acceptor.local_endpoint().port();
	}
	void SetFrozen(bool value) {
		is_frozen = value;
	}

private:
	struct Pipe {
		explicit Pipe(asio::io_context &io) : from(io), to(io) {
		}
		asio::ip::tcp::socket from;
		asio::ip::tcp::socket to;
		char buffers[2][16384];
	};

	void Accept() {
		auto pipe = std::make_shared<Pipe>(io);
		acceptor.async_accept(pipe->from, [this, pipe](const asio::error_code &error) {
			if (error) {
				return;
			}
			asio::error_code ignored;
			pipe->to.connect(asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), target), ignored);
			Pump(pipe, pipe->from, pipe->to, pipe->buffers[0]);
			Pump(pipe, pipe->to, pipe->from, pipe->buffers[1]);
			Accept();
		});
	}
	void Pump(const std::shared_ptr<Pipe> &pipe, asio::ip::tcp::socket &in, asio::ip::tcp::socket &out, char *buffer) {
		in.async_read_some(asio::buffer(buffer, 16384),
		                   [this, pipe, &in, &out, buffer](const asio::error_code &error, size_t size) {
			                   asio::error_code ignored;
			                   if (error) {
				                   // A frozen link does not tell one side that the other has left.
				                   if (!is_frozen) {
					                   out.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
				                   }
				                   return;
			                   }
			                   if (!is_frozen) {
				                   asio::write(out, asio::buffer(buffer, size), ignored);
			                   }
			                   Pump(pipe, in, out, buffer);
		                   });
	}

	const uint16_t target;
	asio::io_context io;
	asio::ip::tcp::acceptor acceptor;
	std::atomic<bool> is_frozen {false};
	std::thread thread;
};

} // namespace

// Goal: the send queue is bounded: what does not fit is refused with Overloaded and counted, what was taken arrives,
// and urgent messages still have room. Method: the receiver's event loop stands still while the sender fills window and
// queue.
TEST_CASE("a full send queue refuses and loses nothing it took") {
	TwoNodes nodes;
	nodes.n0.config.send_queue_bytes_max = 4 * 1024 * 1024;
	nodes.n0.config.idle_timeout = 60 * NS_PER_SECOND;
	Gate gate;
	nodes.n1.on_call = [&](const std::string &, const std::string &, std::string, MonotonicNs, Responder respond) {
		gate.Pass();
		respond(std::string());
	};
	nodes.Connect();
	nodes.n0.Get().Call("n1", "stall", "", TEST_DEADLINE, [](Result<std::string>) {});
	REQUIRE(WaitUntil([&] { return gate.IsWaiting(); }));
	size_t taken = 0;
	Status status;
	auto is_full = WaitUntil([&] {
		status = nodes.n0.Get().Send("n1", std::to_string(taken) + ":" + std::string(64 * 1024, 'q'));
		taken += status.IsOk() ? 1 : 0;
		// The loop drains into the window first: full is when it stays full.
		return status.Code() == ErrorCode::Overloaded && nodes.n0.Peer("n1").dropped_messages > 100;
	});
	REQUIRE(is_full);
	CHECK(HasAll(status.Message(), {"'n1'", "send queue is full", "4194304"}));
	CHECK(nodes.n0.Peer("n1").queue_bytes <= 4 * 1024 * 1024 + 1024);
	CHECK(nodes.n0.Get().SendUrgent("n1", "heartbeat").IsOk());
	gate.Open();
	REQUIRE(WaitUntil([&] { return nodes.n1.MessageCount("n0") == taken + 1; }));
	size_t next = 0;
	for (auto &message : nodes.n1.Messages("n0")) {
		if (message != "heartbeat") {
			REQUIRE(message.substr(0, message.find(':')) == std::to_string(next++));
		}
	}
	CHECK(next == taken);
	CHECK(WaitUntil([&] { return nodes.n0.Peer("n1").queue_bytes == 0; }));
}

// Goal: an urgent message passes bulk that waits. Method: 48 MiB queued, then one urgent message; it must not come
// last.
TEST_CASE("an urgent message passes queued bulk") {
	TwoNodes nodes;
	Gate gate;
	nodes.n1.on_call = [&](const std::string &, const std::string &, std::string, MonotonicNs, Responder respond) {
		gate.Pass();
		respond(std::string());
	};
	nodes.Connect();
	nodes.n0.Get().Call("n1", "stall", "", TEST_DEADLINE, [](Result<std::string>) {});
	REQUIRE(WaitUntil([&] { return gate.IsWaiting(); }));
	for (int i = 0; i < 48; i++) {
		REQUIRE(nodes.n0.Get().Send("n1", std::string(1024 * 1024, 'b')).IsOk());
	}
	REQUIRE(nodes.n0.Get().SendUrgent("n1", "vote").IsOk());
	gate.Open();
	REQUIRE(WaitUntil([&] { return nodes.n1.MessageCount("n0") == 49; }));
	auto received = nodes.n1.Messages("n0");
	size_t position = 0;
	while (received[position] != "vote") {
		position++;
	}
	// Behind it is at least what had not fit the 16 MiB window when it was sent.
	CHECK_MESSAGE(position < 32, "the urgent message came as number " << position);
}

TEST_CASE("oversized messages and calls are refused at once") {
	TwoNodes nodes;
	nodes.n0.config.message_bytes_max = 1000;
	nodes.n1.config.message_bytes_max = 500;
	nodes.Connect();
	CHECK(nodes.n0.Get().Send("n1", std::string(1001, 'x')).Code() == ErrorCode::InvalidArgument);
	auto call = nodes.n0.CallAndWait("n1", "echo", std::string(1001, 'x'));
	CHECK(call.GetStatus().Code() == ErrorCode::InvalidArgument);
	// Larger than the receiver takes: the receiver says so.
	auto other = nodes.n0.CallAndWait("n1", "echo", std::string(600, 'x'));
	CHECK(other.GetStatus().Code() == ErrorCode::InvalidArgument);
	CHECK(HasAll(other.GetStatus().Message(), {"500 bytes", "message_bytes_max"}));
	CHECK(nodes.n0.CallAndWait("n1", "echo", std::string(400, 'x')).IsOk());
	REQUIRE(nodes.n0.Get().Send("n1", std::string(600, 'x')).IsOk());
	CHECK(WaitUntil([&] { return nodes.n1.HasRefusal({"from 'n0'", "600 bytes was announced", "500"}); }));
	CHECK(WaitUntil([&] { return nodes.n0.DownCount("n1") >= 1; }));
	CHECK(WaitUntil([&] { return nodes.n0.IsConnected("n1"); }));
}

// Goal: every call is answered exactly once, whatever happens to the sessions and the transport. Method: four threads
// call without pause while the peer is stopped, and at last the caller itself.
TEST_CASE("calls are answered exactly once through disconnects and stop") {
	TwoNodes nodes;
	nodes.Connect();
	std::atomic<size_t> made {0};
	std::atomic<size_t> answered {0};
	std::atomic<size_t> right {0};
	std::atomic<bool> is_over {false};
	std::vector<std::unique_ptr<std::atomic<int>>> counts;
	std::mutex lock;
	std::vector<std::thread> callers;
	for (int i = 0; i < 4; i++) {
		callers.emplace_back([&] {
			while (!is_over) {
				if (made - answered > 500) {
					std::this_thread::yield();
					continue;
				}
				std::atomic<int> *count = nullptr;
				{
					std::lock_guard<std::mutex> guard(lock);
					counts.push_back(std::make_unique<std::atomic<int>>(0));
					count = counts.back().get();
				}
				made++;
				nodes.n0.Get().Call("n1", "echo", std::string(300, 'c'), TEST_DEADLINE,
				                    [&, count](Result<std::string> result) {
					                    (*count)++;
					                    answered++;
					                    right += result.IsOk() ? 1 : 0;
				                    });
			}
		});
	}
	CHECK(WaitUntil([&] { return right > 500; }));
	nodes.n1.Stop();
	CHECK(WaitUntil([&] { return answered > right; }));
	nodes.n0.Stop();
	is_over = true;
	for (auto &caller : callers) {
		caller.join();
	}
	CHECK(answered == made);
	for (auto &count : counts) {
		REQUIRE(*count == 1);
	}
}

// Goal: a link that is dead but not closed is found by both sides and dialed anew when it works again.
TEST_CASE("a half-open link is dropped and dialed again") {
	TwoNodes nodes;
	nodes.n0.config.idle_timeout = 2 * NS_PER_SECOND;
	nodes.n1.config.idle_timeout = 2 * NS_PER_SECOND;
	nodes.n0.Start();
	nodes.n1.Start();
	FreezingProxy proxy(nodes.n1.Get().ListenPort());
	nodes.n0.Get().SetPeers({{"n1", "127.0.0.1", proxy.Port()}});
	nodes.n1.Get().SetPeers({{"n0", "127.0.0.1", 1}});
	REQUIRE(WaitUntil([&] { return nodes.n0.IsConnected("n1") && nodes.n1.Peer("n0").inbound_connected; }));
	// PING keeps an idle link: nothing is sent here for several idle limits.
	SystemClock clock;
	auto until = clock.Now() + 5 * NS_PER_SECOND;
	WaitUntil([&] { return clock.Now() > until; });
	REQUIRE(nodes.n0.UpCount("n1") == 1);
	REQUIRE(nodes.n0.IsConnected("n1"));

	proxy.SetFrozen(true);
	CHECK(WaitUntil([&] { return nodes.n0.DownCount("n1") == 1; }));
	CHECK(HasAll(nodes.n0.LastDownReason(), {"idle_timeout"}));
	CHECK(WaitUntil([&] { return !nodes.n1.Peer("n0").inbound_connected; }));
	proxy.SetFrozen(false);
	CHECK(WaitUntil([&] { return nodes.n0.UpCount("n1") == 2; }));
	CHECK(nodes.n0.CallAndWait("n1", "echo", "back").Value() == "back");
}

// Goal: peers can be removed, added and moved while running, and a name is resolved at dial.
TEST_CASE("the set of peers changes while running") {
	TwoNodes nodes;
	nodes.Connect();
	nodes.n0.Get().SetPeers({});
	CHECK(nodes.n0.Get().GetPeers().empty());
	CHECK(WaitUntil([&] { return nodes.n0.DownCount("n1") == 1; }));
	CHECK(HasAll(nodes.n0.Get().Send("n1", "x").Message(), {"not in the set of peers"}));
	nodes.n0.Get().SetPeers({{"n1", "127.0.0.1", 1}, nodes.n0.Address()});
	CHECK(nodes.n0.Get().GetPeers().size() == 1);
	CHECK(WaitUntil([&] { return HasAll(nodes.n0.Peer("n1").last_error, {"cannot connect"}); }));
	nodes.n0.Get().SetPeers({{"n1", "localhost", nodes.n1.Get().ListenPort()}});
	REQUIRE(WaitUntil([&] { return nodes.n0.IsConnected("n1"); }));
	CHECK(nodes.n0.Peer("n1").address == "localhost:" + std::to_string(nodes.n1.Get().ListenPort()));
	nodes.n0.Get().SetPeers({{"n1", "no-such-host.invalid", 1}});
	CHECK(
	    WaitUntil([&] { return HasAll(nodes.n0.Peer("n1").last_error, {"cannot resolve", "no-such-host.invalid"}); }));
}

TEST_CASE("a transport starts once and stops often") {
	TwoNodes nodes;
	nodes.n0.Start();
	CHECK(nodes.n0.Get().Start().Code() == ErrorCode::InvalidArgument);
	nodes.n0.Stop();
	nodes.n0.Stop();
	CHECK(nodes.n0.Get().Send("n1", "x").Code() == ErrorCode::Unavailable);
	int answers = 0;
	nodes.n0.Get().Call("n1", "echo", "", NS_PER_SECOND, [&](Result<std::string> result) {
		CHECK(result.GetStatus().Code() == ErrorCode::Unavailable);
		answers++;
	});
	CHECK(answers == 1);
	nodes.n1.config.idle_timeout = 0;
	CHECK(nodes.n1.TryStart().Code() == ErrorCode::InvalidArgument);
}

} // namespace transport
} // namespace quack
