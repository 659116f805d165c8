#include "quack/storage/log_inspect.hpp"

#include "quack/raft/raft.hpp"
#include "quack/storage/log_table.hpp"

namespace quack {
namespace storage {

namespace {

std::string FileNameOf(const std::string &path) {
	return path.substr(path.find_last_of('/') + 1);
}

std::string DescribeNode(raft::NodeId node) {
	char text[24];
	std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(node));
	return text;
}

std::string DescribeMembership(const raft::Membership &membership) {
	std::string text;
	auto add = [&text](const char *what, const std::vector<raft::NodeId> &nodes) {
		if (nodes.empty()) {
			return;
		}
		text += (text.empty() ? "" : " ") + std::string(what);
		for (auto node : nodes) {
			text += " " + DescribeNode(node);
		}
	};
	add("voters", membership.voters);
	add("outgoing", membership.outgoing);
	add("learners", membership.learners);
	add("learners_next", membership.learners_next);
	return text.empty() ? "no members" : text;
}

std::string DescribeHead(ByteView body) {
	auto head = DecodeGroupHead(body);
	if (!head.IsOk()) {
		return head.GetStatus().Message();
	}
	auto &value = head.Value();
	return "term " + std::to_string(value.hard_state.term) + ", vote " + DescribeNode(value.hard_state.voted_for) +
	       ", commit " + std::to_string(value.hard_state.commit_index) + ", log from " +
	       std::to_string(value.snapshot.index) + ", " + DescribeMembership(value.snapshot.membership);
}

template <class T>
std::string Describe(const Result<T> &decoded, std::string (*words)(const T &)) {
	return decoded.IsOk() ? words(decoded.Value()) : decoded.GetStatus().Message();
}

RecoveredGroup Report(raft::GroupId id, const GroupLog &group) {
	RecoveredGroup report;
	report.group = id;
	report.hard_state = group.hard_state;
	report.snapshot = group.Snapshot();
	report.first_index = group.Snapshot().index + 1;
	report.last_index = group.LastIndex();
	return report;
}

} // namespace

Result<LogInspection> InspectLog(FileSystem &files, const std::string &directory,
                                 const std::function<void(const ScannedRecord &)> &visit) {
	LogTable table;
	Status contradiction;
	auto is_sound = true;
	auto scanned = ScanLog(files, directory, [&](const ScannedRecord &record) {
		is_sound = is_sound && record.crc_ok;
		auto sequence = ParseSegmentFileName(FileNameOf(record.file));
		if (is_sound && sequence) {
			auto status = table.Apply(record.fields, record.body, static_cast<uint32_t>(*sequence), record.offset);
			if (!status.IsOk()) {
				is_sound = false;
				contradiction = Status(status.Code(), record.file + ": offset " + std::to_string(record.offset) + ": " +
				                                          status.Message());
			}
		}
		if (visit) {
			visit(record);
		}
		return true;
	});
	if (!scanned.IsOk()) {
		return scanned.GetStatus();
	}
	LogInspection result;
	result.summary = std::move(scanned.Value());
	if (result.summary.segment_count == 0) {
		return Status(ErrorCode::NotFound, "'" + directory + "' holds no log segments");
	}
	if (contradiction.IsOk() && is_sound && result.summary.damage_count == 0) {
		contradiction = table.CheckComplete();
	}
	if (!contradiction.IsOk()) {
		result.summary.damage_count++;
		if (result.summary.first_damage.IsOk()) {
			result.summary.first_damage = contradiction;
		}
	}
	for (auto &group : table.Groups()) {
		result.groups.push_back(Report(group.first, group.second));
	}
	return result;
}

std::string DescribeRecord(const ScannedRecord &record) {
	if (!record.crc_ok) {
		return "damaged";
	}
	switch (record.fields.type) {
	case RecordType::GroupState:
		return DescribeHead(record.body);
	case RecordType::HardState:
		return "vote " + Describe<raft::NodeId>(DecodeVote(record.body),
		                                        [](const raft::NodeId &node) { return DescribeNode(node); });
	case RecordType::CreateGroup:
	case RecordType::TruncatePrefix:
	case RecordType::Reset:
		return Describe<raft::Membership>(DecodeMembership(record.body), DescribeMembership);
	case RecordType::Entry:
		switch (static_cast<raft::EntryType>(record.fields.entry_type)) {
		case raft::EntryType::Membership:
			return Describe<raft::Membership>(raft::DecodeMembership(record.body), DescribeMembership);
		case raft::EntryType::Normal:
			return std::to_string(record.body.size()) + " bytes of effects";
		default:
			return "no-op";
		}
	default:
		return "";
	}
}

} // namespace storage
} // namespace quack
