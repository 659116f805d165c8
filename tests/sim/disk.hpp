//! One node's simulated disk: a log stream with separate `written` and `synced` state, and a checkpoint file.
//!
//! What may fail (and what may not): a crash loses any suffix of the unsynced writes, also in the middle of one write
//! (a torn tail, which checksums let recovery cut); it never loses or alters synced bytes, because Raft cannot survive
//! that without a new identity. A sync may take arbitrarily long, but never lies.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/raft/log_reader.hpp"
#include "sim/register_machine.hpp"

namespace quack {
namespace sim {

//! One write to the log stream; members take effect in this order.
struct LogWrite {
	std::optional<raft::HardState> hard_state;
	std::vector<raft::Entry> entries;
	//! Drop everything and start again here.
	std::optional<raft::SnapshotMeta> reset;
	//! Forget entries up to here.
	std::optional<raft::SnapshotMeta> truncate_prefix;
};

//! A group's log as of some moment.
class LogImage {
public:
	raft::HardState hard_state;
	raft::SnapshotMeta base;
	//! entries[i] has index base.index + 1 + i.
	std::vector<raft::Entry> entries;

	raft::LogIndex LastIndex() const {
		return base.index + entries.size();
	}
	//! True when the entry at `index` is here with `term`, or covered by the base (committed, so equal everywhere).
	bool Holds(raft::LogIndex index, raft::Term term) const;
	std::optional<raft::Term> TermAt(raft::LogIndex index) const;
	//! Applies the first `entry_limit` entries of a write; a torn write ends there.
	void Apply(const LogWrite &write, size_t entry_limit);
	void Apply(const LogWrite &write) {
		Apply(write, write.entries.size());
	}
};

enum class CrashKind : uint8_t {
	Process,   //! the machine lives on: every write survives
	PowerLoss, //! unsynced writes are lost from a random point on
};

class SimDisk final : public raft::LogReader {
public:
	explicit SimDisk(const raft::SnapshotMeta &start);

	raft::LogIndex FirstIndex() const override {
		return written.base.index + 1;
	}
	raft::LogIndex LastIndex() const override {
		return written.LastIndex();
	}
	Result<raft::Term> TermAt(raft::LogIndex index) const override;
	Result<std::vector<raft::Entry>> Entries(raft::LogIndex begin, raft::LogIndex end, size_t bytes_max) const override;

	//! Visible to the reader at once. Returns the write's sequence number, from 1.
	uint64_t Write(LogWrite write);
	uint64_t WrittenSeq() const {
		return written_seq;
	}
	uint64_t SyncedSeq() const {
		return synced_seq;
	}
	//! Everything up to `seq` is durable now.
	void CompleteSync(uint64_t seq);

	//! Returns how many unsynced writes were lost, whole or in part.
	size_t Crash(CrashKind kind, Prng &prng);
	//! After a crash: mends a log that is behind the checkpoint, and returns what the core starts from.
	void Recover();

	const LogImage &Written() const {
		return written;
	}
	const LogImage &Synced() const {
		return synced;
	}
	//! The durable checkpoint of the state machine; null = none yet.
	MachineImage checkpoint;

private:
	LogImage written;
	LogImage synced;
	//! Writes after synced_seq, oldest first.
	std::deque<LogWrite> unsynced;
	uint64_t written_seq = 0;
	uint64_t synced_seq = 0;
};

} // namespace sim
} // namespace quack
