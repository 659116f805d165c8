//! Settings of one session that both sides know: a client's own, and those that a client without them sets on its node.
#pragma once

#include <string>

namespace duckdb {
class ClientContext;
}

namespace quack {
namespace sql {

//! eventual, session or linearizable; empty = what the attachment says.
constexpr const char *SETTING_CONSISTENCY = "quack_consistency";

//! Lower case; empty when the session never set it.
std::string ConsistencySetting(duckdb::ClientContext &context);

//! Whether it is one of the three levels.
bool IsConsistency(const std::string &text);

} // namespace sql
} // namespace quack
