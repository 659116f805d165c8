//! What a part of a transaction over several groups locks (cpp/GROUPS.md, rule 4), found where the entry is applied: on
//! every node alike, for the definitions of the tables are those it was planned on.
#pragma once

#include "quack/catalog/apply_session.hpp"
#include "quack/node/transaction_entry.hpp"

namespace quack {
namespace catalog {

//! Row locks of one part at most; beyond it the whole table is locked.
constexpr size_t ROW_LOCKS_MAX = 65536;

//! Adds the locks of these effects. Throws Rejected when a table does not exist.
void AddLocksOf(ApplySession &session, const std::vector<Effect> &effects, node::LockSet &locks);

//! Every part holds this key of its group; retiring the group takes it as a whole.
constexpr const char *GROUP_LOCK = "";

} // namespace catalog
} // namespace quack
