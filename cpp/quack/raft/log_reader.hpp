//! What the core may ask of the durable log. Implemented by `storage` and by the simulator.
#pragma once

#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace raft {

//! Read side of one group's log. Holds entries [FirstIndex(), LastIndex()]; empty when LastIndex() + 1 == FirstIndex().
//! Entry FirstIndex() - 1 is the snapshot position: its term is known, its payload is not.
//! Called only from the thread that steps the core. Sees entries at once after they were handed to Append, durable or
//! not.
class LogReader {
public:
	virtual ~LogReader() = default;
	virtual LogIndex FirstIndex() const = 0;
	virtual LogIndex LastIndex() const = 0;
	//! Term of an index in [FirstIndex() - 1, LastIndex()]; NotFound below (compacted) and above.
	virtual Result<Term> TermAt(LogIndex index) const = 0;
	//! Entries of the half-open range [begin, end), cut after the entry that reaches bytes_max (at least one entry).
	//! NotFound when begin < FirstIndex(); Corruption or IoError when the disk fails.
	virtual Result<std::vector<Entry>> Entries(LogIndex begin, LogIndex end, size_t bytes_max) const = 0;
};

} // namespace raft
} // namespace quack
