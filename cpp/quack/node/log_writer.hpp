//! The thread that makes Readies durable.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "quack/node/degraded_latch.hpp"
#include "quack/node/loop_event.hpp"
#include "quack/node/outbox.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace node {

//! One order to the writer; executed in the order given.
struct LogCommand {
	enum class Kind : uint8_t {
		Append = 0,
		TruncatePrefix = 1,
		Reset = 2,
		Create = 3, //! a group, answered by LogWasMade
		Remove = 4, //! a group; nothing of it may be queued behind
	};
	Kind kind = Kind::Append;
	raft::GroupId group = raft::ROOT_GROUP;
	//! Append: what of a Ready must be durable, and what may leave only then. Reset, Create: the hard state to keep.
	std::optional<raft::HardState> hard_state;
	std::vector<raft::Entry> entries;
	std::vector<raft::Message> messages;
	//! TruncatePrefix, Reset and Create.
	raft::SnapshotMeta position;
	size_t bytes = 0;
};

//! Group commit: takes all queued commands of all groups, one LogStore::Append, one Sync, then sends the messages that
//! waited and reports EntriesDurable. DiskFull is retried until space returns, prefix truncations first, and reported
//! by DiskState; any other failure latches the node.
class LogWriter {
public:
	LogWriter(const RaftEngineConfig &config, const MemberDirectory &directory, storage::LogStore &log,
	          transport::Transport &transport, const Clock &clock, LoopMailbox &loop, DegradedLatch &latch);
	~LogWriter();

	void Start();
	//! Finishes what is queued (unless degraded or the disk is full), then joins. Idempotent.
	void Stop();
	//! Joins without writing what is queued, as a crash would.
	void Abort();

	//! Loop thread only. The loop bounds it: it takes in no entries while QueueBytes() is above log_queue_bytes_max.
	void Push(LogCommand command);
	size_t QueueBytes() const {
		return queue_bytes.load(std::memory_order_relaxed);
	}
	//! Since when the write under way has not returned; 0 = none. Waiting for space on a full disk does not count.
	MonotonicNs BusySince() const {
		return busy_since.load(std::memory_order_relaxed);
	}
	void Wake() {
		mailbox.Wake();
	}

private:
	void Run();
	void RunRound(std::vector<LogCommand> &round);
	void RunControl(const LogCommand &command);
	void ReleaseBytes(const std::vector<LogCommand> &round, size_t begin, size_t end);
	void WriteAppends(std::vector<LogCommand> &round, size_t begin, size_t end);
	bool WriteBatch(const std::vector<storage::GroupAppend> &batch);
	bool WaitForSpace(const Status &failure);
	void RunTruncations(std::deque<LogCommand> &commands);
	bool Truncate(const LogCommand &command);
	bool Reset(const LogCommand &command);
	bool Create(const LogCommand &command);
	bool Remove(const LogCommand &command);
	bool UntilSpace(const char *action, const std::function<Status()> &work);
	void SendMessages(std::vector<LogCommand> &round, size_t begin, size_t end);
	bool Fatal(const char *action, const Status &status);
	bool ShouldQuit() const;

	const RaftEngineConfig &config;
	storage::LogStore &log;
	const Clock &clock;
	LoopMailbox &loop;
	DegradedLatch &latch;
	Outbox outbox;
	Mailbox<LogCommand> mailbox;
	std::deque<LogCommand> backlog; //! taken from the mailbox while waiting for space
	std::atomic<size_t> queue_bytes {0};
	std::atomic<MonotonicNs> busy_since {0};
	std::atomic<bool> is_stopping {false};
	std::atomic<bool> is_aborting {false};
	bool disk_is_full = false;
	std::thread thread;
};

} // namespace node
} // namespace quack
