//! No lost acknowledged write: at the end every node has applied every acknowledged operation exactly once, and no
//! operation of which the client was told that nothing was done.
#pragma once

#include <vector>

#include "quack/raft/types.hpp"
#include "sim/checkers/violation.hpp"

namespace quack {
namespace sim {

class LostWriteChecker {
public:
	explicit LostWriteChecker(ViolationSink &sink_p) : sink(sink_p) {
	}
	void OnAcknowledged(uint32_t op);
	void OnRefused(uint32_t op);
	//! The operations that `node` applied over its whole history, in order.
	void CheckFinal(raft::NodeId node, const std::vector<uint32_t> &applied_ops);

private:
	enum class Promise : uint8_t { None, Acknowledged, Refused };
	void Set(uint32_t op, Promise promise);

	ViolationSink &sink;
	std::vector<Promise> promises;
};

} // namespace sim
} // namespace quack
