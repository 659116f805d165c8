#include "unit/node/memory_network.hpp"

namespace quack {
namespace test {

std::unique_ptr<transport::Transport> MemoryNetwork::Make(const std::string &name,
                                                          transport::TransportHandler &handler) {
	return std::make_unique<MemoryTransport>(*this, name, handler);
}

void MemoryNetwork::Cut(const std::string &a, const std::string &b) {
	{
		std::lock_guard<std::mutex> guard(lock);
		cut.insert(LinkOf(a, b));
	}
	Refresh();
}

void MemoryNetwork::Heal(const std::string &a, const std::string &b) {
	{
		std::lock_guard<std::mutex> guard(lock);
		cut.erase(LinkOf(a, b));
	}
	Refresh();
}

void MemoryNetwork::Isolate(const std::string &name) {
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : transports) {
			if (entry.first != name) {
				cut.insert(LinkOf(name, entry.first));
			}
		}
	}
	Refresh();
}

void MemoryNetwork::HealAll() {
	{
		std::lock_guard<std::mutex> guard(lock);
		cut.clear();
	}
	Refresh();
}

void MemoryNetwork::LoseAnswers(const std::string &a, const std::string &b, bool lose) {
	std::lock_guard<std::mutex> guard(lock);
	if (lose) {
		answers_lost.insert({a, b});
	} else {
		answers_lost.erase({a, b});
	}
}

void MemoryNetwork::Refresh() {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<Link> down;
	for (auto &link : up) {
		if (cut.count(link) != 0 || !transports.count(link.first) || !transports.count(link.second)) {
			down.push_back(link);
		}
	}
	for (auto &link : down) {
		TakeDown(link, "the link was cut");
	}
	for (auto &a : transports) {
		for (auto &b : transports) {
			auto link = LinkOf(a.first, b.first);
			if (a.first >= b.first || up.count(link) != 0 || cut.count(link) != 0) {
				continue;
			}
			// The hello check only reads fixed data, so it may run under the lock.
			auto by_b = b.second->handler.CheckHello(a.first, a.second->handler.LocalHello());
			auto by_a = a.second->handler.CheckHello(b.first, b.second->handler.LocalHello());
			if (!by_a.IsOk() || !by_b.IsOk()) {
				refused[link] = by_a.IsOk() ? by_b.Message() : by_a.Message();
				continue;
			}
			refused.erase(link);
			up.insert(link);
			a.second->Post([handler = &a.second->handler, peer = b.first] { handler->OnPeerUp(peer); });
			b.second->Post([handler = &b.second->handler, peer = a.first] { handler->OnPeerUp(peer); });
		}
	}
}

void MemoryNetwork::TakeDown(const Link &link, const std::string &reason) {
	up.erase(link);
	for (auto &side : {std::make_pair(link.first, link.second), std::make_pair(link.second, link.first)}) {
		auto entry = transports.find(side.first);
		if (entry == transports.end()) {
			continue;
		}
		auto &transport = *entry->second;
		for (auto call = transport.calls.begin(); call != transport.calls.end();) {
			if (call->second.peer == side.second) {
				transport.Post([respond = std::move(call->second.respond), reason] {
					respond(Status(ErrorCode::OutcomeUnknown, reason));
				});
				call = transport.calls.erase(call);
			} else {
				++call;
			}
		}
		transport.Post(
		    [handler = &transport.handler, peer = side.second, reason] { handler->OnPeerDown(peer, reason); });
	}
}

MemoryTransport::MemoryTransport(MemoryNetwork &network_p, std::string name_p, transport::TransportHandler &handler_p)
    : network(network_p), name(std::move(name_p)), handler(handler_p) {
}

MemoryTransport::~MemoryTransport() {
	Stop();
}

Status MemoryTransport::Start() {
	{
		std::lock_guard<std::mutex> guard(network.lock);
		is_running = true;
		network.transports[name] = this;
	}
	thread = std::thread([this] { Run(); });
	network.Refresh();
	return Status::Ok();
}

void MemoryTransport::Stop() {
	std::map<uint64_t, PendingCall> dropped;
	{
		std::lock_guard<std::mutex> guard(network.lock);
		if (!is_running) {
			return;
		}
		is_running = false;
		network.transports.erase(name);
		dropped.swap(calls);
	}
	network.Refresh();
	changed.notify_all();
	thread.join();
	for (auto &call : dropped) {
		call.second.respond(Status(ErrorCode::OutcomeUnknown, "the transport stops"));
	}
}

