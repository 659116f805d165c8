//! What every LogStore must do, whoever implements it. A test includes this and calls RunLogStoreSuite with a factory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "quack/storage/log_store.hpp"

namespace quack {
namespace conformance {

using storage::GroupAppend;
using storage::LogStore;

//! Where stores come from.
struct LogStoreFactory {
	//! A new, empty store.
	std::function<std::unique_ptr<LogStore>()> create;
	//! The same store after a clean end and a new start; null when nothing survives the object.
	std::function<std::unique_ptr<LogStore>(std::unique_ptr<LogStore>)> reopen;
	//! TailStart counts what lies on the disk, not the payloads alone.
	bool weighs_headers = false;
};

inline raft::Entry MakeEntry(raft::LogIndex index, raft::Term term, const std::string &payload) {
	raft::Entry entry;
	entry.term = term;
	entry.index = index;
	entry.payload = MakeSharedBytes(payload);
	return entry;
}

//! Entries [first, first + count) of one term; payloads name index and term.
inline GroupAppend MakeAppend(raft::GroupId group, raft::LogIndex first, size_t count, raft::Term term,
                              size_t payload_bytes = 0) {
	GroupAppend append;
	append.group = group;
	for (auto index = first; index < first + count; index++) {
		auto payload = "entry " + std::to_string(index) + " of term " + std::to_string(term);
		payload.resize(std::max(payload.size(), payload_bytes), '.');
		append.entries.push_back(MakeEntry(index, term, payload));
	}
	return append;
}

inline GroupAppend MakeVote(raft::GroupId group, raft::Term term, raft::NodeId voted_for, raft::LogIndex commit) {
	GroupAppend append;
	append.group = group;
	append.hard_state = raft::HardState {term, voted_for, commit};
	return append;
}

inline raft::SnapshotMeta MakeSnapshot(raft::LogIndex index, raft::Term term) {
	raft::SnapshotMeta meta;
	meta.index = index;
	meta.term = term;
	meta.membership.voters = {1, 2, 3};
	return meta;
}

//! One line per entry of the group, "index@term payload"; also checks that TermAt and Entries agree.
inline std::string Describe(LogStore &store, raft::GroupId group) {
	auto &reader = store.Reader(group);
	std::string text;
	auto entries = reader.Entries(reader.FirstIndex(), reader.LastIndex() + 1, SIZE_MAX);
	REQUIRE_MESSAGE(entries.IsOk(), entries.GetStatus().ToString());
	auto expected = reader.FirstIndex();
	for (auto &entry : entries.Value()) {
		CHECK(entry.index == expected++);
		auto term = reader.TermAt(entry.index);
		REQUIRE(term.IsOk());
		CHECK(term.Value() == entry.term);
		text += std::to_string(entry.index) + "@" + std::to_string(entry.term) + " " + *entry.payload + "\n";
	}
	CHECK(expected == reader.LastIndex() + 1);
	return text;
}

//! A function, not a macro of macros: one instance keeps the tests quick to compile.
inline void RequireOk(const Status &status, const char *expression, int line) {
	REQUIRE_MESSAGE(status.IsOk(), "line " << line << ": " << expression << ": " << status.ToString());
}

#define QUACK_REQUIRE_OK(expression) ::quack::conformance::RequireOk((expression), #expression, __LINE__)

//! Appended entries are readable at once, before any Sync, and the reader's limits are half-open and in bytes.
inline void ReadsWhatWasAppended(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(1, MakeSnapshot(0, 0)));
	auto &reader = store->Reader(1);
	CHECK(reader.FirstIndex() == 1);
	CHECK(reader.LastIndex() == 0);
	CHECK(reader.TermAt(0).Value() == 0);
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 1, 3, 1), MakeAppend(1, 4, 2, 2)}));
	CHECK(reader.LastIndex() == 5);
	CHECK(reader.TermAt(3).Value() == 1);
	CHECK(reader.TermAt(4).Value() == 2);
	CHECK(reader.TermAt(6).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(reader.Entries(2, 4, SIZE_MAX).Value().size() == 2);
	CHECK(reader.Entries(2, 2, SIZE_MAX).Value().empty());
	CHECK(reader.Entries(2, 100, SIZE_MAX).Value().size() == 4);
	CHECK(reader.Entries(6, 7, SIZE_MAX).Value().empty());
	CHECK(reader.Entries(1, 6, 0).Value().size() == 1);
	auto two = reader.Entries(1, 6, reader.Entries(1, 2, 0).Value()[0].payload->size() + 1);
	CHECK(two.Value().size() == 2);
	CHECK(reader.Entries(0, 2, SIZE_MAX).GetStatus().Code() == ErrorCode::NotFound);
	QUACK_REQUIRE_OK(store->Sync());
}

