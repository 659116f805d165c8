//! Fetches an image of the state from the leader when the log alone cannot bring this node up to date.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "quack/node/apply_loop.hpp"
#include "quack/node/incoming_file.hpp"
#include "quack/node/member_directory.hpp"
#include "quack/node/snapshot_download.hpp"
#include "quack/node/snapshot_transfer.hpp"

namespace quack {
namespace node {

//! One thread, one transfer at a time. Chunks are asked for one after the other, each with its checksum; a lost one is
//! asked for again at its offset, so a broken connection resumes. What came is kept (IncomingFile): a failed transfer,
//! and one that a restart of either side cut, goes on where it was when its source still has the image; else it begins
//! anew, and the log says so. The complete file goes to ApplyLoop::PushInstall; a failed transfer is reported to the
//! loop as SnapshotFailed, and the core asks again.
class SnapshotFetcher {
public:
	SnapshotFetcher(const RaftEngineConfig &config, const MemberDirectory &directory, transport::Transport &transport,
	                const Clock &clock, ApplyLoop &apply, LoopMailbox &loop, DegradedLatch &latch);
	~SnapshotFetcher();

	//! Creates temp_dir and removes leftovers of earlier transfers there, but what can be resumed.
	Status PrepareDirectory();
	void Start();
	void Stop();

	//! Loop thread. Replaces a request of the group that has not begun.
	void Request(raft::GroupId group, raft::LogIndex index_min, raft::NodeId from);
	//! The one under way; without value = none.
	std::optional<SnapshotTransfer> Transfer() const;
	//! Why the last transfer failed; empty after one that succeeded.
	std::string LastError() const;

private:
	struct Job {
		raft::GroupId group = raft::ROOT_GROUP;
		raft::LogIndex index_min = 0;
		raft::NodeId from = raft::NO_NODE;
	};

	void Run();
	//! False when stopping.
	bool TakeJob(Job &job);
	//! A received image that nobody asks for goes.
	void ForgetWhenIdle();
	Status Fetch(const Job &job);
	//! From the node that has the image of which a part is here, else from the one that the job names.
	Status FetchFromEither(const Job &job);
	Status FetchFrom(const std::string &peer, const Job &job, std::optional<SnapshotPart> part, bool resume_only);
	//! Asks again while the peer makes the image, and up to `attempts` times when it is out of reach.
	Status Open(const std::string &peer, SnapshotDownload &download, unsigned attempts);
	Status FetchInto(const std::string &peer, SnapshotDownload &download);
	Result<std::string> CallAndWait(const std::string &peer, const char *method, std::string body);
	//! What the status shows.
	void Show(const std::string &peer, const char *state);
	void ShowBytes(const SnapshotDownload &download, uint64_t moved);
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

	IncomingFile incoming;   //! fetching thread only, as the two below
	std::string handed_over; //! file that is being installed; empty = none since the start
	MonotonicNs last_job = 0;

	mutable std::mutex lock; //! guards jobs, last_error, shown, rate and the flag
	std::condition_variable changed;
	std::map<raft::GroupId, Job> jobs;
	std::string last_error;
	std::optional<SnapshotTransfer> shown;
	TransferRate rate;
	uint64_t moved_total = 0;
	std::atomic<bool> is_stopping {false};
	std::thread thread;
};

} // namespace node
} // namespace quack
