#include "quack/storage/log_table.hpp"

#include <algorithm>

#include "quack/storage/append_rules.hpp"

namespace quack {
namespace storage {

namespace {

Status Contradiction(const RecordFields &fields, const std::string &what) {
	return Status(ErrorCode::Corruption, std::string("the ") + RecordTypeName(fields.type) + " record of group " +
	                                         std::to_string(fields.group) + " index " + std::to_string(fields.index) +
	                                         " " + what);
}

} // namespace

void LiveCounts::Drop(uint32_t segment) {
	if (segment == 0) {
		return;
	}
	auto found = counts.find(segment);
	QUACK_CHECK(found != counts.end() && found->second > 0, "an entry is dropped once");
	if (--found->second == 0) {
		counts.erase(found);
	}
}

uint64_t LiveCounts::Of(uint32_t segment) const {
	auto found = counts.find(segment);
	return found == counts.end() ? 0 : found->second;
}

raft::Term GroupLog::TermAt(raft::LogIndex index) const {
	QUACK_CHECK(index >= snapshot.index && index <= LastIndex(), "the index is in the log");
	if (index == snapshot.index) {
		return snapshot.term;
	}
	auto after = std::upper_bound(runs.begin(), runs.end(), index,
	                              [](raft::LogIndex i, const TermRun &r) { return i < r.first; });
	QUACK_CHECK(after != runs.begin(), "every entry belongs to a run");
	return std::prev(after)->term;
}

void GroupLog::TruncateSuffix(raft::LogIndex first_dropped, LiveCounts &live) {
	while (LastIndex() >= first_dropped) {
		live.Drop(positions.back().segment);
		positions.pop_back();
	}
	while (!runs.empty() && runs.back().first >= first_dropped) {
		runs.pop_back();
	}
}

void GroupLog::Append(raft::LogIndex index, raft::Term term, const EntryPosition &position, LiveCounts &live) {
	QUACK_CHECK(index > snapshot.index && index <= LastIndex() + 1, "entries follow each other");
	TruncateSuffix(index, live);
	positions.push_back(position);
	live.Add(position.segment);
	if (runs.empty() || runs.back().term != term) {
		runs.push_back({index, term});
	}
}

void GroupLog::TruncatePrefix(const raft::SnapshotMeta &to, LiveCounts &live) {
	QUACK_CHECK(to.index >= snapshot.index && to.index <= LastIndex(), "the snapshot position is in the log");
	while (snapshot.index < to.index) {
		live.Drop(positions.front().segment);
		positions.pop_front();
		snapshot.index++;
	}
	snapshot = to;
	while (runs.size() > 1 && runs[1].first <= snapshot.index + 1) {
		runs.pop_front();
	}
	if (positions.empty()) {
		runs.clear();
	}
}

void GroupLog::Reset(const raft::SnapshotMeta &to, LiveCounts &live) {
	TruncateSuffix(snapshot.index + 1, live);
	runs.clear();
	snapshot = to;
}

void GroupLog::AddUnplaced(raft::LogIndex last_index) {
	if (last_index > LastIndex()) {
		runs.push_back({LastIndex() + 1, 0});
		positions.resize(last_index - snapshot.index);
	}
}

GroupLog *LogTable::Find(raft::GroupId group) {
	auto found = groups.find(group);
	return found == groups.end() ? nullptr : &found->second;
}

const GroupLog *LogTable::Find(raft::GroupId group) const {
	auto found = groups.find(group);
	return found == groups.end() ? nullptr : &found->second;
}

GroupHead LogTable::HeadOf(raft::GroupId group) const {
	auto &log = groups.at(group);
	return {log.hard_state, log.Snapshot(), log.LastIndex()};
}

Status LogTable::Apply(const RecordFields &fields, ByteView body, uint32_t segment, uint64_t offset) {
	if (fields.type == RecordType::GroupState) {
		return ApplyHead(fields, body);
	}
	if (fields.type == RecordType::CreateGroup) {
		if (groups.count(fields.group) != 0) {
			return Contradiction(fields, "creates a group that exists");
		}
		groups[fields.group];
		return ApplyPosition(fields, body);
	}
	auto log = Find(fields.group);
	if (!log) {
		return Contradiction(fields, "belongs to a group that was never created");
	}
	switch (fields.type) {
	case RecordType::HardState: {
		auto vote = DecodeVote(body);
		if (!vote.IsOk()) {
			return Contradiction(fields, "does not decode");
		}
		log->hard_state = {fields.term, vote.Value(), fields.index};
		return Status::Ok();
	}
	case RecordType::Entry:
		return ApplyEntry(*log, fields, body, segment, offset);
	case RecordType::TruncatePrefix:
	case RecordType::Reset:
		return ApplyPosition(fields, body);
	case RecordType::RemoveGroup:
		log->Reset(raft::SnapshotMeta(), live);
		groups.erase(fields.group);
		return Status::Ok();
	default:
		return Contradiction(fields, "has a type this program does not know");
	}
}

Status LogTable::ApplyHead(const RecordFields &fields, ByteView body) {
	auto head = DecodeGroupHead(body);
	if (!head.IsOk()) {
		return Contradiction(fields, "does not decode");
	}
	auto &value = head.Value();
	auto log = Find(fields.group);
	if (!log) {
		auto &fresh = groups[fields.group];
		fresh.hard_state = value.hard_state;
		fresh.Reset(value.snapshot, live);
		fresh.AddUnplaced(value.last_index);
		return Status::Ok();
	}
	if (log->hard_state != value.hard_state || log->Snapshot().index != value.snapshot.index ||
	    log->Snapshot().term != value.snapshot.term || log->LastIndex() != value.last_index) {
		return Contradiction(fields, "disagrees with the segments before it");
	}
	return Status::Ok();
}

Status LogTable::ApplyPosition(const RecordFields &fields, ByteView body) {
	auto membership = DecodeMembership(body);
	if (!membership.IsOk()) {
		return Contradiction(fields, "does not decode");
	}
	auto &log = groups.at(fields.group);
	raft::SnapshotMeta to {fields.index, fields.term, membership.Value()};
	if (fields.type != RecordType::TruncatePrefix) {
		log.Reset(to, live);
		log.hard_state = ClampCommit(log.hard_state, to.index, to.index);
		return Status::Ok();
	}
	if (to.index < log.Snapshot().index || to.index > log.LastIndex()) {
		return Contradiction(fields, "is outside (" + std::to_string(log.Snapshot().index) + ", " +
		                                 std::to_string(log.LastIndex()) + "]");
	}
	log.TruncatePrefix(to, live);
	log.hard_state = ClampCommit(log.hard_state, to.index, log.LastIndex());
	return Status::Ok();
}

Status LogTable::ApplyEntry(GroupLog &log, const RecordFields &fields, ByteView body, uint32_t segment,
                            uint64_t offset) {
	if (fields.index <= log.Snapshot().index || fields.index > log.LastIndex() + 1) {
		return Contradiction(fields, "does not follow (" + std::to_string(log.Snapshot().index) + ", " +
		                                 std::to_string(log.LastIndex()) + "]");
	}
	EntryPosition position {segment, static_cast<uint32_t>(offset / RECORD_ALIGNMENT),
	                        static_cast<uint32_t>(body.size())};
	log.Append(fields.index, fields.term, position, live);
	return Status::Ok();
}

Status LogTable::CheckComplete() const {
	for (auto &item : groups) {
		auto &log = item.second;
		auto first = log.Snapshot().index + 1;
		// Unplaced entries are always a prefix: what follows them was appended later.
		if (first <= log.LastIndex() && log.PositionOf(first).segment == 0) {
			return Status(ErrorCode::Corruption, "entry " + std::to_string(first) + " of group " +
			                                         std::to_string(item.first) +
			                                         " is needed but lies in a segment that is missing");
		}
	}
	return Status::Ok();
}

} // namespace storage
} // namespace quack
