//! Serves images of this node's state to peers, and to backups.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "quack/node/degraded_latch.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/node/send_pacer.hpp"
#include "quack/node/snapshot_shelf.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace node {

//! One thread makes images, which takes as long as copying the whole state; another one reads them. So neither the
//! transport nor the event loop waits for a disk, and no receiver for another one's image. Peers get at most
//! RaftEngineConfig::snapshot_bytes_per_second together; backups are not limited here.
class SnapshotServer {
public:
	SnapshotServer(const RaftEngineConfig &config, StateMachine &state_machine, const Clock &clock,
	               DegradedLatch &latch, SnapshotShelf::MembershipSource membership_source);
	~SnapshotServer();

	//! Finds the images of an earlier life. Before Start.
	void Prepare();
	void Start();
	void Stop();

	//! Any thread; answers later. Overloaded when too many requests wait. While an image is being made for peers they
	//! are told so (SnapshotOpenAnswer::is_preparing).
	void Open(const std::string &peer, std::string body, transport::Responder respond);
	void Chunk(const std::string &peer, std::string body, transport::Responder respond);
	//! As Open and Chunk, for a copy that no log continues: the log behind it may go.
	void OpenForBackup(std::string body, transport::Responder respond);
	void ChunkForBackup(std::string body, transport::Responder respond);
	//! Does not wait for it to be idle. Nothing happens when it is not open.
	void Close(uint64_t image);

	//! As SnapshotShelf, from any thread.
	const SnapshotShelf &Shelf() const {
		return shelf;
	}
	//! Any thread: those of the shelf, and the image that is being made.
	std::vector<SnapshotTransfer> Transfers() const;

private:
	struct Request {
		enum class Kind : uint8_t { Chunk, Close };
		Kind kind = Kind::Chunk;
		std::string peer;
		std::string body;
		transport::Responder respond;
		uint64_t image = 0; //! Close
	};
	struct OpenRequest {
		std::string peer;
		std::string body;
		transport::Responder respond;
	};

	void PushOpen(OpenRequest request);
	void PushRead(Request request);
	void RunOpens();
	void RunReads();
	//! Under the lock: the first request that may be served now, else how long the first one has to wait.
	bool TakeRead(Request &request, MonotonicNs &wait);
	void Serve(Request &request);

	const RaftEngineConfig &config;
	const Clock &clock;
	DegradedLatch &latch;
	SnapshotShelf shelf;

	mutable std::mutex lock; //! guards opens, reads, making_for and the flag
	std::condition_variable opens_changed;
	std::condition_variable reads_changed;
	std::deque<OpenRequest> opens;
	std::deque<Request> reads;
	//! For whom an image is being made; without value = nobody.
	std::optional<std::string> making_for;
	bool is_stopping = false;
	SendPacer pacer; //! reading thread only
	std::thread open_thread;
	std::thread read_thread;
};

} // namespace node
} // namespace quack
