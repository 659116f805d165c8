//! Log entries of transactions that span several groups, as bytes (cpp/GROUPS.md). A transaction inside one group is a
//! data entry of the state machine's own format; these three kinds carry parts of that format as their body.
//!
//!   u16 version | u8 kind | 16 bytes transaction id | varint planned version | varint coordinator | positions of
//!   prepares | decided position | locks | varint body size | body
//!
//! Little-endian throughout (common/bytes.hpp). The version shares its place and its numbers with that of the state
//! machine's data entries, so that one look at the first two bytes tells them apart.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"
#include "quack/node/position.hpp"

namespace quack {
namespace node {

constexpr uint16_t TRANSACTION_ENTRY_VERSION = 5;

//! Names one attempt of a transaction, in all its groups: the request id of the commit.
using TransactionId = std::array<uint8_t, 16>;

//! What a part holds of one table between prepare and release. Rows also says that the part writes the table, be it
//! rows that need no lock.
enum class LockKind : uint8_t { Rows = 0, SharedTable = 1, WholeTable = 2 };

struct TableLock {
	//! The state machine's key of the table.
	std::string table;
	LockKind kind = LockKind::Rows;
	//! Hashes of the locked row identities, sorted, unique; empty for table locks. Two rows with one hash clash
	//! although they need not: on every node alike.
	std::vector<uint64_t> rows;
};

//! At most one per table, sorted by table.
using LockSet = std::vector<TableLock>;

//! Puts the locks of one table into the set; the stronger kind of two wins.
void AddLock(LockSet &locks, TableLock lock);

enum class TransactionEntryKind : uint8_t { Prepare = 1, Decision = 2, Release = 3 };

struct TransactionEntry {
	TransactionEntryKind kind = TransactionEntryKind::Prepare;
	TransactionId id {};
	//! Prepare, decision: root index of the definitions that the transaction was planned on.
	raft::LogIndex planned_version = 0;
	//! Prepare: the group whose log decides.
	raft::GroupId coordinator = raft::ROOT_GROUP;
	//! Decision: where the prepares stand that it depends on.
	std::vector<Position> prepares;
	//! Release: the entry that decided.
	Position decided;
	//! Prepare.
	LockSet locks;
	//! Prepare, decision: the part, as the state machine encodes it. Empty in a decision when its group has no part. A
	//! view into the payload once decoded.
	ByteView body;
};

std::string EncodeTransactionEntry(const TransactionEntry &entry);

//! True when the payload begins like an entry of this format, whatever follows.
bool IsTransactionEntry(ByteView payload);

//! Corruption, or Incompatible for a kind of a later version.
Result<TransactionEntry> DecodeTransactionEntry(ByteView payload);

//! Positions that must be applied before the entry (cpp/GROUPS.md, rule 2). `group` is its own.
std::vector<Position> NeedsOf(const TransactionEntry &entry, raft::GroupId group);

void PutLocks(ByteWriter &out, const LockSet &locks);
//! Sorted, unique or Failed().
LockSet GetLocks(ByteReader &in);

} // namespace node
} // namespace quack
