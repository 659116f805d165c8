//! One node's disk: a real segmented log on a file system in memory that breaks on purpose, and a checkpoint file.
//!
//! The log is storage::SegmentedLog, the faults are FaultFileSystem's: a power loss takes any part of the unsynced
//! sectors and names, never synced bytes. Beside the log an image of plain values is kept as an oracle: what the reader
//! answers must be what was written, and what a recovery finds must lie between what was synced and what was written.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/raft/log_reader.hpp"
#include "quack/storage/log_store.hpp"
#include "quack/storage/testing/fault_file_system.hpp"
#include "sim/checkers/violation.hpp"
#include "sim/log_image.hpp"
#include "sim/register_machine.hpp"

namespace quack {
namespace sim {

enum class CrashKind : uint8_t {
	Process,   //! the machine lives on: every write survives
	PowerLoss, //! unsynced sectors are lost at random
};

struct DiskOptions {
	//! All randomness of the file system.
	uint64_t seed = 0;
	//! As storage::LogOptions.
	uint64_t cache_bytes = 0;
	size_t spare_segments_max = 0;
	//! How often the power goes again in the middle of a recovery.
	uint32_t recovery_crash_percent = 0;
	//! Hold the log against the image; off where only the six properties shall notice.
	bool has_oracle = true;
};

//! What happened to one disk so far.
struct DiskCounters {
	uint64_t segments_opened = 0;
	uint64_t segments_released = 0;
	uint64_t torn_tails = 0;
	uint64_t recoveries_interrupted = 0;
};

class SimDisk final : public raft::LogReader {
public:
	//! `sink` hears when the log refuses a write or contradicts the image.
	SimDisk(const DiskOptions &options, const raft::SnapshotMeta &start, ViolationSink &sink);

	raft::LogIndex FirstIndex() const override;
	raft::LogIndex LastIndex() const override;
	Result<raft::Term> TermAt(raft::LogIndex index) const override;
	Result<std::vector<raft::Entry>> Entries(raft::LogIndex begin, raft::LogIndex end, size_t bytes_max) const override;

	//! Visible to the reader at once. Returns the write's sequence number, from 1.
	uint64_t Write(LogWrite write);
	uint64_t WrittenSeq() const {
		return written_seq;
	}
	//! The last write whose durability was announced.
	uint64_t SyncedSeq() const {
		return synced_seq;
	}
	//! The log's own Sync: whatever is written by now is durable, though nobody was told yet.
	void Sync();
	//! Announces that everything up to `seq` is durable; a Sync covered it.
	void CompleteSync(uint64_t seq);

	//! Ends the process or cuts the power, and opens the log again. Returns how many unsynced writes were lost, whole
	//! or in part.
	size_t Crash(CrashKind kind, Prng &prng);
	//! Before a core starts: mends a log that is behind the checkpoint.
	void Recover();

	const LogImage &Written() const {
		return written;
	}
	//! As announced; the log itself may be ahead.
	const LogImage &Synced() const {
		return synced;
	}
	DiskCounters Counters() const;
	//! Changing calls that the file system has seen: equal runs give equal counts.
	uint64_t OperationCount() const {
		return files->OperationCount();
	}
	//! The durable checkpoint of the state machine; null = none yet.
	MachineImage checkpoint;

private:
	void Open();
	//! Reopens after a crash.
	void Reopen(Prng &prng);
	LogImage ReadImage();
	//! How many of the writes behind SyncedSeq() survived in `found`; nothing when no crash can explain it.
	std::optional<size_t> Explain(const LogImage &found) const;
	void Check(const Status &status, const char *what);
	void Report(const std::string &message) const;

	const DiskOptions options;
	ViolationSink &sink;
	std::unique_ptr<storage::FaultFileSystem> files;
	std::unique_ptr<storage::LogStore> log;

	LogImage written;
	LogImage synced;
	//! Writes after synced_seq, oldest first.
	std::deque<LogWrite> unsynced;
	uint64_t written_seq = 0;
	uint64_t synced_seq = 0;
	//! Covered by a Sync: synced_seq <= durable_seq <= written_seq.
	uint64_t durable_seq = 0;
	DiskCounters counters;
};

} // namespace sim
} // namespace quack
