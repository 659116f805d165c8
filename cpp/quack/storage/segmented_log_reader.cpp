//! The read side of SegmentedLog: memory first, then the segments.
#include "quack/storage/segmented_log.hpp"

#include <algorithm>

namespace quack {
namespace storage {

namespace {

//! Neighbouring records are read together up to here; gaps up to GAP_BYTES_MAX are read along.
constexpr uint64_t SPAN_BYTES_MAX = 1 << 20;
constexpr uint64_t GAP_BYTES_MAX = 32 << 10;

Status NoGroup(raft::GroupId group) {
	return Status(ErrorCode::NotFound, "the log has no group " + std::to_string(group));
}

} // namespace

//! What one Entries call will return: entries from memory are there already, the others by position.
struct SegmentedLog::ReadPlan {
	struct DiskEntry {
		size_t slot = 0; //! in `entries`
		raft::LogIndex index = 0;
		EntryPosition position;
		Segment segment;
	};
	std::vector<raft::Entry> entries;
	std::vector<DiskEntry> from_disk;
};

class SegmentedLog::GroupReader final : public raft::LogReader {
public:
	GroupReader(const SegmentedLog &log_p, raft::GroupId group_p) : log(log_p), group(group_p) {
	}

	raft::LogIndex FirstIndex() const override {
		std::lock_guard<std::mutex> guard(log.mutex);
		auto found = log.table.Find(group);
		return found ? found->Snapshot().index + 1 : 1;
	}

	raft::LogIndex LastIndex() const override {
		std::lock_guard<std::mutex> guard(log.mutex);
		auto found = log.table.Find(group);
		return found ? found->LastIndex() : 0;
	}

	Result<raft::Term> TermAt(raft::LogIndex index) const override {
		std::lock_guard<std::mutex> guard(log.mutex);
		auto found = log.table.Find(group);
		if (!found) {
			return NoGroup(group);
		}
		if (index < found->Snapshot().index || index > found->LastIndex()) {
			return Status(ErrorCode::NotFound, "group " + std::to_string(group) + " index " + std::to_string(index) +
			                                       " is not in [" + std::to_string(found->Snapshot().index) + ", " +
			                                       std::to_string(found->LastIndex()) + "]");
		}
		return found->TermAt(index);
	}

