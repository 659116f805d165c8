#include "quack/node/prepared_parts.hpp"

#include <algorithm>

namespace quack {
namespace node {

namespace {

void Forget(std::vector<TransactionId> &holders, const TransactionId &holder) {
	holders.erase(std::remove(holders.begin(), holders.end(), holder), holders.end());
}

} // namespace

void LockTable::Acquire(const TransactionId &holder, const LockSet &locks) {
	for (auto &lock : locks) {
		auto &held = tables[lock.table];
		switch (lock.kind) {
		case LockKind::SharedTable:
			held.shared.push_back(holder);
			break;
		case LockKind::WholeTable:
			held.whole.push_back(holder);
			break;
		case LockKind::Rows:
			held.writers.push_back(holder);
			for (auto row : lock.rows) {
				held.rows.emplace(row, holder);
			}
			break;
		}
	}
}

void LockTable::Release(const TransactionId &holder, const LockSet &locks) {
	for (auto &lock : locks) {
		auto entry = tables.find(lock.table);
		if (entry == tables.end()) {
			continue;
		}
		auto &held = entry->second;
		Forget(held.shared, holder);
		Forget(held.whole, holder);
		Forget(held.writers, holder);
		for (auto row : lock.rows) {
			auto locked = held.rows.find(row);
			if (locked != held.rows.end() && locked->second == holder) {
				held.rows.erase(locked);
			}
		}
		if (held.shared.empty() && held.whole.empty() && held.writers.empty()) {
			tables.erase(entry);
		}
	}
}

const TransactionId *LockTable::First(const std::vector<TransactionId> &holders, const TransactionId &self) {
	for (auto &holder : holders) {
		if (holder != self) {
			return &holder;
		}
	}
	return nullptr;
}

const TransactionId *LockTable::Clash(const Held &held, const TableLock &lock, const TransactionId &self) {
	if (auto *whole = First(held.whole, self)) {
		return whole;
	}
	if (lock.kind != LockKind::SharedTable) {
		if (auto *shared = First(held.shared, self)) {
			return shared;
		}
	}
	if (lock.kind != LockKind::Rows) {
		return First(held.writers, self);
	}
	for (auto row : lock.rows) {
		auto locked = held.rows.find(row);
		if (locked != held.rows.end() && locked->second != self) {
			return &locked->second;
		}
	}
	return nullptr;
}

std::optional<LockClash> LockTable::FindClash(const LockSet &locks, const TransactionId &self) const {
	for (auto &lock : locks) {
		auto entry = tables.find(lock.table);
		if (entry == tables.end()) {
			continue;
		}
		if (auto *holder = Clash(entry->second, lock, self)) {
			return LockClash {*holder, lock.table};
		}
	}
	return std::nullopt;
}

std::optional<LockClash> PreparedParts::Prepare(raft::GroupId group, const TransactionId &id, PreparedPart part) {
	auto &state = groups[group];
	if (state.parts.count(id) != 0) {
		return std::nullopt;
	}
	auto clash = state.locks.FindClash(part.locks, id);
	if (clash) {
		return clash;
	}
	state.locks.Acquire(id, part.locks);
	state.parts.emplace(id, std::move(part));
	return std::nullopt;
}

void PreparedParts::Restore(raft::GroupId group, const TransactionId &id, PreparedPart part) {
	auto &state = groups[group];
	state.locks.Acquire(id, part.locks);
	state.parts[id] = std::move(part);
}

const PreparedPart *PreparedParts::Find(raft::GroupId group, const TransactionId &id) const {
	auto state = groups.find(group);
	if (state == groups.end()) {
		return nullptr;
	}
	auto part = state->second.parts.find(id);
	return part == state->second.parts.end() ? nullptr : &part->second;
}

bool PreparedParts::Release(raft::GroupId group, const TransactionId &id) {
	auto state = groups.find(group);
	if (state == groups.end()) {
		return false;
	}
	auto part = state->second.parts.find(id);
	if (part == state->second.parts.end()) {
		return false;
	}
	state->second.locks.Release(id, part->second.locks);
	state->second.parts.erase(part);
	if (state->second.parts.empty()) {
		groups.erase(state);
	}
	return true;
}

std::optional<LockClash> PreparedParts::FindClash(raft::GroupId group, const LockSet &locks,
                                                  const TransactionId &self) const {
	auto state = groups.find(group);
	return state == groups.end() ? std::nullopt : state->second.locks.FindClash(locks, self);
}

bool PreparedParts::IsEmpty(raft::GroupId group) const {
	auto state = groups.find(group);
	return state == groups.end() || state->second.parts.empty();
}

size_t PreparedParts::Count() const {
	size_t count = 0;
	for (auto &group : groups) {
		count += group.second.parts.size();
	}
	return count;
}

std::vector<PreparedParts::Entry> PreparedParts::List() const {
	std::vector<Entry> list;
	for (auto &group : groups) {
		for (auto &part : group.second.parts) {
			list.push_back({group.first, part.first, part.second.index, part.second.coordinator});
		}
	}
	return list;
}

} // namespace node
} // namespace quack
