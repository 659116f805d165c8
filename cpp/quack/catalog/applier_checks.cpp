//! What can make an entry be rejected before anything of it is executed.
#include <algorithm>

#include "quack/catalog/applier.hpp"

namespace quack {
namespace catalog {

//! Ok when an earlier attempt of the request would still be remembered.
Status Applier::CheckWindow(const node::CommittedEntry &committed, const DecodedEntry &entry,
                            const Staged &staged) const {
	if (entry.header.base_index >= core.state.outcomes.UnknownBelow(committed.group, committed.entry.index)) {
		return Status::Ok();
	}
	if (entry.EndsStream()) {
		// Checked when the stream began; since then, any outcome of the request would have ended it.
		auto end = DecodeFragmentsEnd(entry.effects.front().content);
		if (!end.IsOk()) {
			throw end.GetStatus();
		}
		auto *open = FindStream(end.Value().stream, staged);
		if (open != nullptr && open->request_id == entry.header.request_id) {
			return Status::Ok();
		}
	}
	return Status(ErrorCode::OutcomeUnknown,
	              "the entry reached the log more than " + std::to_string(OUTCOME_WINDOW) +
	                  " entries after it was proposed; whether an earlier attempt committed is no longer known");
}

Status Applier::Check(const node::CommittedEntry &committed, const DecodedEntry &entry,
                      const node::TransactionEntry *decision, const Staged &staged) const {
	auto window = CheckWindow(committed, entry, staged);
	if (!window.IsOk()) {
		return window;
	}
	// An entry with DDL runs alone, so the staged catalog is the current one.
	for (auto &effect : entry.effects) {
		auto names = effect.touched;
		names.push_back(effect.object);
		for (auto &name : names) {
			auto current = name;
			for (;;) {
				auto unchanged = core.state.CheckUnchanged(current, entry.header.planned_version);
				if (!unchanged.IsOk()) {
					return unchanged;
				}
				if (current.schema.empty()) {
					break;
				}
				current.name = current.schema.back();
				current.schema.pop_back();
			}
		}
	}
	auto groups = CheckGroups(committed.group, entry, decision);
	if (!groups.IsOk()) {
		return groups;
	}
	auto reads = CheckReads(committed.group, entry, staged);
	return reads.IsOk() ? CheckSequences(entry, staged) : reads;
}

raft::LogIndex Applier::LastChange(const TableInGroup &table, const Staged &staged) const {
	auto fresh = staged.table_changes.find(table);
	if (fresh != staged.table_changes.end()) {
		return fresh->second;
	}
	auto known = core.state.table_changes.find(table);
	return known == core.state.table_changes.end() ? 0 : known->second;
}

//! Serializable transactions: nothing that it read may have changed since its snapshot.
//! In this group: the other groups that it read have parts of their own.
Status Applier::CheckReads(raft::GroupId group, const DecodedEntry &entry, const Staged &staged) const {
	for (auto &effect : entry.effects) {
		if (effect.kind != EffectKind::ReadTable) {
			continue;
		}
		if (group == raft::ROOT_GROUP && core.state.catalog_version > entry.header.planned_version) {
			return Status(ErrorCode::SchemaChanged,
			              "the catalog was changed by another transaction while this serializable one ran; retry");
		}
		if (effect.object.name.empty()) {
			auto known = core.state.last_changes.find(group);
			auto last = known == core.state.last_changes.end() ? 0 : known->second;
			for (auto &change : staged.table_changes) {
				last = change.first.first == group ? std::max(last, change.second) : last;
			}
			if (last > entry.header.snapshot_index) {
				return Status(ErrorCode::Conflict, "a table was changed by another transaction while this serializable "
				                                   "one, whose reads are not known, ran; retry");
			}
		} else if (LastChange({group, effect.object.Key()}, staged) > entry.header.snapshot_index) {
			return Status(ErrorCode::Conflict, "table \"" + effect.object.ToString() +
			                                       "\" was changed by another transaction after this serializable one "
			                                       "had read it; retry");
		}
	}
	return Status::Ok();
}

Status Applier::CheckSequences(const DecodedEntry &entry, const Staged &staged) const {
	for (auto &effect : entry.effects) {
		if (effect.kind != EffectKind::SequenceState) {
			continue;
		}
		auto key = effect.object.Key();
		SequenceUsers users;
		auto known = core.state.sequences.find(key);
		if (known != core.state.sequences.end()) {
			users = known->second;
		}
		auto fresh = staged.sequences.find(key);
		if (fresh != staged.sequences.end()) {
			users = fresh->second;
		}
		if (users.LastForeign(entry.header.incarnation) > entry.header.snapshot_index) {
			return Status(ErrorCode::Conflict, "sequence \"" + effect.object.ToString() +
			                                       "\" was used on another node at the same time; retry");
		}
	}
	return Status::Ok();
}

} // namespace catalog
} // namespace quack
