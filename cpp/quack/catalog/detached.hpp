//! How an error text tells why the catalog cannot be used: the node took its own database away, to put a newer image in
//! its place, or DuckDB gave it up.
#pragma once

namespace quack {
namespace catalog {

//! Part of DuckDB's error for statements that use the catalog while it is replaced.
constexpr const char *DETACHED_BY_NODE = "the node detached it";
//! The same behind a checkpoint that failed; the node goes out of service a moment later (AttachedDatabase,
//! DuckDB 2.0.1).
constexpr const char *CHECKPOINT_FAILED = "Database \"cp\" has been invalidated because checkpointing failed";

} // namespace catalog
} // namespace quack
