//! Fetches an image of the state from the leader when the log alone cannot bring this node up to date.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "quack/node/apply_loop.hpp"
#include "quack/node/member_directory.hpp"
#include "quack/node/snapshot_download.hpp"

namespace quack {
namespace node {

//! One thread, one transfer at a time. Chunks are asked for one after the other, each with its checksum; a lost one is
//! asked for again at its offset, so a broken connection resumes. The complete file goes to ApplyLoop::PushInstall; a
//! failed transfer is reported to the loop as SnapshotFailed, and the core asks again.
class SnapshotFetcher {
public:
	SnapshotFetcher(const RaftEngineConfig &config, const MemberDirectory &directory, transport::Transport &transport,
	                const Clock &clock, ApplyLoop &apply, LoopMailbox &loop, DegradedLatch &latch);
	~SnapshotFetcher();

	//! Creates temp_dir and removes leftovers of earlier transfers there.
	Status PrepareDirectory() const;
	void Start();
	void Stop();

	//! Loop thread. Replaces a request of the group that has not begun.
	void Request(raft::GroupId group, raft::LogIndex index_min, raft::NodeId from);
	uint64_t BytesDone() const {
		return bytes_done.load();
	}
	//! 0 = no transfer.
	uint64_t BytesTotal() const {
		return bytes_total.load();
	}
	//! Why the last transfer failed; empty after one that succeeded.
	std::string LastError() const;

private:
	struct Job {
		raft::GroupId group = raft::ROOT_GROUP;
		raft::LogIndex index_min = 0;
		raft::NodeId from = raft::NO_NODE;
	};

	void Run();
	Status Fetch(const Job &job);
	Status FetchInto(const std::string &peer, SnapshotDownload &download, int file);
	Result<std::string> CallAndWait(const std::string &peer, const char *method, std::string body);
	void Pace(MonotonicNs begun, uint64_t bytes);
	//! False when stopping.
	bool Sleep(MonotonicNs time);
	bool ShouldQuit() const;

	const RaftEngineConfig &config;
	const MemberDirectory &directory;
	transport::Transport &transport;
	const Clock &clock;
	ApplyLoop &apply;
	LoopMailbox &loop;
	DegradedLatch &latch;

	mutable std::mutex lock; //! guards jobs, last_error and the flag
	std::condition_variable changed;
	std::map<raft::GroupId, Job> jobs;
	std::string last_error;
	std::atomic<bool> is_stopping {false};
	std::atomic<uint64_t> bytes_done {0};
	std::atomic<uint64_t> bytes_total {0};
	std::thread thread;
};

} // namespace node
} // namespace quack
