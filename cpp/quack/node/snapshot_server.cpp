#include "quack/node/snapshot_server.hpp"

namespace quack {
namespace node {

namespace {

constexpr size_t REQUESTS_MAX = 64;
constexpr MonotonicNs IDLE_LOOK = 500 * NS_PER_MS;

} // namespace

SnapshotServer::SnapshotServer(const RaftEngineConfig &config_p, StateMachine &state_machine_p, const Clock &clock_p,
                               DegradedLatch &latch_p, SnapshotShelf::MembershipSource membership_source_p)
    : config(config_p), clock(clock_p), latch(latch_p),
      shelf(config_p, state_machine_p, std::move(membership_source_p)), pacer(config_p.snapshot_bytes_per_second) {
}

SnapshotServer::~SnapshotServer() {
	Stop();
}

void SnapshotServer::Prepare() {
	shelf.Begin(clock.Now());
}

void SnapshotServer::Start() {
	open_thread = std::thread([this] { RunGuarded(latch, "snapshot maker", [this] { RunOpens(); }); });
	read_thread = std::thread([this] { RunGuarded(latch, "snapshot server", [this] { RunReads(); }); });
}

void SnapshotServer::Stop() {
	std::vector<transport::Responder> dropped;
	{
		std::lock_guard<std::mutex> guard(lock);
		is_stopping = true;
		for (auto &request : opens) {
			dropped.push_back(std::move(request.respond));
		}
		for (auto &request : reads) {
			dropped.push_back(std::move(request.respond));
		}
		opens.clear();
		reads.clear();
	}
	opens_changed.notify_all();
	reads_changed.notify_all();
	for (auto &respond : dropped) {
		respond(Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is stopping"));
	}
	if (open_thread.joinable()) {
		open_thread.join();
	}
	if (read_thread.joinable()) {
		read_thread.join();
	}
	shelf.CloseAll();
}

void SnapshotServer::Open(const std::string &peer, std::string body, transport::Responder respond) {
	PushOpen({peer, std::move(body), std::move(respond)});
}

void SnapshotServer::OpenForBackup(std::string body, transport::Responder respond) {
	PushOpen({SnapshotShelf::BACKUP, std::move(body), std::move(respond)});
}

void SnapshotServer::Chunk(const std::string &peer, std::string body, transport::Responder respond) {
	PushRead({Request::Kind::Chunk, peer, std::move(body), std::move(respond)});
}

void SnapshotServer::ChunkForBackup(std::string body, transport::Responder respond) {
	PushRead({Request::Kind::Chunk, SnapshotShelf::BACKUP, std::move(body), std::move(respond)});
}

void SnapshotServer::Close(uint64_t image) {
	PushRead({Request::Kind::Close, {}, {}, [](const Result<std::string> &) {}, image});
}

std::vector<SnapshotTransfer> SnapshotServer::Transfers() const {
	auto rows = shelf.Transfers(clock.Now());
	std::lock_guard<std::mutex> guard(lock);
	if (making_for) {
		SnapshotTransfer row;
		row.peer = *making_for;
		row.is_sending = true;
		row.state = "preparing";
		rows.push_back(std::move(row));
	}
	return rows;
}

void SnapshotServer::PushOpen(OpenRequest request) {
	bool is_preparing = false;
	{
		std::lock_guard<std::mutex> guard(lock);
		is_preparing = making_for.has_value() && request.peer != SnapshotShelf::BACKUP;
		if (!is_stopping && !is_preparing && opens.size() < REQUESTS_MAX) {
			opens.push_back(std::move(request));
			opens_changed.notify_one();
			return;
		}
	}
	Status status(ErrorCode::Overloaded, "node '" + config.node_id + "' serves too many snapshots");
	if (!is_preparing) {
		request.respond(std::move(status));
		return;
	}
	wire::SnapshotOpenAnswer answer;
	answer.status =
	    Status(ErrorCode::Unavailable, "node '" + config.node_id + "' is making an image of its state; ask again");
	answer.is_preparing = true;
	request.respond(Encode(answer));
}

void SnapshotServer::PushRead(Request request) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (!is_stopping && reads.size() < REQUESTS_MAX) {
			reads.push_back(std::move(request));
			reads_changed.notify_one();
			return;
		}
	}
	request.respond(Status(ErrorCode::Overloaded, "node '" + config.node_id + "' serves too many snapshots"));
}

void SnapshotServer::RunOpens() {
	std::unique_lock<std::mutex> guard(lock);
	while (true) {
		opens_changed.wait(guard, [this] { return !opens.empty() || is_stopping; });
		if (is_stopping) {
			return;
		}
		auto request = std::move(opens.front());
		opens.pop_front();
		making_for = request.peer;
		guard.unlock();
		if (latch.IsSet()) {
			request.respond(Status(ErrorCode::Degraded, "node '" + config.node_id + "' is out of service"));
		} else {
			request.respond(Encode(shelf.Open(request.body, request.peer, clock.Now())));
		}
		guard.lock();
		making_for.reset();
	}
}

void SnapshotServer::RunReads() {
	while (true) {
		Request request;
		{
			std::unique_lock<std::mutex> guard(lock);
			MonotonicNs wait = IDLE_LOOK;
			if (!is_stopping && !TakeRead(request, wait)) {
				reads_changed.wait_for(guard, std::chrono::nanoseconds(wait));
			}
			if (is_stopping) {
				return;
			}
		}
		shelf.CloseIdle(clock.Now());
		if (request.respond) {
			Serve(request);
		}
	}
}

bool SnapshotServer::TakeRead(Request &request, MonotonicNs &wait) {
	auto pause = pacer.Wait(clock.Now());
	for (auto entry = reads.begin(); entry != reads.end(); ++entry) {
		auto is_paced = entry->kind == Request::Kind::Chunk && entry->peer != SnapshotShelf::BACKUP;
		if (!is_paced || pause == 0) {
			request = std::move(*entry);
			reads.erase(entry);
			return true;
		}
		wait = std::min(wait, pause);
	}
	return false;
}

void SnapshotServer::Serve(Request &request) {
	if (request.kind == Request::Kind::Close) {
		shelf.Close(request.image);
		return;
	}
	if (latch.IsSet()) {
		request.respond(Status(ErrorCode::Degraded, "node '" + config.node_id + "' is out of service"));
		return;
	}
	auto is_paced = request.peer != SnapshotShelf::BACKUP;
	auto answer = shelf.Chunk(request.body, request.peer, clock.Now(), is_paced ? pacer.PieceBytesMax() : UINT64_MAX);
	if (is_paced) {
		pacer.Sent(answer.data.size(), clock.Now());
	}
	request.respond(Encode(answer));
}

} // namespace node
} // namespace quack
