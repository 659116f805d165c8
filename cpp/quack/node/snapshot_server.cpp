#include "quack/node/snapshot_server.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t REQUESTS_MAX = 64;

} // namespace

SnapshotServer::SnapshotServer(const RaftEngineConfig &config_p, StateMachine &state_machine_p, const Clock &clock_p,
                               DegradedLatch &latch_p, SnapshotShelf::MembershipSource membership_source_p)
    : config(config_p), clock(clock_p), latch(latch_p),
      shelf(config_p, state_machine_p, std::move(membership_source_p)) {
}

SnapshotServer::~SnapshotServer() {
	Stop();
}

void SnapshotServer::Start() {
	// Numbers of an earlier life must not name an image of this one.
	shelf.NumberFrom(static_cast<uint64_t>(clock.Now()) | 1);
	thread = std::thread([this] { RunGuarded(latch, "snapshot server", [this] { Run(); }); });
}

void SnapshotServer::Stop() {
	std::deque<Request> dropped;
	{
		std::lock_guard<std::mutex> guard(lock);
		is_stopping = true;
		dropped.swap(requests);
	}
	changed.notify_all();
	for (auto &request : dropped) {
		request.respond(Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping"));
	}
	if (thread.joinable()) {
		thread.join();
	}
}

void SnapshotServer::Open(std::string body, transport::Responder respond) {
	Push({Request::Kind::Open, std::move(body), std::move(respond)});
}

void SnapshotServer::OpenForBackup(std::string body, transport::Responder respond) {
	Push({Request::Kind::OpenForBackup, std::move(body), std::move(respond)});
}

void SnapshotServer::Chunk(std::string body, transport::Responder respond) {
	Push({Request::Kind::Chunk, std::move(body), std::move(respond)});
}

void SnapshotServer::Close(uint64_t image) {
	Push({Request::Kind::Close, std::string(), [](const Result<std::string> &) {}, image});
}

void SnapshotServer::Push(Request request) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (!is_stopping && requests.size() < REQUESTS_MAX) {
			requests.push_back(std::move(request));
			changed.notify_one();
			return;
		}
	}
	request.respond(Status(ErrorCode::Overloaded, "node '" + config.node_id + "' serves too many snapshots"));
}

void SnapshotServer::Run() {
	while (true) {
		Request request;
		{
			std::unique_lock<std::mutex> guard(lock);
			changed.wait_for(guard, std::chrono::milliseconds(500),
			                 [this] { return !requests.empty() || is_stopping; });
			if (is_stopping) {
				break;
			}
			if (!requests.empty()) {
				request = std::move(requests.front());
				requests.pop_front();
			}
		}
		shelf.CloseIdle(clock.Now());
		if (request.respond) {
			Serve(request);
		}
	}
	shelf.CloseAll();
}

void SnapshotServer::Serve(Request &request) {
	if (request.kind == Request::Kind::Close) {
		shelf.Close(request.image);
	} else if (latch.IsSet()) {
		request.respond(Status(ErrorCode::Degraded, "node '" + config.node_id + "' is out of service"));
	} else if (request.kind == Request::Kind::Chunk) {
		request.respond(Encode(shelf.Chunk(request.body, clock.Now())));
	} else {
		request.respond(Encode(shelf.Open(request.body, request.kind == Request::Kind::Open, clock.Now())));
	}
}

} // namespace node
} // namespace quack
