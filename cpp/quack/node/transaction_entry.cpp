#include "quack/node/transaction_entry.hpp"

#include <algorithm>

namespace quack {
namespace node {

namespace {

void PutPosition(ByteWriter &out, const Position &position) {
	out.PutVarint(position.group);
	out.PutVarint(position.index);
}

Position GetPosition(ByteReader &in) {
	Position position;
	position.group = in.GetVarint();
	position.index = in.GetVarint();
	return position;
}

Status Malformed(const std::string &what) {
	return Status(ErrorCode::Corruption, "an entry of a transaction over several groups is malformed: " + what);
}

} // namespace

void AddLock(LockSet &locks, TableLock lock) {
	auto place = std::lower_bound(locks.begin(), locks.end(), lock.table,
	                              [](const TableLock &held, const std::string &table) { return held.table < table; });
	std::sort(lock.rows.begin(), lock.rows.end());
	lock.rows.erase(std::unique(lock.rows.begin(), lock.rows.end()), lock.rows.end());
	if (place == locks.end() || place->table != lock.table) {
		locks.insert(place, std::move(lock));
		return;
	}
	if (place->kind == lock.kind) {
		std::vector<uint64_t> both;
		std::set_union(place->rows.begin(), place->rows.end(), lock.rows.begin(), lock.rows.end(),
		               std::back_inserter(both));
		place->rows = std::move(both);
		return;
	}
	// Reading a table as a whole and writing rows of it leaves nothing for others.
	place->kind = LockKind::WholeTable;
	place->rows.clear();
}

void PutLocks(ByteWriter &out, const LockSet &locks) {
	out.PutVarint(locks.size());
	for (auto &lock : locks) {
		out.PutBytes(lock.table);
		out.PutU8(static_cast<uint8_t>(lock.kind));
		out.PutVarint(lock.rows.size());
		for (auto row : lock.rows) {
			out.PutU64(row);
		}
	}
}

LockSet GetLocks(ByteReader &in) {
	LockSet locks;
	auto count = in.GetVarint();
	for (uint64_t i = 0; i < count && !in.Failed(); i++) {
		TableLock lock;
		lock.table = std::string(in.GetBytes());
		lock.kind = static_cast<LockKind>(in.GetU8());
		auto rows = in.GetVarint();
		auto bytes = in.GetRaw(rows > in.Remaining() / sizeof(uint64_t) ? in.Remaining() + 1 : rows * sizeof(uint64_t));
		ByteReader values(bytes);
		while (values.Remaining() > 0) {
			lock.rows.push_back(values.GetU64());
		}
		locks.push_back(std::move(lock));
	}
	return locks;
}

std::string EncodeTransactionEntry(const TransactionEntry &entry) {
	std::string bytes;
	ByteWriter out(bytes);
	out.PutU16(TRANSACTION_ENTRY_VERSION);
	out.PutU8(static_cast<uint8_t>(entry.kind));
	out.PutRaw(ByteView(reinterpret_cast<const char *>(entry.id.data()), entry.id.size()));
	out.PutVarint(entry.planned_version);
	out.PutVarint(entry.coordinator);
	out.PutVarint(entry.prepares.size());
	for (auto &position : entry.prepares) {
		PutPosition(out, position);
	}
	PutPosition(out, entry.decided);
	PutLocks(out, entry.locks);
	out.PutBytes(entry.body);
	return bytes;
}

bool IsTransactionEntry(ByteView payload) {
	ByteReader in(payload);
	return in.GetU16() == TRANSACTION_ENTRY_VERSION && !in.Failed();
}

Result<TransactionEntry> DecodeTransactionEntry(ByteView payload) {
	ByteReader in(payload);
	if (in.GetU16() != TRANSACTION_ENTRY_VERSION) {
		return Malformed("it begins with another version");
	}
	TransactionEntry entry;
	entry.kind = static_cast<TransactionEntryKind>(in.GetU8());
	auto id = in.GetRaw(entry.id.size());
	std::copy(id.begin(), id.end(), entry.id.begin());
	entry.planned_version = in.GetVarint();
	entry.coordinator = in.GetVarint();
	auto count = in.GetVarint();
	for (uint64_t i = 0; i < count && !in.Failed(); i++) {
		entry.prepares.push_back(GetPosition(in));
	}
	entry.decided = GetPosition(in);
	entry.locks = GetLocks(in);
	entry.body = in.GetBytes();
	if (!in.Done()) {
		return Malformed("it is cut short, or bytes follow its end");
	}
	if (entry.kind < TransactionEntryKind::Prepare || entry.kind > TransactionEntryKind::Release) {
		return Status(ErrorCode::Incompatible, "an entry of a transaction over several groups has kind " +
		                                           std::to_string(static_cast<int>(entry.kind)) +
		                                           ", which this version does not know: upgrade this node");
	}
	for (auto &lock : entry.locks) {
		if (lock.kind > LockKind::WholeTable) {
			return Malformed("a lock on \"" + lock.table + "\" has an unknown kind");
		}
	}
	return entry;
}

std::vector<Position> NeedsOf(const TransactionEntry &entry, raft::GroupId group) {
	std::vector<Position> needs;
	auto add = [&](const Position &position) {
		if (position.group != group && position.index != 0) {
			needs.push_back(position);
		}
	};
	switch (entry.kind) {
	case TransactionEntryKind::Prepare:
		add({raft::ROOT_GROUP, entry.planned_version});
		break;
	case TransactionEntryKind::Decision:
		add({raft::ROOT_GROUP, entry.planned_version});
		for (auto &prepare : entry.prepares) {
			add(prepare);
		}
		break;
	case TransactionEntryKind::Release:
		add(entry.decided);
		break;
	}
	return needs;
}

} // namespace node
} // namespace quack