//! All entry types and payload sizes, also empty and larger than any buffer, come back bit-equal.
inline void KeepsPayloadsExactly(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(7, MakeSnapshot(0, 0)));
	GroupAppend append;
	append.group = 7;
	raft::LogIndex index = 1;
	for (size_t size : {0, 1, 7, 8, 9, 4095, 4096, 4097, 100000}) {
		std::string payload(size, '\0');
		for (size_t i = 0; i < size; i++) {
			payload[i] = static_cast<char>(i * 31 + size);
		}
		append.entries.push_back(MakeEntry(index, 1, payload));
		append.entries.back().type = static_cast<raft::EntryType>(index % 3);
		index++;
	}
	QUACK_REQUIRE_OK(store->Append({append}));
	QUACK_REQUIRE_OK(store->Sync());
	if (factory.reopen) {
		store = factory.reopen(std::move(store));
	}
	auto read = store->Reader(7).Entries(1, index, SIZE_MAX);
	QUACK_REQUIRE_OK(read.GetStatus());
	REQUIRE(read.Value().size() == append.entries.size());
	for (size_t i = 0; i < append.entries.size(); i++) {
		CHECK(*read.Value()[i].payload == *append.entries[i].payload);
		CHECK(read.Value()[i].type == append.entries[i].type);
	}
}

//! A first index at or below the last one replaces the suffix, in memory and after a restart.
inline void ReplacesSuffix(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(1, MakeSnapshot(0, 0)));
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 1, 6, 1)}));
	QUACK_REQUIRE_OK(store->Sync());
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 3, 2, 2)}));
	QUACK_REQUIRE_OK(store->Sync());
	const std::string expected = "1@1 entry 1 of term 1\n2@1 entry 2 of term 1\n3@2 entry 3 of term 2\n"
	                             "4@2 entry 4 of term 2\n";
	CHECK(Describe(*store, 1) == expected);
	if (!factory.reopen) {
		return;
	}
	store = factory.reopen(std::move(store));
	CHECK(Describe(*store, 1) == expected);
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 4, 1, 3)}));
	QUACK_REQUIRE_OK(store->Sync());
	store = factory.reopen(std::move(store));
	CHECK(store->Reader(1).LastIndex() == 4);
	CHECK(store->Reader(1).TermAt(4).Value() == 3);
}

