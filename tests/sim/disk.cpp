#include "sim/disk.hpp"

#include <algorithm>

#include "quack/common/check.hpp"

namespace quack {
namespace sim {

std::optional<raft::Term> LogImage::TermAt(raft::LogIndex index) const {
	if (index == base.index) {
		return base.term;
	}
	if (index < base.index || index > LastIndex()) {
		return std::nullopt;
	}
	return entries[index - base.index - 1].term;
}

bool LogImage::Holds(raft::LogIndex index, raft::Term term) const {
	return index < base.index || TermAt(index) == term;
}

void LogImage::Apply(const LogWrite &write, size_t entry_limit) {
	if (write.hard_state) {
		hard_state = *write.hard_state;
	}
	if (entry_limit > 0) {
		raft::LogIndex first = write.entries.front().index;
		QUACK_CHECK(first > base.index && first <= LastIndex() + 1, "appended entries leave no gap");
		entries.resize(first - base.index - 1);
		entries.insert(entries.end(), write.entries.begin(),
		               write.entries.begin() + static_cast<ptrdiff_t>(entry_limit));
	}
	if (entry_limit < write.entries.size()) {
		return;
	}
	if (write.reset) {
		base = *write.reset;
		entries.clear();
	}
	if (write.truncate_prefix && write.truncate_prefix->index > base.index) {
		QUACK_CHECK(write.truncate_prefix->index <= LastIndex(), "a prefix ends inside the log");
		auto count = static_cast<ptrdiff_t>(write.truncate_prefix->index - base.index);
		entries.erase(entries.begin(), entries.begin() + count);
		base = *write.truncate_prefix;
	}
}

SimDisk::SimDisk(const raft::SnapshotMeta &start) {
	written.base = start;
	synced.base = start;
}

Result<raft::Term> SimDisk::TermAt(raft::LogIndex index) const {
	auto term = written.TermAt(index);
	if (!term) {
		return Status(ErrorCode::NotFound, "index " + std::to_string(index) + " is not in the simulated log");
	}
	return *term;
}

Result<std::vector<raft::Entry>> SimDisk::Entries(raft::LogIndex begin, raft::LogIndex end, size_t bytes_max) const {
	if (begin <= written.base.index) {
		return Status(ErrorCode::NotFound, "entries from " + std::to_string(begin) + " are compacted");
	}
	QUACK_CHECK(begin <= end && end <= written.LastIndex() + 1, "the range lies inside the log");
	std::vector<raft::Entry> result;
	size_t bytes = 0;
	for (auto index = begin; index < end; index++) {
		result.push_back(written.entries[index - written.base.index - 1]);
		bytes += result.back().payload->size();
		if (bytes >= bytes_max) {
			break;
		}
	}
	return result;
}

uint64_t SimDisk::Write(LogWrite write) {
	written.Apply(write);
	unsynced.push_back(std::move(write));
	return ++written_seq;
}

void SimDisk::CompleteSync(uint64_t seq) {
	while (synced_seq < seq) {
		synced.Apply(unsynced.front());
		unsynced.pop_front();
		synced_seq++;
	}
}

size_t SimDisk::Crash(CrashKind kind, Prng &prng) {
	size_t survivors = unsynced.size();
	if (kind == CrashKind::PowerLoss && survivors > 0) {
		// Half of the time everything unsynced is gone, else the page cache reached the disk up to some point.
		survivors = prng.Chance(1, 2) ? 0 : prng.Below(survivors + 1);
	}
	size_t lost = unsynced.size() - survivors;
	for (size_t i = 0; i < survivors; i++) {
		synced.Apply(unsynced[i]);
	}
	if (lost > 0 && !unsynced[survivors].entries.empty() && prng.Chance(1, 2)) {
		synced.Apply(unsynced[survivors], prng.Below(unsynced[survivors].entries.size()));
	}
	unsynced.clear();
	written = synced;
	synced_seq = written_seq;
	return lost;
}

void SimDisk::Recover() {
	raft::HardState &hard_state = written.hard_state;
	if (checkpoint && !written.Holds(checkpoint->AppliedIndex(), checkpoint->AppliedTerm())) {
		// The checkpoint holds committed entries that never became durable in the log here.
		written.base.index = checkpoint->AppliedIndex();
		written.base.term = checkpoint->AppliedTerm();
		written.base.membership = checkpoint->MembershipAt(checkpoint->AppliedIndex());
		written.entries.clear();
	}
	raft::Term last_term = *written.TermAt(written.LastIndex());
	if (hard_state.term < last_term) {
		hard_state.term = last_term;
		hard_state.voted_for = raft::NO_NODE;
	}
	hard_state.commit_index = std::min(hard_state.commit_index, written.LastIndex());
	synced = written;
}

} // namespace sim
} // namespace quack
