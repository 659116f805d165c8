#include "sim/log_image.hpp"

#include <algorithm>

#include "quack/common/check.hpp"
#include "quack/storage/append_rules.hpp"

namespace quack {
namespace sim {

bool SameEntry(const raft::Entry &a, const raft::Entry &b) {
	return a.index == b.index && a.term == b.term && a.type == b.type &&
	       (a.payload == b.payload || *a.payload == *b.payload);
}

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
		hard_state = storage::ClampCommit(hard_state, base.index, base.index);
	}
	if (write.truncate_prefix && write.truncate_prefix->index > base.index) {
		QUACK_CHECK(write.truncate_prefix->index <= LastIndex(), "a prefix ends inside the log");
		auto count = static_cast<ptrdiff_t>(write.truncate_prefix->index - base.index);
		entries.erase(entries.begin(), entries.begin() + count);
		base = *write.truncate_prefix;
		hard_state = storage::ClampCommit(hard_state, base.index, LastIndex());
	}
}

bool LogImage::SameAs(const LogImage &other) const {
	return base.index == other.base.index && base.term == other.base.term && base.membership == other.base.membership &&
	       entries.size() == other.entries.size() &&
	       storage::ClampCommit(hard_state, base.index, LastIndex()) ==
	           storage::ClampCommit(other.hard_state, base.index, LastIndex()) &&
	       std::equal(entries.begin(), entries.end(), other.entries.begin(), SameEntry);
}

std::string LogImage::Describe() const {
	auto text = "term " + std::to_string(hard_state.term) + " vote " + std::to_string(hard_state.voted_for) +
	            " commit hint " + std::to_string(hard_state.commit_index) + " log (" + std::to_string(base.index) +
	            ", " + std::to_string(LastIndex()) + "]";
	return entries.empty() ? text : text + " last term " + std::to_string(entries.back().term);
}

} // namespace sim
} // namespace quack
