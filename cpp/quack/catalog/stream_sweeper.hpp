//! Clears away large transactions whose origin died, or gave up unheard, before it ended them.
#pragma once

#include <map>

#include "quack/catalog/periodic_thread.hpp"
#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

//! Its clock decides when the leader asks; what clears a stream away, on every node at the same place of the log, is
//! the entry (StreamDrop). An origin that was only slow gets a conflict.
class StreamSweeper {
public:
	explicit StreamSweeper(ReplicaCore &core);

	//! The engine is set.
	void Start() {
		thread.Start();
	}
	void Stop() {
		thread.Stop();
	}

private:
	//! Since when nothing was added to a stream, as this node saw it.
	struct Watch {
		raft::LogIndex last_index = 0;
		MonotonicNs since = 0;
	};

	void Look();
	std::vector<OpenStream> Idle();
	void Drop(const OpenStream &open);

	ReplicaCore &core;
	SystemClock clock;
	std::map<StreamId, Watch> watched; //! own thread only
	PeriodicThread thread;
};

} // namespace catalog
} // namespace quack
