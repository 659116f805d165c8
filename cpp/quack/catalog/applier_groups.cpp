//! Entries of transactions over several groups, and what the root group decides about groups (cpp/GROUPS.md).
#include <algorithm>

#include "quack/catalog/applier.hpp"
#include "quack/catalog/part_locks.hpp"
#include "quack/catalog/placement_request.hpp"

namespace quack {
namespace catalog {
namespace {

bool ChangesTable(EffectKind kind) {
	return kind == EffectKind::InsertRows || kind == EffectKind::DeleteRows || kind == EffectKind::UpdateRows;
}

Status LockedBy(const node::LockClash &clash) {
	auto table = clash.table;
	std::replace(table.begin(), table.end(), '\0', '.');
	return Status(ErrorCode::Conflict, (table.empty() ? std::string("the group") : "rows of table \"" + table + "\"") +
	                                       " that this transaction touches belong to transaction " +
	                                       RequestIdToString(clash.holder) +
	                                       " over several groups, which is being committed; retry");
}

//! Deletes, then updates, then inserts: parts may write one table, and rows of this transaction cannot be found.
void OrderByKind(std::vector<Effect> &effects) {
	std::stable_sort(effects.begin(), effects.end(), [](const Effect &left, const Effect &right) {
		auto rank = [](EffectKind kind) {
			return kind == EffectKind::DeleteRows ? 0 : kind == EffectKind::UpdateRows ? 1 : 2;
		};
		return rank(left.kind) < rank(right.kind);
	});
}

PlacementChange Intact(const Effect &effect) {
	auto change = DecodePlacementChange(effect.content);
	if (!change.IsOk()) {
		throw change.GetStatus();
	}
	return std::move(change.Value());
}

//! What the table will be, if its groups had these numbers already.
Placement PlacementOf(const PlacementRequest &request, const Placement *before, std::vector<raft::GroupId> groups) {
	Placement placement;
	if (request.kind == PlacementRequest::Kind::Pinned) {
		placement.group = groups.front();
		return placement;
	}
	placement.shard_key = request.kind == PlacementRequest::Kind::Sharded ? request.shard_key : before->shard_key;
	placement.groups = std::move(groups);
	return placement;
}

} // namespace

void Applier::ApplyTransaction(ApplySession &session, const node::CommittedEntry &committed, size_t position,
                               Staged &staged) {
	auto &transaction = transactions.at(position);
	staged.is_closed = true;
	switch (transaction.kind) {
	case node::TransactionEntryKind::Prepare:
		ApplyPrepare(session, committed, position, staged);
		break;
	case node::TransactionEntryKind::Decision:
		ApplyDecision(session, committed, position, staged);
		break;
	case node::TransactionEntryKind::Release:
		ApplyRelease(committed, transaction, staged);
		break;
	}
}

void Applier::ApplyPrepare(ApplySession &session, const node::CommittedEntry &committed, size_t position,
                           Staged &staged) {
	auto &prepare = transactions.at(position);
	auto &entry = *decoded[position];
	CommitOutcome answer;
	answer.request_id = prepare.id;
	answer.group = committed.group;
	answer.index = committed.entry.index;
	if (auto *part = core.state.prepared.Find(committed.group, prepare.id)) {
		answer.index = part->index; // a repeated proposal
	} else if (auto *known = core.state.outcomes.Find(prepare.id, committed.group, committed.entry.index)) {
		answer.status = Status(ErrorCode::Cancelled, "the transaction was given up: " + known->status.Message());
	} else {
		node::PreparedPart fresh;
		fresh.index = committed.entry.index;
		fresh.coordinator = prepare.coordinator;
		fresh.locks = prepare.locks;
		fresh.body = std::string(prepare.body);
		AddTableLocksOf(entry.effects, fresh.locks);
		answer.status = CheckEntry(session, committed, entry, nullptr, fresh.locks, staged);
		if (answer.status.IsOk()) {
			staged.state_rows.push_back({committed.entry.index, StateKind::Prepared,
			                             PreparedName(committed.group, prepare.id), EncodePreparedPart(fresh)});
			staged.prepared_group = committed.group;
			staged.prepared.emplace(prepare.id, std::move(fresh));
		}
	}
	staged.bytes += entry.body.size();
	staged.prepare_outcomes.push_back(std::move(answer));
}

//! The effects of all parts as those of one entry. Conflict when one was not prepared where the decision says.
std::unique_ptr<DecodedEntry> Applier::MergeParts(const node::TransactionEntry &decision, const DecodedEntry &own,
                                                  Status &status) {
	auto all = std::make_unique<DecodedEntry>();
	all->header = own.header;
	merged.clear();
	std::vector<Effect> others;
	for (auto &position : decision.prepares) {
		auto *part = core.state.prepared.Find(position.group, decision.id);
		if (part == nullptr || part->index != position.index) {
			status = Status(ErrorCode::Conflict, "the part of the transaction in group " +
			                                         core.state.placements.NameOf(position.group) +
			                                         " is not prepared; retry");
			return nullptr;
		}
		auto decoded_part = DecodeEntry(part->body);
		if (!decoded_part.IsOk()) {
			throw decoded_part.GetStatus();
		}
		merged.push_back(std::move(decoded_part.Value()));
		others.insert(others.end(), merged.back()->effects.begin(), merged.back()->effects.end());
	}
	all->effects = own.effects;
	if (own.header.has_ddl || own.EndsStream()) {
		OrderByKind(others);
		all->effects.insert(all->effects.end(), others.begin(), others.end());
		return all;
	}
	all->effects.insert(all->effects.end(), others.begin(), others.end());
	OrderByKind(all->effects);
	return all;
}

void Applier::ApplyDecision(ApplySession &session, const node::CommittedEntry &committed, size_t position,
                            Staged &staged) {
	auto &decision = transactions.at(position);
	auto &own = *decoded[position];
	if (IsRepeated(committed, decision.id, staged)) {
		return;
	}
	CommitOutcome outcome;
	outcome.request_id = decision.id;
	outcome.group = committed.group;
	outcome.index = committed.entry.index;
	auto rejection = rejections.find(position);
	node::LockSet locks;
	AddTableLocksOf(own.effects, locks);
	outcome.status = rejection != rejections.end() ? rejection->second
	                                               : CheckEntry(session, committed, own, &decision, locks, staged);
	std::unique_ptr<DecodedEntry> all;
	if (outcome.status.IsOk()) {
		all = MergeParts(decision, own, outcome.status);
	}
	if (all && own.EndsStream()) {
		ExecuteStream(session, committed, *all, position, staged, outcome);
	} else if (all) {
		EffectApplier effects(session, *all, BeginChanges(committed, all->header, staged));
		Execute(effects, committed, *all, position, staged, outcome);
	}
	EndStreams(session, committed, decision.id, staged);
	staged.bytes += own.body.size();
	Conclude(committed, own.header, std::move(outcome), staged);
}

void Applier::ApplyRelease(const node::CommittedEntry &committed, const node::TransactionEntry &release,
                           Staged &staged) {
	auto *part = core.state.prepared.Find(committed.group, release.id);
	if (part == nullptr) {
		return;
	}
	// Whoever planned before this entry may not have seen what the part did.
	for (auto &lock : part->locks) {
		if (lock.kind != node::LockKind::SharedTable && lock.table != GROUP_LOCK) {
			staged.table_changes[{committed.group, lock.table}] = committed.entry.index;
		}
	}
	staged.state_rows.push_back(
	    {committed.entry.index, StateKind::Prepared, PreparedName(committed.group, release.id), std::string()});
	staged.released.emplace(committed.group, release.id);
}

//! All checks before anything of the entry is executed. `locks`: of its tables; gets those of its rows where somebody
//! may ask for them. In this order: between the fence and the release of a change some nodes know a table before it and
//! some after it, so until the locks of whole tables are found free nothing may depend on definitions.
Status Applier::CheckEntry(ApplySession &session, const node::CommittedEntry &committed, const DecodedEntry &entry,
                           const node::TransactionEntry *decision, node::LockSet &locks, const Staged &staged) const {
	auto &prepared = core.state.prepared;
	auto clash = prepared.FindClash(committed.group, locks, entry.header.request_id);
	if (clash) {
		return LockedBy(*clash);
	}
	auto status = Check(committed, entry, decision, staged);
	auto is_prepare = staged.is_closed && committed.group != raft::ROOT_GROUP;
	if (!status.IsOk() || (!is_prepare && prepared.IsEmpty(committed.group))) {
		return status;
	}
	try {
		AddRowLocksOf(session, entry.effects, locks);
	} catch (Rejected &rejected) {
		return rejected.status;
	}
	clash = prepared.FindClash(committed.group, locks, entry.header.request_id);
	return clash ? LockedBy(*clash) : Status::Ok();
}

//! The decision's prepares lock the whole table in every group that it lives in.
bool Applier::HoldsTable(const node::TransactionEntry &decision, const std::string &table) const {
	auto groups = core.state.placements.GroupsOf(table);
	return std::all_of(groups.begin(), groups.end(), [&](raft::GroupId group) {
		return std::any_of(decision.prepares.begin(), decision.prepares.end(), [&](const node::Position &prepare) {
			auto *part = prepare.group == group ? core.state.prepared.Find(group, decision.id) : nullptr;
			return part != nullptr && part->index == prepare.index &&
			       std::any_of(part->locks.begin(), part->locks.end(), [&](const node::TableLock &lock) {
				       return lock.table == table && lock.kind == node::LockKind::WholeTable;
			       });
		});
	});
}

//! Whether rows and placements belong where they came.
Status Applier::CheckGroups(raft::GroupId group, const DecodedEntry &entry,
                            const node::TransactionEntry *decision) const {
	for (auto &effect : entry.effects) {
		auto placement = effect.kind == EffectKind::Placement ? CheckPlacement(effect) : Status::Ok();
		if (!placement.IsOk()) {
			return placement;
		}
	}
	for (auto &effect : entry.effects) {
		auto key = effect.object.Key();
		if (!ChangesTable(effect.kind)) {
			continue;
		}
		auto groups = core.state.placements.GroupsOf(key);
		// Rows come to the root group with a change of the definition, or with more rows than fit into a part.
		if (!std::binary_search(groups.begin(), groups.end(), group) &&
		    (decision == nullptr || !HoldsTable(*decision, key))) {
			return Status(ErrorCode::SchemaChanged, "table \"" + effect.object.ToString() +
			                                            "\" does not live in group " +
			                                            core.state.placements.NameOf(group) + "; retry");
		}
	}
	return Status::Ok();
}

Status Applier::CheckPlacement(const Effect &effect) const {
	auto change = Intact(effect);
	auto *before = core.state.placements.Of(effect.object.Key());
	if (change.request.kind == PlacementRequest::Kind::Resized && (before == nullptr || !before->IsSharded())) {
		return Status(ErrorCode::SchemaChanged,
		              "table \"" + effect.object.ToString() + "\" is not sharded any more; retry");
	}
	auto &placements = core.state.placements;
	auto is_root = change.request.kind == PlacementRequest::Kind::Root;
	auto missing = is_root ? 0 : placements.CountMissing(GroupNamesOf(change.request));
	auto count = placements.Groups().size();
	if (count + missing > GROUPS_MAX) {
		return Status(ErrorCode::InvalidArgument, "the cluster has " + std::to_string(count) + " groups, and table \"" +
		                                              effect.object.ToString() + "\" needs " + std::to_string(missing) +
		                                              " more: at most " + std::to_string(GROUPS_MAX) +
		                                              " are allowed; drop tables, or spread over fewer groups");
	}
	return Status::Ok();
}

void Applier::StageSetting(const Effect &effect, raft::LogIndex index, Staged &staged) const {
	if (effect.object.name == SETTING_CHANGES_RETENTION) {
		if (!staged.changes) {
			staged.changes.emplace(core.state.changes);
		}
		staged.changes->SetRetention(ByteReader(effect.content).GetU64(), index, core.state.last_changes);
		// Transactions that are planned from now on are known by it (ChangeFeed::Takes).
		staged.has_ddl = true;
		return;
	}
	staged.multiraft_sql = effect.content == "on";
	staged.state_rows.push_back(
	    {index, StateKind::MultiraftSql, std::string(), EncodeIndex(*staged.multiraft_sql ? 1 : 0)});
}

void Applier::StageGroups(const Effect &effect, raft::LogIndex index, Staged &staged) const {
	if (effect.kind == EffectKind::Setting) {
		StageSetting(effect, index, staged);
		return;
	}
	if (!staged.placements) {
		staged.placements = core.state.placements;
	}
	auto &placements = *staged.placements;
	auto change = Intact(effect);
	auto key = effect.object.Key();
	staged.has_ddl = true;
	staged.touched.push_back(key);
	staged.table_changes[{raft::ROOT_GROUP, key}] = index;
	if (change.request.kind == PlacementRequest::Kind::Root ||
	    (change.request.kind == PlacementRequest::Kind::Pinned && change.request.group == ROOT_GROUP_NAME)) {
		placements.Erase(key);
		staged.state_rows.push_back({index, StateKind::Placement, key, std::string()});
		return;
	}
	std::vector<raft::GroupId> changed;
	auto groups = placements.Provide(GroupNamesOf(change.request), index, change.membership, changed);
	for (auto group : changed) {
		staged.state_rows.push_back(
		    {index, StateKind::Group, EncodeIndex(group), EncodeGroupInfo(*placements.Find(group))});
		staged.state_rows.push_back({index, StateKind::NextGroup, std::string(), EncodeIndex(placements.NextId())});
	}
	auto placement = PlacementOf(change.request, placements.Of(key), std::move(groups));
	placement.epoch = index;
	staged.state_rows.push_back({index, StateKind::Placement, key, EncodePlacement(placement)});
	placements.Set(key, std::move(placement));
}

//! A placement follows its table's name and goes with it.
void Applier::StagePlacement(const Effect &effect, raft::LogIndex index, Staged &staged) const {
	if (effect.catalog_type != uint8_t(duckdb::CatalogType::TABLE_ENTRY) || effect.action == DdlAction::Create) {
		return;
	}
	auto &now = staged.placements ? *staged.placements : core.state.placements;
	auto from = effect.object.Key();
	auto *placement = now.Of(from);
	if (placement == nullptr) {
		return; // also DDL of a large transaction, of which the entry has a summary: those write to the root group
		        // alone
	}
	auto to = effect.action == DdlAction::Alter ? RenamedTo(*core.apply_context.load(), effect)
	                                            : std::optional<std::string>();
	if (effect.action == DdlAction::Alter && !to) {
		return;
	}
	staged.state_rows.push_back({index, StateKind::Placement, from, std::string()});
	if (to) {
		auto name = effect.object;
		name.name = *to;
		staged.state_rows.push_back({index, StateKind::Placement, name.Key(), EncodePlacement(*placement)});
	}
	if (!staged.placements) {
		staged.placements = core.state.placements;
	}
	if (to) {
		auto name = effect.object;
		name.name = *to;
		staged.placements->Rename(from, name.Key());
	} else {
		staged.placements->Erase(from);
	}
}

//! With the state's lock held.
void Applier::PublishGroups(Staged &staged) {
	auto &state = core.state;
	if (staged.prepared) {
		state.prepared.Prepare(staged.prepared_group, staged.prepared->first, std::move(staged.prepared->second));
	}
	if (staged.released) {
		state.prepared.Release(staged.released->first, staged.released->second);
	}
	if (staged.multiraft_sql) {
		state.is_multiraft_sql_enabled = *staged.multiraft_sql;
	}
	if (staged.placements) {
		state.placements = std::move(*staged.placements);
	}
	if (staged.changes) {
		staged.changes->Publish(state.changes);
	}
}

} // namespace catalog
} // namespace quack
