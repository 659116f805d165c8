//! Tells a disk that answers from one that hangs.
#pragma once

#include <string>

#include "quack/node/engine_config.hpp"
#include "quack/node/log_writer.hpp"
#include "quack/node/state_machine.hpp"

namespace quack {
namespace node {

//! Looks at what the log writer and the state machine wait for. A disk hangs when a call has not returned for four
//! election timeouts: whoever can do without this node should, long before the call ends or fails. A full disk answers,
//! so it does not hang. Any thread.
class DiskWatch {
public:
	DiskWatch(const RaftEngineConfig &config_p, const LogWriter &writer_p, const StateMachine &state_machine_p)
	    : config(config_p), writer(writer_p), state_machine(state_machine_p) {
	}

	bool IsHung(MonotonicNs now) const {
		return Exceeds(writer.BusySince(), now, HangTime()) || Exceeds(state_machine.SyncingSince(), now, HangTime());
	}
	//! Which disk of which node, for how long; empty while all answer.
	std::string Describe(MonotonicNs now) const;
	//! A checkpoint that begins now would probably hang with the log, and apply would stand still with it.
	bool LogIsSlow(MonotonicNs now) const {
		return Exceeds(writer.BusySince(), now, config.election_timeout / 2);
	}

private:
	MonotonicNs HangTime() const {
		return 4 * config.election_timeout;
	}
	static bool Exceeds(MonotonicNs since, MonotonicNs now, MonotonicNs limit) {
		return since != 0 && now - since > limit;
	}

	const RaftEngineConfig &config;
	const LogWriter &writer;
	const StateMachine &state_machine;
};

} // namespace node
} // namespace quack
