//! One node's disk: a real segmented log on a file system in memory that breaks on purpose, and a checkpoint file.
//!
//! The log is storage::SegmentedLog, the faults are FaultFileSystem's: a power loss takes any part of the unsynced
//! sectors and names, never synced bytes. Beside the log an image of plain values is kept as an oracle: what the reader
//! answers must be what was written, and what a recovery finds must lie between what was synced and what was written.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/raft/log_reader.hpp"
#include "quack/storage/log_scan.hpp"
#include "quack/storage/log_store.hpp"
#include "quack/storage/testing/fault_file_system.hpp"
#include "sim/checkers/violation.hpp"
#include "sim/log_image.hpp"
#include "sim/register_machine.hpp"
#include "sim/sabotage.hpp"

namespace quack {
namespace sim {

enum class CrashKind : uint8_t {
	Process,   //! the machine lives on: every write survives
	PowerLoss, //! unsynced sectors are lost at random
};

//! A bit that changes by itself.
enum class BitFlip : uint8_t {
	None,
	Unsynced,     //! in an entry that no Sync covered: recovery cuts it, like a torn one
	Acknowledged, //! in a record that was durable: the log must answer Corruption
};

struct DiskOptions {
	//! All randomness of the file system.
	uint64_t seed = 0;
	//! As storage::LogOptions.
	uint64_t cache_bytes = 0;
	size_t spare_segments_max = 0;
	//! How often the power goes again in the middle of a recovery.
	uint32_t recovery_crash_percent = 0;
	//! Hold the log against the image; off where only the seven properties shall notice.
	bool has_oracle = true;
	Sabotage sabotage;
};

//! What happened to one disk so far.
struct DiskCounters {
	uint64_t segments_opened = 0;
	uint64_t segments_released = 0;
	uint64_t torn_tails = 0;
	uint64_t recoveries_interrupted = 0;
	uint64_t power_cuts_inside_calls = 0;
	uint64_t unsynced_flips = 0;
	uint64_t rot_found_by_open = 0;
	uint64_t rot_found_by_reader = 0;
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
	//! The log's own Sync: whatever is written by now is durable, though nobody was told yet. False = the power is off.
	bool Sync();
	//! The power goes off inside the `calls`-th changing call to the file system from now; 0 = it does not.
	void CutPowerAfter(uint64_t calls) {
		files->StopAfter(calls);
	}
	//! The power went off inside a call: Crash must come next.
	bool HasLostPower() const {
		return files->IsStopped();
	}
	//! Announces that everything up to `seq` is durable; a Sync covered it.
	void CompleteSync(uint64_t seq);

	//! Ends the process or cuts the power, flips a bit if wanted, and opens the log again. Returns how many unsynced
	//! writes were lost, whole or in part.
	size_t Crash(CrashKind kind, BitFlip flip, Prng &prng);
	//! A bit of an acknowledged record flips while the log is open. False when there is none yet.
	bool Rot(Prng &prng);
	//! A bit of the log has flipped, and nobody healed it. Whether anybody noticed is another question.
	bool IsRotten() const {
		return rot.has_value();
	}
	//! The reader met the flipped bit: the node stops.
	bool HasReaderFoundRot() const {
		return reader_found_rot;
	}
	//! The log answered Corruption when it was opened: a node heals by taking a new identity. Nothing may be read or
	//! written; the images are as they were.
	bool IsDamaged() const {
		return is_damaged;
	}
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
	//! Where a bit flipped.
	struct Spot {
		std::string path;
		uint64_t offset = 0;
		//! The byte there, since.
		char byte = 0;
		//! Unsynced only: the entry it lies in.
		raft::LogIndex index = 0;
		raft::Term term = 0;
	};

	//! What a flip may hit.
	using Target = std::function<bool(const storage::ScannedRecord &record)>;
	std::optional<Spot> Flip(const Target &target, Prng &prng);
	//! The last entry of a finished Sync whose marks a later Sync made durable too: damage before it is always told
	//! from a torn end (storage/DESIGN.md, "How the acknowledged end is known").
	bool IsProven(raft::LogIndex index, raft::Term term) const;
	//! An entry that no Sync covered.
	bool IsUnsynced(const storage::ScannedRecord &record) const;
	//! Its segment may have been released.
	bool IsThere(const Spot &spot) const;
	//! Nothing of the segment is live: its removal may be half done, and recovery passes over it.
	bool IsInDeadSegment(const Spot &spot) const;
	LogImage DurableImage() const;
	void Open();
	//! Reopens after a crash.
	void Reopen(Prng &prng);
	LogImage ReadImage();
	//! How many of the writes behind SyncedSeq() survived in `found`; nothing when no crash can explain it.
	std::optional<size_t> Explain(const LogImage &found) const;
	void Check(const Status &status, const char *what);
	//! The log answers as the image says; not after the power went off inside a write.
	bool HasOracle() const {
		return options.has_oracle && !HasLostPower();
	}
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
	//! Where the log ended at the last Sync that had something to do, and at the one before.
	raft::LogIndex durable_last = 0;
	raft::Term durable_last_term = 0;
	raft::LogIndex proven_last = 0;
	raft::Term proven_last_term = 0;
	std::optional<Spot> rot;
	mutable bool reader_found_rot = false;
	bool is_damaged = false;
	mutable DiskCounters counters;
};

} // namespace sim
} // namespace quack
