#include "quack/storage/segmented_log.hpp"

#include <algorithm>

#include "quack/common/log.hpp"
#include "quack/storage/log_scan.hpp"

namespace quack {
namespace storage {

namespace {

constexpr uint64_t SEGMENT_BYTES_MIN = 16 << 10;
constexpr uint64_t RESERVE_BYTES_MAX = 64 << 10;
constexpr uint64_t RESERVE_SHARE = 8;

} // namespace

Result<std::unique_ptr<LogStore>> OpenSegmentedLog(FileSystem &files, const LogOptions &options) {
	if (options.segment_bytes < SEGMENT_BYTES_MIN || options.segment_bytes > SEGMENT_BYTES_MAX) {
		return Status(ErrorCode::InvalidArgument, "segment_bytes is " + std::to_string(options.segment_bytes) +
		                                              ", expected " + std::to_string(SEGMENT_BYTES_MIN) + " to " +
		                                              std::to_string(SEGMENT_BYTES_MAX));
	}
	auto status = files.CreateDirectory(options.directory);
	if (!status.IsOk()) {
		return status;
	}
	auto lock = files.Lock(JoinPath(options.directory, LOCK_FILE_NAME));
	if (!lock.IsOk()) {
		return lock.GetStatus();
	}
	auto log = std::make_unique<SegmentedLog>(files, options, std::move(lock.Value()));
	status = log->Open();
	if (!status.IsOk()) {
		return status;
	}
	return std::unique_ptr<LogStore>(std::move(log));
}

SegmentedLog::SegmentedLog(FileSystem &files_p, const LogOptions &options_p, std::unique_ptr<FileLock> lock_p)
    : files(files_p), options(options_p), lock(std::move(lock_p)),
      pool(files_p, options_p.directory, options_p.segment_bytes, options_p.spare_segments_max,
	       options_p.prepare_in_background),
      cache(options_p.cache_bytes) {
}

SegmentedLog::~SegmentedLog() = default;

Status SegmentedLog::Open() {
	auto names = files.List(options.directory);
	if (!names.IsOk()) {
		return names.GetStatus();
	}
	auto found = RecoverLog(files, options.directory, names.Value(), options.sabotage);
	if (!found.IsOk()) {
		return found.GetStatus();
	}
	auto &log = found.Value();
	auto result = pool.Adopt(names.Value());
	if (result.IsOk()) {
		result = files.SyncDirectory(options.directory);
	}
	if (!result.IsOk()) {
		return result;
	}
	table = std::move(log.table);
	status.torn_bytes = log.torn_bytes;
	if (log.segments.empty()) {
		store_id = files.UniqueId();
		return OpenSegment(0);
	}
	store_id = log.store_id;
	tail = log.tail;
	tail_end = tail.offset;
	segments.assign(log.segments.begin(), log.segments.end());
	current = segments.back();
	last_sequence = current.header.sequence;
	result = LowerCommitHints();
	if (result.IsOk()) {
		result = ReleaseSegments();
	}
	for (auto &item : table.Groups()) {
		auto &group = item.second;
		recovered.push_back(
		    {item.first, group.hard_state, group.Snapshot(), group.Snapshot().index + 1, group.LastIndex()});
	}
	return result;
}

//! A hard state is written before the entries of its batch. When only it survived, its commit index would later point
//! at whatever comes to that place; so it is lowered for good before anything else is written.
Status SegmentedLog::LowerCommitHints() {
	std::vector<PendingRecord> records;
	std::deque<std::string> votes; // stable addresses
	for (auto &item : table.Groups()) {
		auto &group = item.second;
		auto hard = ClampCommit(group.hard_state, group.Snapshot().index, group.LastIndex());
		if (hard != group.hard_state) {
			votes.push_back(EncodeVote(hard.voted_for));
			records.push_back(
			    {{RecordType::HardState, 0, item.first, hard.term, hard.commit_index}, votes.back(), nullptr});
		}
	}
	return WriteRecords(records, true);
}

std::vector<RecoveredGroup> SegmentedLog::Recovered() const {
	return recovered;
}

BoundsSource SegmentedLog::Bounds() const {
	BoundsSource source;
	source.bounds = [this](raft::GroupId id) -> std::optional<GroupBounds> {
		auto group = table.Find(id);
		if (!group) {
			return std::nullopt;
		}
		return GroupBounds {group->hard_state, group->Snapshot().index, group->LastIndex()};
	};
	source.term_at = [this](raft::GroupId id, raft::LogIndex index) {
		return table.Find(id)->TermAt(index);
	};
	return source;
}

Status SegmentedLog::Append(const std::vector<GroupAppend> &batch) {
	auto result = CheckAppend(batch, Bounds());
	if (!result.IsOk()) {
		return result;
	}
	std::vector<PendingRecord> records;
	std::deque<std::string> votes; // stable addresses
	bool has_entries = false;
	for (auto &item : batch) {
		if (item.hard_state) {
			votes.push_back(EncodeVote(item.hard_state->voted_for));
			records.push_back(
			    {{RecordType::HardState, 0, item.group, item.hard_state->term, item.hard_state->commit_index},
				 votes.back(),
				 nullptr});
		}
		for (auto &entry : item.entries) {
			records.push_back(
			    {{RecordType::Entry, static_cast<uint8_t>(entry.type), item.group, entry.term, entry.index},
				 *entry.payload,
				 &entry});
			has_entries = true;
		}
	}
	return WriteRecords(records, !has_entries);
}

Status SegmentedLog::CreateGroup(raft::GroupId group, const raft::SnapshotMeta &start) {
	if (table.Find(group)) {
		return Status(ErrorCode::AlreadyExists, "the log has group " + std::to_string(group) + " already");
	}
	return WriteControl(RecordType::CreateGroup, group, start);
}

Status SegmentedLog::TruncatePrefix(raft::GroupId group, const raft::SnapshotMeta &snapshot) {
	auto result = CheckTruncatePrefix(group, snapshot, Bounds());
	if (!result.IsOk()) {
		return result;
	}
	if (snapshot.index == table.Find(group)->Snapshot().index) {
		return Status::Ok();
	}
	return WriteControl(RecordType::TruncatePrefix, group, snapshot);
}

Status SegmentedLog::Reset(raft::GroupId group, const raft::SnapshotMeta &snapshot) {
	if (!table.Find(group)) {
		return Status(ErrorCode::NotFound, "the log has no group " + std::to_string(group));
	}
	return WriteControl(RecordType::Reset, group, snapshot);
}

Status SegmentedLog::RemoveGroup(raft::GroupId group) {
	if (!table.Find(group)) {
		return Status(ErrorCode::NotFound, "the log has no group " + std::to_string(group));
	}
	return WriteControl(RecordType::RemoveGroup, group, raft::SnapshotMeta());
}

Status SegmentedLog::WriteControl(RecordType type, raft::GroupId group, const raft::SnapshotMeta &position) {
	auto membership = EncodeMembership(position.membership);
	ByteView body = type == RecordType::RemoveGroup ? ByteView() : ByteView(membership);
	return WriteRecords({{{type, 0, group, position.term, position.index}, body, nullptr}}, true);
}

// ---- writing -------------------------------------------------------------------------------------------------------

Status SegmentedLog::WriteRecords(const std::vector<PendingRecord> &records, bool may_use_reserve) {
	auto result = Health();
	if (!result.IsOk() && result.Code() != ErrorCode::DiskFull) {
		return result;
	}
	if (records.empty()) {
		return Status::Ok();
	}
	uint64_t bytes = RECORD_HEADER_BYTES; // the End record
	for (auto &record : records) {
		bytes += RecordBytes(record.body.size());
	}
	if (bytes > BATCH_BYTES_MAX) {
		return Status(ErrorCode::InvalidArgument, "a batch of " + std::to_string(bytes) +
		                                              " bytes exceeds the limit of " + std::to_string(BATCH_BYTES_MAX) +
		                                              "; append it in parts");
	}
	if (is_tail_dirty) {
		result = Note(WriteEnd());
		if (!result.IsOk()) {
			return result;
		}
		is_tail_dirty = false;
	}
	result = Note(MakeRoom(bytes, may_use_reserve));
	if (result.IsOk()) {
		result = Note(WriteBatch(records));
	}
	return result;
}

uint64_t SegmentedLog::Reserve() const {
	return std::min(RESERVE_BYTES_MAX, options.segment_bytes / RESERVE_SHARE);
}

Status SegmentedLog::MakeRoom(uint64_t bytes, bool may_use_reserve) {
	auto needed = tail.offset + bytes + (may_use_reserve ? 0 : Reserve());
	if (needed <= current.capacity) {
		if (tail.offset > current.capacity / 2) {
			pool.Prepare();
		}
		return Status::Ok();
	}
	return OpenSegment(bytes);
}

Status SegmentedLog::WriteBatch(const std::vector<PendingRecord> &records) {
	BatchEncoder encoder(current.header, tail.offset, tail.synced, tail.last_crc);
	std::vector<uint64_t> offsets;
	offsets.reserve(records.size());
	for (auto &record : records) {
		offsets.push_back(encoder.Add(record));
	}
	encoder.AddEnd();
	auto result = current.file->WriteAt(tail.offset, encoder.Pieces());
	if (!result.IsOk()) {
		if (result.Code() == ErrorCode::DiskFull) {
			is_tail_dirty = !WriteEnd().IsOk();
			is_retreat_unsynced = true;
		}
		return result;
	}
	std::lock_guard<std::mutex> guard(mutex);
	for (size_t i = 0; i < records.size(); i++) {
		auto &fields = records[i].fields;
		auto applied = table.Apply(fields, records[i].body, static_cast<uint32_t>(current.header.sequence), offsets[i]);
		QUACK_CHECK(applied.IsOk(), applied.Message().c_str());
		Remember(records[i]);
	}
	status.appended_bytes += encoder.EndOffset() - tail.offset;
	status.cached_bytes = cache.Bytes();
	tail.offset = encoder.EndOffset();
	tail_end = tail.offset;
	tail.last_crc = encoder.LastCrc();
	return Status::Ok();
}

//! Under the lock, together with the table: a reader must never see an old entry at a new position.
void SegmentedLog::Remember(const PendingRecord &record) {
	auto &fields = record.fields;
	if (record.entry) {
		cache.Put(fields.group, *record.entry);
	} else if (fields.type == RecordType::TruncatePrefix) {
		cache.DropPrefix(fields.group, fields.index);
	} else if (fields.type == RecordType::Reset || fields.type == RecordType::RemoveGroup) {
		cache.DropGroup(fields.group);
	}
}

Status SegmentedLog::WriteEnd() {
	BatchEncoder encoder(current.header, tail.offset, tail.synced, tail.last_crc);
	encoder.AddEnd();
	return current.file->WriteAt(tail.offset, encoder.Pieces());
}

Status SegmentedLog::OpenSegment(uint64_t batch_bytes) {
	std::deque<std::string> bodies; // stable addresses
	std::vector<PendingRecord> heads;
	uint64_t head_bytes = SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES;
	for (auto &item : table.Groups()) {
		auto head = table.HeadOf(item.first);
		bodies.push_back(EncodeGroupHead(head));
		heads.push_back(
		    {{RecordType::GroupState, 0, item.first, head.hard_state.term, head.last_index}, bodies.back(), nullptr});
		head_bytes += RecordBytes(bodies.back().size());
	}
	auto taken = pool.Take(head_bytes + batch_bytes + Reserve());
	if (!taken.IsOk()) {
		return taken.GetStatus();
	}
	auto &spare = taken.Value();
	if (current.file && (tail.synced < tail.offset || is_retreat_unsynced)) {
		auto result = SyncCurrent();
		if (!result.IsOk()) {
			return result;
		}
	}
	Segment next;
	LogTail next_tail;
	auto result = WriteHead(spare, heads, next.header, next_tail);
	if (!result.IsOk()) {
		if (result.Code() == ErrorCode::DiskFull) {
			pool.GiveBack(std::move(spare));
		}
		return result;
	}
	next.path = JoinPath(options.directory, SegmentFileName(next.header.sequence));
	next.file = spare.file;
	next.capacity = spare.capacity;
	result = files.Rename(spare.path, next.path);
	if (result.IsOk()) {
		result = files.SyncDirectory(options.directory);
	}
	if (!result.IsOk()) {
		// Whether the new name survives is unknown: not even a full disk may be tried again from here.
		return Status(ErrorCode::IoError, result.Message());
	}
	std::lock_guard<std::mutex> guard(mutex);
	segments.push_back(next);
	current = next;
	tail = next_tail;
	tail_end = tail.offset;
	last_sequence = next.header.sequence;
	return Status::Ok();
}

Status SegmentedLog::WriteHead(const SpareSegment &spare, const std::vector<PendingRecord> &heads,
                               SegmentHeader &header, LogTail &head_tail) {
	header.skips_checksum = options.sabotage.skip_checksum;
	header.store_id = store_id;
	header.sequence = last_sequence + 1;
	header.capacity = spare.capacity;
	header.previous_end = current.file ? tail.offset : 0;
	header.previous_crc = current.file ? tail.last_crc : 0;
	header.nonce = static_cast<uint32_t>(files.UniqueId());
	header.head_end = SEGMENT_HEADER_BYTES;
	for (auto &head : heads) {
		header.head_end += RecordBytes(head.body.size());
	}
	auto header_bytes = EncodeSegmentHeader(header);
	BatchEncoder encoder(header, SEGMENT_HEADER_BYTES, header.head_end, header.crc);
	for (auto &head : heads) {
		encoder.Add(head);
	}
	encoder.AddEnd();
	auto pieces = encoder.Pieces();
	pieces.insert(pieces.begin(), ByteView(header_bytes));
	auto result = spare.file->WriteAt(0, pieces);
	if (!result.IsOk()) {
		return result;
	}
	result = spare.file->DataSync();
	if (!result.IsOk()) {
		return Status(ErrorCode::IoError, result.Message());
	}
	head_tail = {encoder.EndOffset(), encoder.LastCrc(), encoder.EndOffset()};
	return Status::Ok();
}

// ---- durability ----------------------------------------------------------------------------------------------------

Status SegmentedLog::SyncCurrent() {
	auto result = current.file->DataSync();
	if (!result.IsOk()) {
		// Also a full disk: the kernel may have dropped the pages, so this is final.
		return Status(ErrorCode::IoError, current.path + ": " + result.Message());
	}
	tail.synced = tail.offset;
	is_retreat_unsynced = is_tail_dirty;
	std::lock_guard<std::mutex> guard(mutex);
	status.sync_count++;
	return Status::Ok();
}

Status SegmentedLog::Sync() {
	auto health = Health();
	if (!health.IsOk() && health.Code() != ErrorCode::DiskFull) {
		return health;
	}
	if (is_tail_dirty) {
		is_tail_dirty = !WriteEnd().IsOk();
	}
	if (tail.synced < tail.offset || is_retreat_unsynced) {
		auto result = SyncCurrent();
		if (!result.IsOk()) {
			return Note(result);
		}
		// The data is durable whatever becomes of the mark; a broken disk shows at the next call.
		result = WriteEnd();
		if (!result.IsOk() && result.Code() != ErrorCode::DiskFull) {
			(void)Note(result);
			return Status::Ok();
		}
	}
	auto result = ReleaseSegments();
	return result.IsOk() ? result : Note(result);
}

Status SegmentedLog::ReleaseSegments() {
	bool changed = false;
	while (segments.size() > 1 && table.Live().Of(static_cast<uint32_t>(segments.front().header.sequence)) == 0) {
		auto result = pool.Recycle(segments.front().path, segments.front().capacity);
		if (!result.IsOk()) {
			return Status(ErrorCode::IoError, result.Message());
		}
		std::lock_guard<std::mutex> guard(mutex);
		segments.pop_front();
		changed = true;
	}
	if (!changed) {
		return Status::Ok();
	}
	auto result = files.SyncDirectory(options.directory);
	return result.IsOk() ? result : Status(ErrorCode::IoError, result.Message());
}

Status SegmentedLog::TryHeal() {
	auto health = Health();
	if (health.IsOk() || health.Code() != ErrorCode::DiskFull) {
		return health;
	}
	auto result = WriteEnd();
	if (result.IsOk()) {
		is_tail_dirty = false;
		result = pool.EnsureSpare();
	}
	return Note(result);
}

// ---- status --------------------------------------------------------------------------------------------------------

Status SegmentedLog::Health() const {
	std::lock_guard<std::mutex> guard(mutex);
	return status.health;
}

Status SegmentedLog::Note(Status result) {
	if (result.Code() == ErrorCode::DiskFull) {
		result = Status(ErrorCode::DiskFull, "no space for the log in " + options.directory + " (" + result.Message() +
		                                         "); free space, the log goes on by itself");
	}
	if (!result.IsOk() && result.Code() != ErrorCode::DiskFull && result.Code() != ErrorCode::Corruption) {
		result = Status(ErrorCode::IoError, result.Message());
	}
	std::lock_guard<std::mutex> guard(mutex);
	if (result.Code() != status.health.Code()) {
		auto level = result.IsOk() ? LogLevel::Info : LogLevel::Error;
		Log(level, "storage", result.IsOk() ? "log_healthy" : "log_unhealthy",
		    {{"directory", options.directory}, {"reason", result.ToString()}});
	}
	status.health = result;
	return result;
}

LogStoreStatus SegmentedLog::GetStatus() const {
	auto spare_bytes = pool.SpareBytes();
	std::lock_guard<std::mutex> guard(mutex);
	auto result = status;
	result.segment_count = segments.size();
	result.disk_bytes = spare_bytes;
	for (auto &segment : segments) {
		result.disk_bytes += segment.capacity;
	}
	return result;
}

} // namespace storage
} // namespace quack
