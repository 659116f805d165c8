//! The model that a crashing log is held against: plain values, and every state that a crash may leave behind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/log_store_suite.hpp"
#include "quack/storage/append_rules.hpp"
#include "quack/storage/log_store.hpp"

namespace quack {
namespace testing {

struct ModelGroup {
	raft::HardState hard_state;
	raft::SnapshotMeta snapshot;
	std::vector<raft::Entry> entries;

	raft::LogIndex LastIndex() const {
		return snapshot.index + entries.size();
	}
	raft::Term TermAt(raft::LogIndex index) const {
		return index == snapshot.index ? snapshot.term : entries[index - snapshot.index - 1].term;
	}
};

using ModelState = std::map<raft::GroupId, ModelGroup>;

inline std::string Fingerprint(raft::GroupId id, raft::HardState hard, const raft::SnapshotMeta &snapshot,
                               const std::vector<raft::Entry> &entries) {
	hard = storage::ClampCommit(hard, snapshot.index, snapshot.index + entries.size());
	auto text = "group " + std::to_string(id) + " term " + std::to_string(hard.term) + " vote " +
	            std::to_string(hard.voted_for) + " commit " + std::to_string(hard.commit_index) + " snapshot " +
	            std::to_string(snapshot.index) + "@" + std::to_string(snapshot.term) + " voters " +
	            std::to_string(snapshot.membership.voters.size());
	for (auto &entry : entries) {
		text += " " + std::to_string(entry.index) + "@" + std::to_string(entry.term) + "/" +
		        std::to_string(static_cast<int>(entry.type)) + "=" +
		        std::to_string(std::hash<std::string>()(*entry.payload));
	}
	return text + "\n";
}

inline std::string Fingerprint(const ModelState &state) {
	std::string text;
	for (auto &item : state) {
		text += Fingerprint(item.first, item.second.hard_state, item.second.snapshot, item.second.entries);
	}
	return text;
}

//! What a freshly opened store shows, through Recovered and the readers.
inline std::string Fingerprint(storage::LogStore &store) {
	std::string text;
	for (auto &group : store.Recovered()) {
		auto &reader = store.Reader(group.group);
		CHECK(reader.FirstIndex() == group.first_index);
		CHECK(reader.LastIndex() == group.last_index);
		auto entries = reader.Entries(group.first_index, group.last_index + 1, SIZE_MAX);
		REQUIRE_MESSAGE(entries.IsOk(), entries.GetStatus().ToString());
		text += Fingerprint(group.group, group.hard_state, group.snapshot, entries.Value());
	}
	return text;
}

//! One durable step: a crash may fall between any two.
struct ModelStep {
	enum class Kind { Create, HardState, Entry, TruncatePrefix, Reset, Remove };
	Kind kind;
	raft::GroupId group;
	raft::HardState hard_state = {};
	raft::Entry entry = {};
	raft::SnapshotMeta snapshot = {};
};

inline void ApplyStep(ModelState &state, const ModelStep &step) {
	auto &group = state[step.group];
	switch (step.kind) {
	case ModelStep::Kind::Create:
	case ModelStep::Kind::Reset:
		group.entries.clear();
		group.snapshot = step.snapshot;
		group.hard_state.commit_index = step.snapshot.index;
		break;
	case ModelStep::Kind::HardState:
		group.hard_state = step.hard_state;
		break;
	case ModelStep::Kind::Entry:
		group.entries.resize(step.entry.index - group.snapshot.index - 1);
		group.entries.push_back(step.entry);
		break;
	case ModelStep::Kind::TruncatePrefix:
		group.entries.erase(group.entries.begin(),
		                    group.entries.begin() +
		                        static_cast<std::ptrdiff_t>(step.snapshot.index - group.snapshot.index));
		group.snapshot = step.snapshot;
		group.hard_state.commit_index = std::max(group.hard_state.commit_index, step.snapshot.index);
		break;
	case ModelStep::Kind::Remove:
		state.erase(step.group);
		break;
	}
}

//! The current state, and all that a crash now may leave: the last synced one, and each later step of calls that
//! succeeded or failed since.
class LogModel {
public:
	LogModel() {
		survivors.push_back(ModelState());
	}
	const ModelState &State() const {
		return state;
	}
	void Attempt(const std::vector<ModelStep> &steps, bool succeeded) {
		auto next = state;
		for (auto &step : steps) {
			ApplyStep(next, step);
			survivors.push_back(next);
		}
		if (succeeded) {
			state = next;
		} else {
			refused.insert(refused.end(), survivors.end() - static_cast<std::ptrdiff_t>(steps.size()), survivors.end());
		}
	}
	//! On a full disk the remains of a refused batch may not be taken back yet.
	void Synced(bool is_healthy) {
		if (is_healthy) {
			refused.clear();
		}
		survivors = refused;
		survivors.push_back(state);
	}
	//! Takes over what recovery found; false when no crash can explain it.
	bool Recover(const std::string &fingerprint) {
		for (auto &survivor : survivors) {
			if (Fingerprint(survivor) == fingerprint) {
				state = ModelState(survivor);
				for (auto &item : state) { // recovery lowers a hint that points beyond the log
					auto &group = item.second;
					group.hard_state = storage::ClampCommit(group.hard_state, group.snapshot.index, group.LastIndex());
				}
				survivors = {state};
				refused.clear();
				return true;
			}
		}
		return false;
	}
	std::string DescribeSurvivors() const {
		std::string text;
		for (auto &survivor : survivors) {
			text += "---\n" + Fingerprint(survivor);
		}
		return text;
	}

private:
	ModelState state;
	std::vector<ModelState> survivors;
	std::vector<ModelState> refused;
};

} // namespace testing
} // namespace quack