void MemoryTransport::SetPeers(const std::vector<transport::PeerAddress> &peers) {
	std::lock_guard<std::mutex> guard(network.lock);
	peer_names.clear();
	for (auto &peer : peers) {
		peer_names.push_back(peer.node_id);
	}
}

void MemoryTransport::Post(std::function<void()> task) {
	tasks.push_back(std::move(task));
	changed.notify_all();
}

void MemoryTransport::Run() {
	std::unique_lock<std::mutex> guard(network.lock);
	while (is_running) {
		if (tasks.empty()) {
			changed.wait_for(guard, std::chrono::milliseconds(5));
		}
		auto now = clock.Now();
		for (auto call = calls.begin(); call != calls.end();) {
			if (call->second.deadline <= now) {
				Post([respond = std::move(call->second.respond)] {
					respond(Status(ErrorCode::DeadlineExceeded, "no answer in time"));
				});
				call = calls.erase(call);
			} else {
				++call;
			}
		}
		std::deque<std::function<void()>> round;
		round.swap(tasks);
		guard.unlock();
		for (auto &task : round) {
			task();
		}
		guard.lock();
	}
}

Status MemoryTransport::Send(const std::string &peer, std::string bytes) {
	std::lock_guard<std::mutex> guard(network.lock);
	if (network.up.count(MemoryNetwork::LinkOf(name, peer)) == 0) {
		return Status(ErrorCode::Unavailable, peer + " is not connected");
	}
	auto &target = *network.transports.at(peer);
	target.last_receive[name] = clock.Now();
	target.Post([handler = &target.handler, from = name, bytes = std::move(bytes)]() mutable {
		handler->OnMessage(from, std::move(bytes));
	});
	return Status::Ok();
}

void MemoryTransport::Call(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
                           transport::Responder respond) {
	std::unique_lock<std::mutex> guard(network.lock);
	if (!is_running) {
		guard.unlock();
		respond(Status(ErrorCode::Unavailable, "the transport is stopped"));
		return;
	}
	if (network.up.count(MemoryNetwork::LinkOf(name, peer)) == 0) {
		Post([respond, peer] { respond(Status(ErrorCode::Unavailable, peer + " is not connected")); });
		return;
	}
	auto call = next_call++;
	calls[call] = {peer, clock.Now() + timeout, std::move(respond)};
	auto &target = *network.transports.at(peer);
	target.Post([&network_p = network, handler = &target.handler, from = name, peer, method, body = std::move(body),
	             timeout, call]() mutable {
		handler->OnCall(from, method, std::move(body), timeout,
		                [&network_p, from, peer, call](Result<std::string> answer) {
			                std::lock_guard<std::mutex> inner(network_p.lock);
			                auto caller = network_p.transports.find(from);
			                if (caller != network_p.transports.end() &&
							    network_p.up.count(MemoryNetwork::LinkOf(from, peer)) != 0 &&
							    network_p.answers_lost.count({from, peer}) == 0) {
				                caller->second->Answer(peer, call, std::move(answer));
			                }
		                });
	});
}

void MemoryTransport::Answer(const std::string &responder_name, uint64_t call, Result<std::string> answer) {
	auto entry = calls.find(call);
	if (entry == calls.end() || entry->second.peer != responder_name) {
		return;
	}
	Post([respond = std::move(entry->second.respond), answer = std::move(answer)] { respond(answer); });
	calls.erase(entry);
}

std::vector<transport::PeerStatus> MemoryTransport::GetPeers() const {
	std::lock_guard<std::mutex> guard(network.lock);
	std::vector<transport::PeerStatus> result;
	for (auto &peer : peer_names) {
		transport::PeerStatus status;
		status.node_id = peer;
		status.address = peer + ":1";
		auto link = MemoryNetwork::LinkOf(name, peer);
		status.connected = network.up.count(link) != 0;
		auto refusal = network.refused.find(link);
		if (refusal != network.refused.end()) {
			status.last_error = refusal->second;
		} else if (!status.connected) {
			status.last_error = "connection refused";
		}
		auto received = last_receive.find(peer);
		status.last_receive = received == last_receive.end() ? 0 : received->second;
		result.push_back(std::move(status));
	}
	return result;
}

} // namespace test
} // namespace quack
