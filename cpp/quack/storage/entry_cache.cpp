#include "quack/storage/entry_cache.hpp"

#include <algorithm>

namespace quack {
namespace storage {

namespace {

//! About what the containers spend per entry.
constexpr uint64_t ENTRY_OVERHEAD_BYTES = 96;
constexpr size_t STALE_KEYS_MIN = 1024;

uint64_t Weight(const raft::Entry &entry) {
	return entry.payload->size() + ENTRY_OVERHEAD_BYTES;
}

} // namespace

void EntryCache::PopFront(Run &run) {
	bytes -= Weight(run.front());
	entry_count--;
	run.pop_front();
}

void EntryCache::PopBack(Run &run) {
	bytes -= Weight(run.back());
	entry_count--;
	run.pop_back();
}

void EntryCache::Put(raft::GroupId group, const raft::Entry &entry) {
	auto &run = runs[group];
	while (!run.empty() && run.back().index >= entry.index) {
		PopBack(run);
	}
	while (!run.empty() && run.back().index + 1 != entry.index) {
		PopFront(run);
	}
	run.push_back(entry);
	bytes += Weight(entry);
	entry_count++;
	order.push_back({group, entry.index});
	Shrink();
}

const raft::Entry *EntryCache::Find(raft::GroupId group, raft::LogIndex index) const {
	auto found = runs.find(group);
	if (found == runs.end() || found->second.empty() || index < found->second.front().index ||
	    index > found->second.back().index) {
		return nullptr;
	}
	return &found->second[index - found->second.front().index];
}

void EntryCache::DropPrefix(raft::GroupId group, raft::LogIndex index) {
	auto found = runs.find(group);
	while (found != runs.end() && !found->second.empty() && found->second.front().index <= index) {
		PopFront(found->second);
	}
}

void EntryCache::DropGroup(raft::GroupId group) {
	auto found = runs.find(group);
	if (found == runs.end()) {
		return;
	}
	while (!found->second.empty()) {
		PopFront(found->second);
	}
	runs.erase(found);
}

bool EntryCache::IsStale(const Key &key) const {
	return Find(key.group, key.index) == nullptr;
}

void EntryCache::Shrink() {
	while (bytes > bytes_max && !order.empty()) {
		DropPrefix(order.front().group, order.front().index);
		order.pop_front();
	}
	if (order.size() > 2 * entry_count + STALE_KEYS_MIN) {
		order.erase(std::remove_if(order.begin(), order.end(), [this](const Key &key) { return IsStale(key); }),
		            order.end());
	}
}

} // namespace storage
} // namespace quack
