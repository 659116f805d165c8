//! How an error text tells that the node took its own database away, to put a newer image in its place.
#pragma once

namespace quack {
namespace catalog {

//! Part of DuckDB's error for statements that use the catalog while it is replaced.
constexpr const char *DETACHED_BY_NODE = "the node detached it";

} // namespace catalog
} // namespace quack