//! What must not be written is refused before anything is written, and the log goes on.
inline void RefusesImpossibleBatches(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(1, MakeSnapshot(10, 2)));
	QUACK_REQUIRE_OK(store->Append({MakeVote(1, 3, 9, 10), MakeAppend(1, 11, 4, 3)}));
	QUACK_REQUIRE_OK(store->Append({MakeVote(1, 3, 9, 12)}));
	auto before = Describe(*store, 1);
	auto code_of = [&](const std::vector<GroupAppend> &batch) {
		return store->Append(batch).Code();
	};
	CHECK(code_of({MakeAppend(2, 1, 1, 1)}) == ErrorCode::NotFound);
	CHECK(code_of({MakeAppend(1, 16, 1, 3)}) == ErrorCode::InvalidArgument); // gap
	CHECK(code_of({MakeAppend(1, 10, 1, 3)}) == ErrorCode::InvalidArgument); // below the snapshot
	CHECK(code_of({MakeAppend(1, 12, 1, 3)}) == ErrorCode::InvalidArgument); // committed
	CHECK(code_of({MakeAppend(1, 15, 1, 2)}) == ErrorCode::InvalidArgument); // term goes back
	CHECK(code_of({MakeVote(1, 2, 9, 12)}) == ErrorCode::InvalidArgument);   // term goes back
	CHECK(code_of({MakeVote(1, 3, 8, 12)}) == ErrorCode::InvalidArgument);   // second vote
	CHECK(code_of({MakeAppend(1, 15, 1, 3), MakeAppend(1, 17, 1, 3)}) == ErrorCode::InvalidArgument); // gap in a batch
	CHECK(store->CreateGroup(1, MakeSnapshot(0, 0)).Code() == ErrorCode::AlreadyExists);
	CHECK(store->TruncatePrefix(1, MakeSnapshot(15, 3)).Code() == ErrorCode::InvalidArgument);
	CHECK(store->TruncatePrefix(1, MakeSnapshot(9, 2)).Code() == ErrorCode::InvalidArgument);
	CHECK(store->TruncatePrefix(1, MakeSnapshot(12, 2)).Code() == ErrorCode::InvalidArgument);
	CHECK(store->RemoveGroup(5).Code() == ErrorCode::NotFound);
	CHECK(store->Reset(5, MakeSnapshot(1, 1)).Code() == ErrorCode::NotFound);
	CHECK(Describe(*store, 1) == before);
	CHECK(store->GetStatus().health.IsOk());
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 13, 1, 4)}));
	CHECK(store->Reader(1).LastIndex() == 13);
}

//! TruncatePrefix moves the first index, keeps the term of the position, and survives a restart.
inline void TruncatesPrefix(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(1, MakeSnapshot(0, 0)));
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 1, 5, 1), MakeAppend(1, 6, 5, 2)}));
	QUACK_REQUIRE_OK(store->TruncatePrefix(1, MakeSnapshot(5, 1)));
	QUACK_REQUIRE_OK(store->TruncatePrefix(1, MakeSnapshot(5, 1)));
	auto check = [&] {
		auto &reader = store->Reader(1);
		CHECK(reader.FirstIndex() == 6);
		CHECK(reader.LastIndex() == 10);
		CHECK(reader.TermAt(5).Value() == 1);
		CHECK(reader.TermAt(4).GetStatus().Code() == ErrorCode::NotFound);
		CHECK(reader.Entries(5, 7, SIZE_MAX).GetStatus().Code() == ErrorCode::NotFound);
		CHECK(reader.Entries(6, 11, SIZE_MAX).Value().size() == 5);
	};
	check();
	QUACK_REQUIRE_OK(store->Sync());
	if (factory.reopen) {
		store = factory.reopen(std::move(store));
		check();
		CHECK(store->Recovered().at(0).snapshot.membership == MakeSnapshot(5, 1).membership);
	}
	QUACK_REQUIRE_OK(store->TruncatePrefix(1, MakeSnapshot(10, 2)));
	CHECK(store->Reader(1).FirstIndex() == 11);
	CHECK(store->Reader(1).LastIndex() == 10);
	CHECK(store->Reader(1).TermAt(10).Value() == 2);
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 11, 1, 2)}));
	CHECK(store->Reader(1).LastIndex() == 11);
}

//! Reset drops everything and starts again at the snapshot, forwards or backwards; the vote stays.
inline void ResetsToSnapshot(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(1, MakeSnapshot(0, 0)));
	QUACK_REQUIRE_OK(store->Append({MakeVote(1, 4, 2, 0), MakeAppend(1, 1, 5, 1)}));
	QUACK_REQUIRE_OK(store->Reset(1, MakeSnapshot(100, 4)));
	CHECK(store->Reader(1).FirstIndex() == 101);
	CHECK(store->Reader(1).LastIndex() == 100);
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 101, 2, 4)}));
	QUACK_REQUIRE_OK(store->Sync());
	if (!factory.reopen) {
		return;
	}
	store = factory.reopen(std::move(store));
	auto groups = store->Recovered();
	REQUIRE(groups.size() == 1);
	CHECK(groups[0].hard_state == raft::HardState {4, 2, 100});
	CHECK(groups[0].snapshot.index == 100);
	CHECK(groups[0].first_index == 101);
	CHECK(groups[0].last_index == 102);
}

