#include "quack/node/apply_order.hpp"

#include <algorithm>

namespace quack {
namespace node {

namespace {

constexpr size_t ENTRY_OVERHEAD = 64;

std::string Describe(const Position &position) {
	return "index " + std::to_string(position.index) + " of group " + std::to_string(position.group);
}

bool HasRoom(const ApplyOrder::Limits &limits, size_t entries, size_t bytes, size_t cost) {
	return entries == 0 || (entries < limits.entries_max && bytes + cost <= limits.bytes_max);
}

} // namespace

std::string ApplyOrder::WaitingHead::Words() const {
	return Describe(entry) + " waits for " + Describe(need) + ", which is applied up to " + std::to_string(applied);
}

ApplyOrder::ApplyOrder(Limits limits_p, NeedsOf needs_of_p) : limits(limits_p), needs_of(std::move(needs_of_p)) {
}

size_t ApplyOrder::Cost(const raft::Entry &entry) {
	return entry.payload->size() + ENTRY_OVERHEAD;
}

void ApplyOrder::SetApplied(const std::vector<AppliedPosition> &positions) {
	for (auto &position : positions) {
		applied[position.group] = position.index;
	}
}

void ApplyOrder::SetGroups(const std::vector<GroupDefinition> &groups) {
	std::set<raft::GroupId> now;
	for (auto &group : groups) {
		now.insert(group.id);
	}
	for (auto group : existing) {
		auto queue = queues.find(group);
		if (now.count(group) != 0) {
			continue;
		}
		retired.insert(group);
		if (queue != queues.end()) {
			count -= queue->second.entries.size();
			bytes -= queue->second.bytes;
			queues.erase(queue);
		}
	}
	existing.swap(now);
}

void ApplyOrder::Push(raft::GroupId group, std::vector<raft::Entry> entries) {
	if (entries.empty() || retired.count(group) != 0) {
		return;
	}
	auto &queue = queues[group];
	auto known = queue.entries.empty() ? 0 : queue.entries.back().index;
	for (auto &entry : entries) {
		QUACK_CHECK(entry.index <= std::max(known, applied[group]) + 1, "no committed entry is left out");
		known = entry.index;
		queue.bytes += Cost(entry);
		bytes += Cost(entry);
		count++;
		queue.entries.push_back(std::move(entry));
	}
}

//! Groups that have something, the one after the last served first.
std::vector<raft::GroupId> ApplyOrder::Turns() const {
	std::vector<raft::GroupId> result;
	for (auto queue = queues.upper_bound(last_served); queue != queues.end(); ++queue) {
		result.push_back(queue->first);
	}
	for (auto queue = queues.begin(); queue != queues.end() && queue->first <= last_served; ++queue) {
		result.push_back(queue->first);
	}
	return result;
}

ApplyOrder::Batch ApplyOrder::Take() {
	Batch batch;
	reached.clear();
	auto is_moving = !queues.empty();
	while (is_moving) {
		is_moving = false;
		auto turns = Turns();
		auto share = std::max<size_t>(turns.size(), 1);
		for (auto group : turns) {
			is_moving = TakeFrom(group, {limits.bytes_max / share, limits.entries_max / share}, batch) || is_moving;
		}
	}
	for (auto &entry : reached) {
		batch.reached.push_back({entry.first, entry.second});
	}
	return batch;
}

bool ApplyOrder::TakeFrom(raft::GroupId group, const Limits &turn, Batch &batch) {
	auto &queue = queues[group];
	auto &position = applied[group];
	size_t turn_entries = 0;
	size_t turn_bytes = 0;
	auto is_moved = false;
	while (!queue.entries.empty()) {
		auto &head = queue.entries.front();
		auto cost = Cost(head);
		auto is_covered = head.index <= position;
		if (!is_covered) {
			if (!HasRoom(limits, batch.entries.size(), batch.bytes, cost) ||
			    !HasRoom(turn, turn_entries, turn_bytes, cost) || !MayGo(group, queue)) {
				break;
			}
			position = head.index;
			turn_entries++;
			turn_bytes += cost;
			batch.bytes += cost;
			batch.entries.push_back({group, head});
			last_served = group;
		}
		reached[group] = head.index;
		is_moved = true;
		Pop(queue);
	}
	if (queue.entries.empty()) {
		queues.erase(group);
	}
	return is_moved;
}

void ApplyOrder::Pop(Queue &queue) {
	auto cost = Cost(queue.entries.front());
	queue.bytes -= cost;
	bytes -= cost;
	count--;
	queue.entries.pop_front();
	queue.needs.reset();
}

bool ApplyOrder::MayGo(raft::GroupId group, Queue &queue) const {
	auto &head = queue.entries.front();
	if (!queue.needs) {
		// No-ops and memberships touch nothing that another group could have changed.
		queue.needs = head.type == raft::EntryType::Normal ? needs_of({group, head}) : std::vector<Position>();
	}
	return UnmetNeed(queue) == nullptr;
}

//! None while it is not known yet what the first entry needs.
const std::vector<Position> &ApplyOrder::NeedsIn(const Queue &queue) {
	static const std::vector<Position> none;
	return queue.needs ? *queue.needs : none;
}

//! Null when there is none, or it is not known yet what the first entry needs.
const Position *ApplyOrder::UnmetNeed(const Queue &queue) const {
	for (auto &need : NeedsIn(queue)) {
		if (!IsMet(need)) {
			return &need;
		}
	}
	return nullptr;
}

bool ApplyOrder::IsMet(const Position &need) const {
	return retired.count(need.group) != 0 || AppliedIndex(need.group) >= need.index;
}

std::vector<ApplyOrder::Held> ApplyOrder::Waiting() const {
	std::vector<Held> result;
	for (auto &entry : queues) {
		auto &queue = entry.second;
		Held held {entry.first, queue.entries.size(), queue.bytes, std::nullopt};
		auto need = UnmetNeed(queue);
		if (need != nullptr) {
			held.head = WaitingHead {{entry.first, queue.entries.front().index}, *need, AppliedIndex(need->group)};
		}
		result.push_back(held);
	}
	return result;
}

//! Depth first over "waits for something behind the first entry of". `path` ends with the group that closes the circle.
bool ApplyOrder::IsInCircle(raft::GroupId group, std::vector<raft::GroupId> &path,
                            std::set<raft::GroupId> &done) const {
	auto queue = queues.find(group);
	if (queue == queues.end() || NeedsIn(queue->second).empty() || done.count(group) != 0) {
		return false;
	}
	auto is_open = std::find(path.begin(), path.end(), group) != path.end();
	path.push_back(group);
	if (is_open) {
		return true;
	}
	for (auto &need : NeedsIn(queue->second)) {
		if (!IsMet(need) && IsInCircle(need.group, path, done)) {
			return true;
		}
	}
	path.pop_back();
	done.insert(group);
	return false;
}

Status ApplyOrder::Check() const {
	std::set<raft::GroupId> done;
	for (auto &entry : queues) {
		std::vector<raft::GroupId> path;
		if (!IsInCircle(entry.first, path, done)) {
			continue;
		}
		auto begin = std::find(path.begin(), path.end(), path.back());
		std::string words;
		for (auto group = begin; group + 1 != path.end(); ++group) {
			auto &queue = queues.at(*group);
			for (auto &need : NeedsIn(queue)) {
				if (need.group == *(group + 1) && !IsMet(need)) {
					WaitingHead waiting {{*group, queue.entries.front().index}, need, AppliedIndex(need.group)};
					words += (words.empty() ? "" : "; ") + waiting.Words();
					break;
				}
			}
		}
		return Status(ErrorCode::Internal, "committed entries wait for each other and can never be applied: " + words);
	}
	return Status::Ok();
}

raft::LogIndex ApplyOrder::AppliedIndex(raft::GroupId group) const {
	auto entry = applied.find(group);
	return entry == applied.end() ? 0 : entry->second;
}

} // namespace node
} // namespace quack
