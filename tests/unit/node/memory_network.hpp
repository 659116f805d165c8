//! A network in memory whose links can be cut. Each transport has one delivery thread, like the event loop of the real
//! one: order per peer is kept while a link lives, messages in flight are lost with it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "quack/transport/transport.hpp"

namespace quack {
namespace test {

class MemoryTransport;

//! Outlives its transports.
class MemoryNetwork {
public:
	std::unique_ptr<transport::Transport> Make(const std::string &name, transport::TransportHandler &handler);

	//! Both directions. Idempotent.
	void Cut(const std::string &a, const std::string &b);
	void Heal(const std::string &a, const std::string &b);
	//! From everybody known.
	void Isolate(const std::string &name);
	void HealAll();
	//! Answers to calls from `a` to `b` are lost from now on, the requests still arrive.
	void LoseAnswers(const std::string &a, const std::string &b, bool lose);

private:
	friend class MemoryTransport;
	using Link = std::pair<std::string, std::string>;

	static Link LinkOf(const std::string &a, const std::string &b) {
		return a < b ? Link(a, b) : Link(b, a);
	}
	//! Brings links up and down as cuts and running transports say.
	void Refresh();
	void TakeDown(const Link &link, const std::string &reason);

	std::mutex lock; //! guards everything, queues included; not held while a handler runs
	std::map<std::string, MemoryTransport *> transports;
	std::set<Link> cut;
	std::set<Link> up;
	std::map<Link, std::string> refused; //! link -> why the hello was refused
	std::set<std::pair<std::string, std::string>> answers_lost;
};

class MemoryTransport final : public transport::Transport {
public:
	MemoryTransport(MemoryNetwork &network, std::string name, transport::TransportHandler &handler);
	~MemoryTransport() override;

	Status Start() override;
	void Stop() override;
	uint16_t ListenPort() const override {
		return 1;
	}
	void SetPeers(const std::vector<transport::PeerAddress> &peers) override;
	Status Send(const std::string &peer, std::string bytes) override;
	void Call(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	          transport::Responder respond) override;
	std::vector<transport::PeerStatus> GetPeers() const override;
	std::vector<transport::InboundRefusal> GetRefusals() const override {
		return {};
	}

private:
	friend class MemoryNetwork;
	struct PendingCall {
		std::string peer;
		MonotonicNs deadline;
		transport::Responder respond;
	};

	void Run();
	//! With the network's lock held.
	void Post(std::function<void()> task);
	void Answer(const std::string &responder_name, uint64_t call, Result<std::string> answer);

	MemoryNetwork &network;
	const std::string name;
	transport::TransportHandler &handler;
	SystemClock clock;

	// All guarded by the network's lock.
	std::condition_variable changed;
	std::deque<std::function<void()>> tasks;
	std::map<uint64_t, PendingCall> calls;
	std::vector<std::string> peer_names;
	std::map<std::string, MonotonicNs> last_receive;
	uint64_t next_call = 1;
	bool is_running = false;
	std::thread thread;
};

} // namespace test
} // namespace quack
