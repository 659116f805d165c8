//! What a part of a transaction over several groups locks (cpp/GROUPS.md, rule 4), found where the entry is applied: on
//! every node alike, for the definitions of the tables are those it was planned on.
#pragma once

#include "quack/catalog/apply_session.hpp"
#include "quack/node/transaction_entry.hpp"

namespace quack {
namespace catalog {

//! Row locks of one part at most; beyond it the whole table is locked.
constexpr size_t ROW_LOCKS_MAX = 65536;

//! Adds which tables the effects write and read, by their names alone: while a table's definition is being changed,
//! nodes know it before or after the change, and only this must be looked at.
void AddTableLocksOf(const std::vector<Effect> &effects, node::LockSet &locks);

//! Adds the locks on rows. Only behind the check of the planned version. Throws Rejected when a table does not exist.
void AddRowLocksOf(ApplySession &session, const std::vector<Effect> &effects, node::LockSet &locks);

//! Every part holds this key of its group. A serializable transaction whose reads are not known reads it: its
//! ObjectName is empty.
constexpr const char *GROUP_LOCK = "";

} // namespace catalog
} // namespace quack
