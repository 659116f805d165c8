//! The origin's side of a large transaction: its stream goes into the log.
#pragma once

#include "quack/catalog/effects.hpp"
#include "quack/catalog/replica_core.hpp"
#include "quack/catalog/spool_file.hpp"

namespace quack {
namespace catalog {

//! Of one fragment; small enough that the entries of others are not kept waiting behind it.
constexpr size_t FRAGMENT_BYTES_MAX = 1024 * 1024;

struct FragmentPlan {
	raft::GroupId group = raft::ROOT_GROUP;
	EntryHeader header; //! of the entry that will end the stream
	FragmentsEnd end;
	size_t fragment_bytes = FRAGMENT_BYTES_MAX;
	//! Absolute; 0 = each fragment has `patience`.
	MonotonicNs deadline = 0;
	MonotonicNs patience = 0;
};

//! A new stream id, and what the spool holds cut into fragments.
void PlanFragments(ReplicaCore &core, const SpoolFile &spool, FragmentPlan &plan);

//! Proposes one fragment after the other, each when the one before is committed, until all are. Not Ok: nothing of the
//! transaction is or will be committed, and the stream was given up. When the request's outcome is known already, or
//! becomes known, `known` has it and the stream is of no use.
Status SendFragments(ReplicaCore &core, const FragmentPlan &plan, const SpoolFile &spool,
                     const std::function<bool()> &interrupted, std::optional<CommitOutcome> &known);

//! The entry that makes all nodes forget the stream.
SharedBytes StreamDropEntry(ReplicaCore &core, const StreamId &stream, RequestId &id);

} // namespace catalog
} // namespace quack
