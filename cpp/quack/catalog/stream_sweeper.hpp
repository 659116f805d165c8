//! Clears away large transactions whose origin died, or gave up unheard, before it ended them.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

//! Its clock decides when the leader asks; what clears a stream away, on every node at the same place of the log, is
//! the entry (StreamDrop). An origin that was only slow gets a conflict.
class StreamSweeper {
public:
	explicit StreamSweeper(ReplicaCore &core_p) : core(core_p) {
	}
	~StreamSweeper();

	//! The engine is set.
	void Start();
	//! Idempotent.
	void Stop();

private:
	//! Since when nothing was added to a stream, as this node saw it.
	struct Watch {
		raft::LogIndex last_index = 0;
		MonotonicNs since = 0;
	};

	void Run();
	std::vector<OpenStream> Idle();
	void Drop(const OpenStream &open);

	ReplicaCore &core;
	SystemClock clock;
	std::map<StreamId, Watch> watched; //! own thread only
	mutable std::mutex lock;
	std::condition_variable changed;
	bool is_stopping = false;
	std::thread thread;
};

} // namespace catalog
} // namespace quack
