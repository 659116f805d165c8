//! Serves images of this node's state to peers, and to backups.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "quack/node/degraded_latch.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/node/snapshot_shelf.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace node {

//! One thread reads the images of a SnapshotShelf, so that neither the transport nor the event loop waits for a disk.
class SnapshotServer {
public:
	SnapshotServer(const RaftEngineConfig &config, StateMachine &state_machine, const Clock &clock,
	               DegradedLatch &latch, SnapshotShelf::MembershipSource membership_source);
	~SnapshotServer();

	void Start();
	void Stop();

	//! Any thread; answers later. Overloaded when too many requests wait.
	void Open(std::string body, transport::Responder respond);
	void Chunk(std::string body, transport::Responder respond);
	//! As Open, for a copy that no log continues: the log behind it may go.
	void OpenForBackup(std::string body, transport::Responder respond);
	//! Does not wait for it to be idle. Nothing happens when it is not open.
	void Close(uint64_t image);

	//! As SnapshotShelf, from any thread.
	const SnapshotShelf &Shelf() const {
		return shelf;
	}

private:
	struct Request {
		enum class Kind : uint8_t { Open, OpenForBackup, Chunk, Close };
		Kind kind = Kind::Open;
		std::string body;
		transport::Responder respond;
		uint64_t image = 0; //! Close
	};

	void Push(Request request);
	void Run();
	void Serve(Request &request);

	const RaftEngineConfig &config;
	const Clock &clock;
	DegradedLatch &latch;
	SnapshotShelf shelf;

	std::mutex lock; //! guards requests and the flag
	std::condition_variable changed;
	std::deque<Request> requests;
	bool is_stopping = false;
	std::thread thread;
};

} // namespace node
} // namespace quack
