//! What serializable transactions read (DESIGN.md, Isolation): the setting, and the notes that planning leaves. The
//! same step of planning looks at CREATE TABLE.
#pragma once

#include "duckdb.hpp"

namespace quack {
namespace catalog {

//! SET quack_isolation = 'snapshot' (default) or 'serializable'; counts from the session's next transaction on.
constexpr const char *SETTING_ISOLATION = "quack_isolation";

//! Registers the setting, and the hook that notes the tables of each plan and checks what it creates.
void RegisterReadSets(duckdb::DBConfig &config);

bool IsSerializable(duckdb::ClientContext &context);

//! The session switched off the planning step that carries the hook.
bool ReadsAreHidden(duckdb::ClientContext &context);

} // namespace catalog
} // namespace quack
