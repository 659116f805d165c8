#include "sim/disk.hpp"

#include <algorithm>

#include "quack/common/check.hpp"
#include "quack/node/group_start.hpp"
#include "quack/storage/log_scan.hpp"
#include "quack/storage/segmented_log.hpp"

namespace quack {
namespace sim {

namespace {

constexpr const char *LOG_DIRECTORY = "/log";
//! The smallest there may be, so that short runs open and release many.
constexpr uint64_t SEGMENT_BYTES = 16 << 10;
//! Changing calls of one recovery at most, or nearly so.
constexpr uint64_t RECOVERY_CALLS_MAX = 8;
constexpr size_t RECENT_RECORDS = 6;

} // namespace

SimDisk::SimDisk(const DiskOptions &options_p, const raft::SnapshotMeta &start, ViolationSink &sink_p)
    : options(options_p), sink(sink_p), files(std::make_unique<storage::FaultFileSystem>(options_p.seed)) {
	written.base = start;
	synced.base = start;
	Open();
	Check(log->CreateGroup(raft::ROOT_GROUP, start), "create the group");
	Check(log->Sync(), "sync");
}

void SimDisk::Report(const std::string &message) const {
	sink.Report("log", message);
}

void SimDisk::Check(const Status &status, const char *what) {
	if (!status.IsOk() && !HasLostPower()) {
		Report(std::string("the log does not ") + what + ": " + status.ToString());
	}
}

void SimDisk::Open() {
	storage::LogOptions log_options;
	log_options.directory = LOG_DIRECTORY;
	log_options.segment_bytes = SEGMENT_BYTES;
	log_options.cache_bytes = options.cache_bytes;
	log_options.spare_segments_max = options.spare_segments_max;
	log_options.prepare_in_background = false;
	log_options.sabotage.skip_checksum = options.sabotage.skip_checksum;
	auto opened = storage::OpenSegmentedLog(*files, log_options);
	if (opened.IsOk()) {
		log = std::move(opened.Value());
	} else if (rot && IsThere(*rot) && opened.GetStatus().Code() == ErrorCode::Corruption) {
		is_damaged = true;
		counters.rot_found_by_open++;
	} else if (!files->IsStopped()) {
		Report("the log does not open: " + opened.GetStatus().ToString());
	}
}

// ---- reading -------------------------------------------------------------------------------------------------------

raft::LogIndex SimDisk::FirstIndex() const {
	auto first = log->Reader(raft::ROOT_GROUP).FirstIndex();
	if (HasOracle() && first != written.base.index + 1) {
		Report("the log starts at index " + std::to_string(first) + " instead of " +
		       std::to_string(written.base.index + 1));
	}
	return first;
}

raft::LogIndex SimDisk::LastIndex() const {
	auto last = log->Reader(raft::ROOT_GROUP).LastIndex();
	if (HasOracle() && last != written.LastIndex()) {
		Report("the log ends at index " + std::to_string(last) + " instead of " + std::to_string(written.LastIndex()));
	}
	return last;
}

Result<raft::Term> SimDisk::TermAt(raft::LogIndex index) const {
	auto term = log->Reader(raft::ROOT_GROUP).TermAt(index);
	auto expected = written.TermAt(index);
	if (HasOracle() && (term.IsOk() != expected.has_value() || (term.IsOk() && term.Value() != *expected))) {
		Report("the log answers " + (term.IsOk() ? std::to_string(term.Value()) : term.GetStatus().ToString()) +
		       " for the term of index " + std::to_string(index));
	}
	return term;
}

Result<std::vector<raft::Entry>> SimDisk::Entries(raft::LogIndex begin, raft::LogIndex end, size_t bytes_max) const {
	auto read = log->Reader(raft::ROOT_GROUP).Entries(begin, end, bytes_max);
	if (!read.IsOk() && rot && read.GetStatus().Code() == ErrorCode::Corruption) {
		reader_found_rot = true;
		counters.rot_found_by_reader++;
	}
	if (!read.IsOk() || !HasOracle()) {
		return read;
	}
	auto next = begin;
	for (auto &entry : read.Value()) {
		if (next <= written.base.index || next > written.LastIndex() ||
		    !SameEntry(entry, written.entries[next - written.base.index - 1])) {
			Report("the log reads another entry at index " + std::to_string(next) + " than was written");
			break;
		}
		next++;
	}
	return read;
}

// ---- writing -------------------------------------------------------------------------------------------------------

uint64_t SimDisk::Write(LogWrite write) {
	if (write.hard_state || !write.entries.empty()) {
		storage::GroupAppend append;
		append.hard_state = write.hard_state;
		append.entries = write.entries;
		Check(log->Append({append}), "take an append");
	}
	if (write.reset) {
		Check(log->Reset(raft::ROOT_GROUP, *write.reset), "start again at a snapshot");
	}
	if (write.truncate_prefix) {
		Check(log->TruncatePrefix(raft::ROOT_GROUP, *write.truncate_prefix), "forget a prefix");
	}
	written.Apply(write);
	unsynced.push_back(std::move(write));
	return ++written_seq;
}

bool SimDisk::Sync() {
	auto status = options.sabotage.skip_log_sync ? Status::Ok() : log->Sync();
	Check(status, "sync");
	if (!status.IsOk()) {
		return false;
	}
	if (durable_seq < written_seq) {
		proven_last = durable_last;
		proven_last_term = durable_last_term;
		durable_last = written.LastIndex();
		durable_last_term = *written.TermAt(durable_last);
	}
	durable_seq = written_seq;
	// The log may have synced and lost the power right after.
	return !HasLostPower();
}

void SimDisk::CompleteSync(uint64_t seq) {
	QUACK_CHECK(seq <= durable_seq, "only what is durable is announced");
	while (synced_seq < seq) {
		synced.Apply(unsynced.front());
		unsynced.pop_front();
		synced_seq++;
	}
}

// ---- crash and recovery --------------------------------------------------------------------------------------------

LogImage SimDisk::ReadImage() {
	LogImage image;
	auto groups = log->Recovered();
	if (groups.size() != 1 || groups.front().group != raft::ROOT_GROUP) {
		Report("recovery found " + std::to_string(groups.size()) + " groups instead of one");
		return image;
	}
	auto &group = groups.front();
	image.hard_state = group.hard_state;
	image.base = group.snapshot;
	auto entries = log->Reader(raft::ROOT_GROUP).Entries(group.first_index, group.last_index + 1, SIZE_MAX);
	Check(entries.GetStatus(), "read what it recovered");
	if (entries.IsOk()) {
		image.entries = std::move(entries.Value());
	}
	return image;
}

LogImage SimDisk::DurableImage() const {
	LogImage state = synced;
	for (size_t i = 0; i < durable_seq - synced_seq; i++) {
		state.Apply(unsynced[i]);
	}
	return state;
}

std::optional<size_t> SimDisk::Explain(const LogImage &found) const {
	LogImage state = DurableImage();
	auto durable_count = static_cast<size_t>(durable_seq - synced_seq);
	if (state.SameAs(found)) {
		return durable_count;
	}
	for (size_t i = durable_count; i < unsynced.size(); i++) {
		for (size_t limit = 0; limit <= unsynced[i].entries.size(); limit++) {
			state.Apply(unsynced[i], limit);
			if (state.SameAs(found)) {
				return limit == unsynced[i].entries.size() ? i + 1 : i;
			}
		}
	}
	return std::nullopt;
}

void SimDisk::Reopen(Prng &prng) {
	log.reset();
	while (!log) {
		bool interrupted = !rot && prng.Chance(options.recovery_crash_percent, 100);
		if (interrupted) {
			files->StopAfter(1 + prng.Below(RECOVERY_CALLS_MAX));
		}
		Open();
		files->StopAfter(0);
		if (files->IsStopped()) {
			counters.recoveries_interrupted++;
			log.reset();
			files->PowerCut();
		} else if (!log) {
			return; // damaged, or reported
		}
	}
}

std::optional<SimDisk::Spot> SimDisk::Flip(const Target &target, Prng &prng) {
	struct Candidate {
		Spot spot;
		uint64_t bytes;
	};
	std::vector<Candidate> candidates;
	auto visit = [&](const storage::ScannedRecord &record) {
		if (target(record)) {
			candidates.push_back({{record.file, record.offset, 0, record.fields.index, record.fields.term},
			                      storage::RECORD_HEADER_BYTES + record.body.size()});
		}
		return true;
	};
	auto scanned = storage::ScanLog(*files, LOG_DIRECTORY, visit);
	if (!scanned.IsOk() || candidates.empty()) {
		return std::nullopt;
	}
	// Old records are hardly ever read again before the next start.
	size_t recent = std::min<size_t>(candidates.size(), prng.Chance(1, 2) ? RECENT_RECORDS : SIZE_MAX);
	auto &chosen = candidates[candidates.size() - 1 - prng.Below(recent)];
	auto spot = chosen.spot;
	spot.offset += prng.Below(chosen.bytes);
	Check(files->FlipBit(spot.path, spot.offset, static_cast<unsigned>(prng.Below(8))), "have the file it scanned");
	spot.byte = files->Contents(spot.path)[spot.offset];
	return spot;
}

bool SimDisk::IsProven(raft::LogIndex index, raft::Term term) const {
	return index > written.base.index && index <= proven_last && written.TermAt(proven_last) == proven_last_term &&
	       written.TermAt(index) == term;
}

bool SimDisk::IsThere(const Spot &spot) const {
	auto bytes = files->Contents(spot.path);
	return spot.offset < bytes.size() && bytes[spot.offset] == spot.byte;
}

bool SimDisk::IsInDeadSegment(const Spot &spot) const {
	if (spot.index > written.base.index) {
		return false;
	}
	bool is_live = false;
	bool has_others = false;
	auto visit = [&](const storage::ScannedRecord &record) {
		auto is_entry = record.fields.type == storage::RecordType::Entry;
		auto is_here = record.file == spot.path;
		is_live = is_live || (is_here && is_entry && record.fields.index > written.base.index);
		has_others = has_others || !is_here;
		return true;
	};
	// A flip that ends the scan lies in front of what is live.
	return storage::ScanLog(*files, LOG_DIRECTORY, visit).IsOk() && has_others && !is_live;
}

bool SimDisk::Rot(Prng &prng) {
	QUACK_CHECK(!rot, "one bit at a time");
	auto is_proven = [this](const storage::ScannedRecord &record) {
		return record.fields.type == storage::RecordType::Entry && IsProven(record.fields.index, record.fields.term);
	};
	rot = Flip(is_proven, prng);
	return rot.has_value();
}

bool SimDisk::IsUnsynced(const storage::ScannedRecord &record) const {
	if (record.acknowledged || record.fields.type != storage::RecordType::Entry) {
		return false;
	}
	auto is_it = [&](const raft::Entry &entry) {
		return entry.index == record.fields.index && entry.term == record.fields.term;
	};
	return std::any_of(unsynced.begin() + static_cast<ptrdiff_t>(durable_seq - synced_seq), unsynced.end(),
	                   [&](const LogWrite &write) {
		                   return std::any_of(write.entries.begin(), write.entries.end(), is_it);
	                   });
}

size_t SimDisk::Crash(CrashKind kind, BitFlip flip, Prng &prng) {
	if (HasLostPower()) {
		counters.power_cuts_inside_calls++;
	}
	files->StopAfter(0);
	if (kind == CrashKind::PowerLoss || HasLostPower()) {
		kind = CrashKind::PowerLoss;
		files->PowerCut();
	} else {
		files->EndProcess();
	}
	if (rot && !IsThere(*rot)) {
		rot.reset();
	}
	std::optional<Spot> torn;
	if (flip == BitFlip::Acknowledged && !rot) {
		rot = Flip([](const storage::ScannedRecord &record) { return record.acknowledged; }, prng);
	} else if (flip == BitFlip::Unsynced && !rot) {
		torn = Flip([this](const storage::ScannedRecord &record) { return IsUnsynced(record); }, prng);
	}
	auto interrupted_before = counters.recoveries_interrupted;
	auto is_needed = rot && !IsInDeadSegment(*rot);
	Reopen(prng);
	if (!log) {
		return 0;
	}
	if (is_needed && options.has_oracle) {
		Report("the log opens although a bit flipped at offset " + std::to_string(rot->offset) + " of " + rot->path);
	}
	bool lost_power = kind == CrashKind::PowerLoss || counters.recoveries_interrupted > interrupted_before;
	counters.torn_tails += log->GetStatus().torn_bytes > 0 ? 1 : 0;
	LogImage found = ReadImage();
	if (torn) {
		counters.unsynced_flips++;
		if (options.has_oracle && torn->index > found.base.index && found.Holds(torn->index, torn->term)) {
			Report("recovery takes index " + std::to_string(torn->index) + " for good, where a bit flipped");
		}
	}
	auto survivors = Explain(found);
	if (options.has_oracle && (!survivors || (!lost_power && !found.SameAs(written)))) {
		Report("recovery found " + found.Describe() + " after a crash of the " + (lost_power ? "machine" : "process") +
		       "; synced was " + synced.Describe() + ", written was " + written.Describe());
	}
	size_t lost = survivors ? unsynced.size() - *survivors : 0;
	unsynced.clear();
	written = std::move(found);
	synced = written;
	synced_seq = written_seq;
	durable_seq = written_seq;
	durable_last = 0;
	proven_last = 0;
	return lost;
}

void SimDisk::Recover() {
	if (!checkpoint) {
		return;
	}
	storage::RecoveredGroup group {raft::ROOT_GROUP, written.hard_state, written.base, written.base.index + 1,
	                               written.LastIndex()};
	node::AppliedPosition applied {raft::ROOT_GROUP, checkpoint->AppliedIndex(), checkpoint->AppliedTerm(),
	                               checkpoint->MembershipAt(checkpoint->AppliedIndex())};
	if (node::FindGroupWithoutState({group}, {{raft::ROOT_GROUP, applied}}) != nullptr) {
		Report("the log begins after index " + std::to_string(written.base.index) + ", the checkpoint stands at " +
		       std::to_string(applied.index));
	}
	auto first_before = group.first_index;
	Check(node::CatchUpLog(*log, group, applied), "start again at the checkpoint");
	if (group.first_index != first_before) {
		written.base = group.snapshot;
		written.hard_state = group.hard_state;
		written.entries.clear();
		synced = written;
	}
}

DiskCounters SimDisk::Counters() const {
	// Sequences rise by one from 1, and the oldest goes first.
	DiskCounters result = counters;
	auto names = files->List(LOG_DIRECTORY);
	if (!names.IsOk()) {
		return result;
	}
	uint64_t oldest = UINT64_MAX;
	uint64_t newest = 0;
	for (auto &name : names.Value()) {
		if (auto sequence = storage::ParseSegmentFileName(name)) {
			oldest = std::min(oldest, *sequence);
			newest = std::max(newest, *sequence);
		}
	}
	if (newest > 0) {
		result.segments_opened = newest;
		result.segments_released = oldest - 1;
	}
	return result;
}

} // namespace sim
} // namespace quack
