//! The catalog file: attach, detach, checkpoint, copy as a snapshot, replace by a snapshot. Apply thread only, except
//! CopySnapshot.
#pragma once

#include "quack/catalog/replica_core.hpp"

namespace quack {
namespace catalog {

//! Attaches core.options.path as `cp`, reads every block in use once to see that none is damaged, creates or checks the
//! replication state and loads it into core. `owner` is what the catalog keeps a reference to. Corruption: the file is
//! damaged (and not attached); Incompatible: it is of another cluster or format.
Status AttachFile(ReplicaCore &core, const std::shared_ptr<ReplicaCore> &owner);

//! Detaches without a checkpoint.
Status DetachFile(ReplicaCore &core);

//! Makes sure that the file has space for rows of `bytes` before compression, which DuckDB may write before they are
//! committed. DiskFull, IoError.
Status ReserveForRows(ReplicaCore &core, uint64_t bytes);

//! Makes everything applied durable. Waits a bounded time for local writers to finish, then aborts them.
Status WriteCheckpoint(ReplicaCore &core);

//! Copies the state of the last finished checkpoint; writers go on meanwhile.
Result<std::unique_ptr<node::StateMachine::SnapshotImage>> CopySnapshot(ReplicaCore &core);

//! Checks the image file, detaches, replaces the catalog file by it, attaches.
Status InstallFile(ReplicaCore &core, const std::shared_ptr<ReplicaCore> &owner, const std::string &image);

} // namespace catalog
} // namespace quack
