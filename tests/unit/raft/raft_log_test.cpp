//! Goal: the core's view of the log equals a plain list, whatever is appended, cut, completed and read within and
//! between steps. Method: random operations against a model; named cases for the corners.
#include "quack/common/prng.hpp"
#include "quack/raft/raft_log.hpp"
#include "unit/raft/test_cluster.hpp"

using namespace quack;
using namespace quack::raft;
using namespace quack::raft::testing;

namespace {

Entry MakeEntry(LogIndex index, Term term, size_t bytes = 3) {
	return {term, index, EntryType::Normal, MakeSharedBytes(std::string(bytes, 'x'))};
}

//! What is on disk, batch by batch: the truth that DurableIndex must never exceed.
struct DiskModel {
	std::vector<Entry> entries;
	void Write(const std::vector<Entry> &batch) {
		entries.resize(batch.front().index - 1);
		entries.insert(entries.end(), batch.begin(), batch.end());
	}
};

} // namespace

TEST_CASE("reads see the step's entries above the stored ones, and durability never runs ahead of the disk") {
	Prng prng(7);
	for (int round = 0; round < 300; round++) {
		MemoryLog stored;
		RaftLog log(stored);
		std::vector<Entry> model;
		std::deque<std::vector<Entry>> in_flight;
		DiskModel disk;
		Term term = 1;
		for (int step = 0; step < 60; step++) {
			REQUIRE(log.BeginStep().IsOk());
			for (auto appends = prng.Below(3); appends > 0; appends--) {
				LogIndex first =
				    model.size() + 1 - (prng.Chance(1, 3) ? prng.Below(std::min<size_t>(model.size(), 4) + 1) : 0);
				// Terms go back and forth, so that the same index and term may be written twice.
				term = first > 1 ? std::max<Term>(model[first - 2].term, 1 + prng.Below(3)) : 1 + prng.Below(3);
				std::vector<Entry> batch;
				for (LogIndex index = first; index <= first + prng.Below(3); index++) {
					batch.push_back(MakeEntry(index, term, prng.Below(5)));
				}
				model.resize(first - 1);
				model.insert(model.end(), batch.begin(), batch.end());
				log.Append(batch);
			}
			REQUIRE(log.LastIndex() == model.size());
			if (!model.empty()) {
				REQUIRE(log.LastTerm() == model.back().term);
				LogIndex begin = 1 + prng.Below(model.size());
				LogIndex end = begin + 1 + prng.Below(model.size() + 1 - begin);
				auto got = log.Entries(begin, end, 1 + prng.Below(20));
				REQUIRE(got.IsOk());
				REQUIRE_FALSE(got.Value().empty());
				for (auto &entry : got.Value()) {
					REQUIRE(entry.index == begin);
					bool is_same = entry.payload == model[begin - 1].payload;
					REQUIRE(is_same);
					begin++;
				}
			}
			auto batch = log.EndStep(0);
			if (!batch.empty()) {
				stored.Append(batch);
				in_flight.push_back(batch);
			}
			while (!in_flight.empty() && prng.Chance(1, 2)) {
				// The owner may tell several batches by the last one.
				auto done = in_flight.front();
				in_flight.pop_front();
				disk.Write(done);
				if (prng.Chance(2, 3)) {
					log.AppendCompleted(done.back().index, done.back().term);
				}
			}
			for (LogIndex index = 1; index <= log.DurableIndex(); index++) {
				REQUIRE(index <= disk.entries.size());
				REQUIRE(disk.entries[index - 1].payload.get() == model[index - 1].payload.get());
			}
		}
	}
}

TEST_CASE("everything is durable once every batch was reported, and at start") {
	MemoryLog stored;
	stored.Append({MakeEntry(1, 1), MakeEntry(2, 1)});
	RaftLog log(stored);
	CHECK(log.DurableIndex() == 2);
	log.Append({MakeEntry(3, 2)});
	stored.Append(log.EndStep(0));
	CHECK(log.DurableIndex() == 2);
	REQUIRE(log.BeginStep().IsOk());
	log.AppendCompleted(3, 2);
	CHECK(log.DurableIndex() == 3);
	CHECK(log.PendingBatchCount() == 0);
}

TEST_CASE("an owner that did not append a Ready is told so") {
	MemoryLog stored;
	RaftLog log(stored);
	log.Append({MakeEntry(1, 1)});
	log.EndStep(0);
	CHECK(log.BeginStep().Code() == ErrorCode::Internal);
}

TEST_CASE("the back-off search equals a walk from the right") {
	Prng prng(3);
	for (int round = 0; round < 500; round++) {
		MemoryLog stored;
		stored.start_index = prng.Below(4);
		stored.start_term = stored.start_index > 0 ? 1 + prng.Below(2) : 0;
		Term term = std::max<Term>(stored.start_term, 1);
		for (LogIndex index = stored.start_index + 1; index <= stored.start_index + prng.Below(9); index++) {
			term += prng.Below(2);
			stored.entries.push_back(MakeEntry(index, term));
		}
		for (size_t i = 0; i < stored.entries.size(); i++) {
			stored.entries[i].index = stored.start_index + 1 + i;
		}
		RaftLog log(stored);
		LogIndex from = prng.Below(14);
		Term wanted = prng.Below(7);
		LogIndex expected = std::max(stored.start_index, std::min(from, stored.LastIndex()));
		while (expected > stored.start_index && stored.TermAt(expected).Value() > wanted) {
			expected--;
		}
		CHECK(log.LastIndexUpToTerm(from, wanted) == expected);
	}
}

TEST_CASE("a compacted beginning is NotFound, its last term is known") {
	MemoryLog stored;
	stored.Append({MakeEntry(1, 1), MakeEntry(2, 1), MakeEntry(3, 2)});
	stored.Compact(2);
	RaftLog log(stored);
	CHECK(log.TermAt(0).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(log.TermAt(1).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(log.TermAt(2).Value() == 1);
	CHECK(log.TermAt(4).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(log.Entries(2, 4, 100).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(log.Matches(3, 2));
	CHECK_FALSE(log.Matches(3, 1));
	CHECK_FALSE(log.Matches(4, 2));
}