	Result<std::vector<raft::Entry>> Entries(raft::LogIndex begin, raft::LogIndex end,
	                                         size_t bytes_max) const override {
		return log.ReadEntries(group, begin, end, bytes_max);
	}

private:
	const SegmentedLog &log;
	const raft::GroupId group;
};

raft::LogReader &SegmentedLog::Reader(raft::GroupId group) {
	std::lock_guard<std::mutex> guard(mutex);
	auto &reader = readers[group];
	if (!reader) {
		reader = std::make_unique<GroupReader>(*this, group);
	}
	return *reader;
}

Result<std::vector<raft::Entry>> SegmentedLog::ReadEntries(raft::GroupId group, raft::LogIndex begin,
                                                           raft::LogIndex end, size_t bytes_max) const {
	while (true) {
		ReadPlan plan;
		auto result = PlanRead(group, begin, end, bytes_max, plan);
		if (!result.IsOk()) {
			return result;
		}
		result = ReadPlanned(group, plan);
		if (result.IsOk()) {
			return std::move(plan.entries);
		}
		// The writer may have truncated, and even reused the file, since the plan was made.
		if (StillCurrent(group, plan)) {
			return result;
		}
	}
}

Status SegmentedLog::PlanRead(raft::GroupId group, raft::LogIndex begin, raft::LogIndex end, size_t bytes_max,
                              ReadPlan &plan) const {
	std::lock_guard<std::mutex> guard(mutex);
	auto found = table.Find(group);
	if (!found) {
		return NoGroup(group);
	}
	if (begin <= found->Snapshot().index) {
		return Status(ErrorCode::NotFound, "group " + std::to_string(group) + " index " + std::to_string(begin) +
		                                       " is compacted; the log starts at " +
		                                       std::to_string(found->Snapshot().index + 1));
	}
	size_t bytes = 0;
	for (auto index = begin; index < std::min(end, found->LastIndex() + 1); index++) {
		auto &position = found->PositionOf(index);
		if (auto cached = cache.Find(group, index)) {
			plan.entries.push_back(*cached);
		} else {
			auto place = std::find_if(segments.begin(), segments.end(), [&](const Segment &segment) {
				return static_cast<uint32_t>(segment.header.sequence) == position.segment;
			});
			QUACK_CHECK(place != segments.end(), "the segment of a live entry is there");
			plan.from_disk.push_back({plan.entries.size(), index, position, *place});
			plan.entries.emplace_back();
		}
		bytes += position.body_size;
		if (bytes >= bytes_max) {
			break;
		}
	}
	return Status::Ok();
}

Status SegmentedLog::ReadPlanned(raft::GroupId group, ReadPlan &plan) const {
	std::string span;
	for (size_t first = 0; first < plan.from_disk.size();) {
		auto &segment = plan.from_disk[first].segment;
		auto begin = plan.from_disk[first].position.Offset();
		auto end = begin;
		auto next = first;
		while (next < plan.from_disk.size()) {
			auto &item = plan.from_disk[next];
			auto item_end = item.position.Offset() + RecordBytes(item.position.body_size);
			auto fits =
			    next == first ||
			    (item.position.segment == plan.from_disk[first].position.segment && item.position.Offset() >= end &&
				 item.position.Offset() - end <= GAP_BYTES_MAX && item_end - begin <= SPAN_BYTES_MAX);
			if (!fits) {
				break;
			}
			end = item_end;
			next++;
		}
		span.resize(end - begin);
		auto count = segment.file->ReadAt(begin, &span[0], span.size());
		if (!count.IsOk()) {
			return Status(count.GetStatus().Code(), segment.path + ": " + count.GetStatus().Message());
		}
		for (; first < next; first++) {
			auto &item = plan.from_disk[first];
			RecordView record;
			auto at = item.position.Offset() - begin;
			if (count.Value() != span.size() ||
			    !ParseRecordAt(span, at, segment.header, item.position.Offset(), record) ||
			    record.fields.type != RecordType::Entry || record.fields.group != group ||
			    record.fields.index != item.index || record.body.size() != item.position.body_size) {
				return Status(ErrorCode::Corruption,
				              segment.path + ": the record at offset " + std::to_string(item.position.Offset()) +
				                  " is damaged; it should be entry " + std::to_string(item.index) + " of group " +
				                  std::to_string(group) +
				                  "; restart the node: it moves a damaged log aside and gets its data from its peers");
			}
			plan.entries[item.slot] = {record.fields.term, record.fields.index,
			                           static_cast<raft::EntryType>(record.fields.entry_type),
			                           MakeSharedBytes(std::string(record.body))};
		}
	}
	return Status::Ok();
}

bool SegmentedLog::StillCurrent(raft::GroupId group, const ReadPlan &plan) const {
	std::lock_guard<std::mutex> guard(mutex);
	auto found = table.Find(group);
	if (!found) {
		return false;
	}
	for (auto &item : plan.from_disk) {
		if (item.index <= found->Snapshot().index || item.index > found->LastIndex()) {
			return false;
		}
		auto &now = found->PositionOf(item.index);
		if (now.segment != item.position.segment || now.offset_units != item.position.offset_units) {
			return false;
		}
	}
	return true;
}

//! Segments go oldest first, whoever's entries they hold: what a quiet group kept of its own would keep everything that
//! others have written since.
raft::LogIndex SegmentedLog::TailStart(raft::GroupId group, raft::LogIndex limit, uint64_t bytes) const {
	std::lock_guard<std::mutex> guard(mutex);
	auto found = table.Find(group);
	if (!found) {
		return 0;
	}
	// The tail begins at `cut` of segment `first`.
	auto first = segments.size();
	auto end = tail_end;
	uint64_t cut = 0;
	for (uint64_t kept = 0; first > 0 && kept < bytes;) {
		first--;
		cut = end > bytes - kept ? end - (bytes - kept) : 0;
		kept += end;
		end = segments[first].header.previous_end;
	}
	if (first == segments.size()) {
		return std::min(limit, found->LastIndex());
	}
	auto sequence = static_cast<uint32_t>(segments[first].header.sequence);
	auto is_before = [&](const EntryPosition &position) {
		auto distance = static_cast<int32_t>(position.segment - sequence); // low halves: they may wrap
		auto is_in_it = distance == 0 && position.Offset() + RecordBytes(position.body_size) <= cut;
		return position.segment == 0 || distance < 0 || is_in_it;
	};
	auto index = found->Snapshot().index;
	while (index < std::min(limit, found->LastIndex()) && is_before(found->PositionOf(index + 1))) {
		index++;
	}
	return index;
}

} // namespace storage
} // namespace quack