//! Many groups share one store without seeing each other; a removed one is gone and may be created anew.
inline void SeparatesGroups(const LogStoreFactory &factory) {
	constexpr raft::GroupId GROUPS = 50;
	auto store = factory.create();
	for (raft::GroupId group = 1; group <= GROUPS; group++) {
		QUACK_REQUIRE_OK(store->CreateGroup(group, MakeSnapshot(group, 1)));
	}
	for (size_t round = 0; round < 10; round++) {
		std::vector<GroupAppend> batch;
		for (raft::GroupId group = 1; group <= GROUPS; group++) {
			batch.push_back(MakeVote(group, round + 1, group, group + round));
			auto append = MakeAppend(group, group + 1 + round, 1, round + 1);
			batch.push_back(append);
		}
		QUACK_REQUIRE_OK(store->Append(batch));
		QUACK_REQUIRE_OK(store->Sync());
	}
	QUACK_REQUIRE_OK(store->RemoveGroup(3));
	QUACK_REQUIRE_OK(store->RemoveGroup(4));
	QUACK_REQUIRE_OK(store->CreateGroup(4, MakeSnapshot(7, 7)));
	QUACK_REQUIRE_OK(store->Sync());
	if (factory.reopen) {
		store = factory.reopen(std::move(store));
		REQUIRE(store->Recovered().size() == GROUPS - 1);
		CHECK(store->Recovered()[2].group == 4);
		CHECK(store->Recovered()[2].hard_state == raft::HardState {0, 0, 7});
		CHECK(store->Recovered()[3].hard_state == raft::HardState {10, 5, 14});
	}
	CHECK(store->Reader(3).LastIndex() == 0);
	CHECK(store->Reader(4).LastIndex() == 7);
	for (raft::GroupId group = 5; group <= GROUPS; group++) {
		CHECK(store->Reader(group).LastIndex() == group + 10);
		CHECK(store->Reader(group).TermAt(group + 10).Value() == 10);
	}
}

//! TailStart names the highest index that leaves the asked bytes behind it.
inline void FindsTailStart(const LogStoreFactory &factory) {
	auto store = factory.create();
	QUACK_REQUIRE_OK(store->CreateGroup(1, MakeSnapshot(5, 1)));
	QUACK_REQUIRE_OK(store->Append({MakeAppend(1, 6, 10, 1, 100)}));
	CHECK(store->TailStart(1, 15, 0) == 15);
	CHECK(store->TailStart(1, 15, 1) == 14);
	CHECK(store->TailStart(1, 15, 100) == 14);
	CHECK(store->TailStart(1, 15, 101) == (factory.weighs_headers ? 14 : 13));
	CHECK(store->TailStart(1, 15, 400) == (factory.weighs_headers ? 12 : 11));
	CHECK(store->TailStart(1, 9, 100) == 9);
	CHECK(store->TailStart(1, 15, 1000000) == 5);
	CHECK(store->TailStart(2, 15, 0) == 0);
}

inline void RunLogStoreSuite(const LogStoreFactory &factory) {
	SUBCASE("reads what was appended") {
		ReadsWhatWasAppended(factory);
	}
	SUBCASE("keeps payloads exactly") {
		KeepsPayloadsExactly(factory);
	}
	SUBCASE("replaces the suffix") {
		ReplacesSuffix(factory);
	}
	SUBCASE("refuses impossible batches") {
		RefusesImpossibleBatches(factory);
	}
	SUBCASE("truncates the prefix") {
		TruncatesPrefix(factory);
	}
	SUBCASE("resets to a snapshot") {
		ResetsToSnapshot(factory);
	}
	SUBCASE("separates groups") {
		SeparatesGroups(factory);
	}
	SUBCASE("finds the start of a tail") {
		FindsTailStart(factory);
	}
}

} // namespace conformance
} // namespace quack
