//! Serves images of this node's state to peers, and to backups.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "quack/node/degraded_latch.hpp"
#include "quack/node/engine_config.hpp"
#include "quack/node/state_machine.hpp"
#include "quack/transport/transport.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

//! One thread reads the images, so that neither the transport nor the event loop waits for a disk. An image stays open
//! until nobody asked for a chunk of it for snapshot_idle_timeout; until then the log behind it is kept, or a slow
//! receiver would need the next image at once.
class SnapshotServer {
public:
	//! The membership in force at the start of a group's log: that of an image whose state machine never saw a change.
	using MembershipSource = std::function<raft::Membership(raft::GroupId)>;

	SnapshotServer(const RaftEngineConfig &config, StateMachine &state_machine, const Clock &clock,
	               DegradedLatch &latch, MembershipSource membership_source);
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

	//! Lowest index of the group in an open image; UINT64_MAX = none is open.
	raft::LogIndex HeldIndex(raft::GroupId group) const;
	uint64_t BytesDone() const;
	uint64_t BytesTotal() const;

private:
	struct Image {
		std::unique_ptr<StateMachine::SnapshotImage> image;
		MonotonicNs last_used = 0;
		uint64_t bytes_served = 0;
		bool keeps_log = true;
	};
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
	wire::SnapshotOpenAnswer DoOpen(const std::string &body, bool keeps_log);
	wire::SnapshotChunkAnswer DoChunk(const std::string &body);
	void CloseIdle();

	const RaftEngineConfig &config;
	StateMachine &state_machine;
	const Clock &clock;
	DegradedLatch &latch;
	MembershipSource membership_source;

	mutable std::mutex lock; //! guards requests, images and the flag; an image is read without it, by the one thread
	std::condition_variable changed;
	std::deque<Request> requests;
	std::map<uint64_t, Image> images;
	bool is_stopping = false;
	uint64_t next_image = 1;
	std::thread thread;
};

} // namespace node
} // namespace quack
