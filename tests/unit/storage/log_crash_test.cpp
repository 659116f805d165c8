//! Random histories with crashes, full disks and failing syncs, held against a model.
#include "log_model.hpp"

#include <cstdlib>

#include "quack/common/log.hpp"
#include "quack/common/prng.hpp"
#include "quack/storage/segmented_log.hpp"
#include "quack/storage/testing/fault_file_system.hpp"

using namespace quack;
using testing::LogModel;
using testing::ModelStep;

namespace {

constexpr uint64_t SEGMENT_BYTES = 16 << 10;

uint64_t SeedCount(uint64_t standard) {
	auto text = std::getenv("QUACK_STORAGE_SEEDS");
	return text ? std::strtoull(text, nullptr, 10) : standard;
}

//! One history: draws operations, runs them on the log and on the model, crashes, compares.
class History {
public:
	explicit History(uint64_t seed) : prng(seed), files(prng.Next()) {
		SetLogSink([](LogLevel, const std::string &) {}, LogLevel::Error);
		options.directory = "/log";
		options.segment_bytes = SEGMENT_BYTES;
		options.prepare_in_background = false;
		options.cache_bytes = prng.Chance(1, 2) ? 0 : prng.Below(20000);
		options.spare_segments_max = prng.Below(3);
	}

	void Run(size_t operation_count) {
		OpenAndCompare();
		for (size_t i = 0; i < operation_count; i++) {
			Step();
			if (files.IsStopped() || is_broken) {
				Crash();
			}
		}
		Crash();
	}

	uint64_t crash_count = 0;

private:
	void OpenAndCompare() {
		auto opened = storage::OpenSegmentedLog(files, options);
		while (!opened.IsOk() && (files.IsStopped() || opened.GetStatus().Code() == ErrorCode::DiskFull)) {
			files.SetCapacity(UINT64_MAX);
			files.PowerCut();
			opened = storage::OpenSegmentedLog(files, options);
		}
		REQUIRE_MESSAGE(opened.IsOk(), opened.GetStatus().ToString());
		log = std::move(opened.Value());
		auto fingerprint = testing::Fingerprint(*log);
		auto explained = model.Recover(fingerprint);
		REQUIRE_MESSAGE(explained, fingerprint << "is none of\n" << model.DescribeSurvivors());
	}

	void Crash() {
		crash_count++;
		is_broken = false;
		files.FailSyncs(0);
		files.FailWrites(0, ErrorCode::IoError);
		files.StopAfter(0);
		if (files.IsStopped() || prng.Chance(1, 2)) {
			files.PowerCut();
		} else {
			files.EndProcess();
		}
		log.reset();
		// Sometimes the power goes again in the middle of recovery.
		if (prng.Chance(1, 4)) {
			files.StopAfter(1 + prng.Below(12));
		}
		OpenAndCompare();
	}

	void Step() {
		auto draw = prng.Below(100);
		if (draw < 45) {
			StepAppend();
		} else if (draw < 70) {
			StepSync();
		} else if (draw < 78) {
			StepTruncatePrefix();
		} else if (draw < 81) {
			StepReset();
		} else if (draw < 84) {
			StepCreateOrRemove();
		} else if (draw < 90) {
			StepFault();
		} else if (draw < 93) {
			Crash();
		} else {
			CheckReader();
		}
	}

	void Note(const Status &status, const std::vector<ModelStep> &steps) {
		model.Attempt(steps, status.IsOk());
		if (!status.IsOk()) {
			auto expected = status.Code() == ErrorCode::DiskFull || status.Code() == ErrorCode::IoError;
			REQUIRE_MESSAGE(expected, status.ToString());
			CHECK(log->GetStatus().health.Code() == status.Code());
			is_broken = is_broken || status.Code() == ErrorCode::IoError;
			if (status.Code() == ErrorCode::DiskFull && prng.Chance(1, 2)) {
				files.SetCapacity(UINT64_MAX);
			}
		}
	}

	raft::GroupId AnyGroup() {
		auto skip = prng.Below(model.State().size());
		auto item = model.State().begin();
		std::advance(item, skip);
		return item->first;
	}

	//! One or two groups; hard state, entries or both; sometimes replacing a suffix above the commit index.
	void StepAppend() {
		if (model.State().empty()) {
			return StepCreateOrRemove();
		}
		std::vector<storage::GroupAppend> batch;
		std::vector<ModelStep> steps;
		auto planned = model.State();
		for (auto rounds = 1 + prng.Below(2); rounds > 0; rounds--) {
			storage::GroupAppend append;
			append.group = AnyGroup();
			auto first_step = steps.size();
			auto &group = planned.at(append.group);
			auto commit_min = std::max(group.snapshot.index, group.hard_state.commit_index);
			auto hard = group.hard_state;
			if (prng.Chance(4, 5)) {
				auto first = prng.Chance(1, 5) ? commit_min + 1 + prng.Below(group.LastIndex() - commit_min + 1)
				                               : group.LastIndex() + 1;
				hard.term = std::max(group.TermAt(first - 1), hard.term) + prng.Below(2);
				append.entries = DrawEntries(first, hard.term);
			}
			if (prng.Chance(1, 2)) {
				auto last = append.entries.empty() ? group.LastIndex() : append.entries.back().index;
				hard.voted_for = hard.term == group.hard_state.term ? hard.voted_for : prng.Below(4);
				hard.commit_index = commit_min + prng.Below(last - commit_min + 1);
				append.hard_state = hard;
				steps.push_back({ModelStep::Kind::HardState, append.group, hard});
			}
			for (auto &entry : append.entries) {
				steps.push_back({ModelStep::Kind::Entry, append.group, {}, entry});
			}
			for (auto i = first_step; i < steps.size(); i++) {
				testing::ApplyStep(planned, steps[i]);
			}
			batch.push_back(std::move(append));
		}
		Note(log->Append(batch), steps);
	}

	std::vector<raft::Entry> DrawEntries(raft::LogIndex first, raft::Term term) {
		std::vector<raft::Entry> entries;
		for (auto count = 1 + prng.Below(5); count > 0; count--) {
			auto payload_size = prng.Chance(1, 20) ? prng.Below(20000) : prng.Below(300);
			auto letter = static_cast<char>('a' + prng.Below(26));
			entries.push_back(conformance::MakeEntry(first++, term, std::string(payload_size, letter)));
		}
		return entries;
	}

	void StepSync() {
		auto status = log->Sync();
		if (status.IsOk()) {
			model.Synced(log->GetStatus().health.IsOk());
		} else {
			Note(status, {});
		}
	}

	void StepTruncatePrefix() {
		if (model.State().empty()) {
			return;
		}
		ModelStep step {ModelStep::Kind::TruncatePrefix, AnyGroup()};
		auto &group = model.State().at(step.group);
		step.snapshot.index = group.snapshot.index + prng.Below(group.entries.size() + 1);
		if (step.snapshot.index == group.snapshot.index) {
			return;
		}
		step.snapshot.term = group.TermAt(step.snapshot.index);
		step.snapshot.membership.voters.resize(prng.Below(5), 7);
		Note(log->TruncatePrefix(step.group, step.snapshot), {step});
	}

	void StepReset() {
		if (model.State().empty()) {
			return;
		}
		ModelStep step {ModelStep::Kind::Reset, AnyGroup()};
		auto &group = model.State().at(step.group);
		step.snapshot = conformance::MakeSnapshot(group.LastIndex() + prng.Below(10), group.hard_state.term);
		Note(log->Reset(step.group, step.snapshot), {step});
	}

	void StepCreateOrRemove() {
		raft::GroupId id = 1 + prng.Below(6);
		if (model.State().count(id) == 0) {
			ModelStep step {ModelStep::Kind::Create, id};
			step.snapshot = conformance::MakeSnapshot(prng.Below(3), 0);
			Note(log->CreateGroup(id, step.snapshot), {step});
		} else if (model.State().size() > 2) {
			Note(log->RemoveGroup(id), {{ModelStep::Kind::Remove, id}});
		}
	}

	void StepFault() {
		switch (prng.Below(6)) {
		case 0:
			files.FailSyncs(1);
			break;
		case 1:
			files.FailWrites(1, ErrorCode::IoError);
			break;
		case 2:
			files.FailWrites(1 + prng.Below(2), ErrorCode::DiskFull);
			break;
		case 3:
			files.SetCapacity(prng.Below(6) * SEGMENT_BYTES);
			break;
		case 4:
			files.SetCapacity(UINT64_MAX);
			Note(log->TryHeal(), {});
			break;
		default:
			files.StopAfter(1 + prng.Below(20));
		}
	}

	void CheckReader() {
		if (model.State().empty() || files.IsStopped()) {
			return;
		}
		auto id = AnyGroup();
		auto &group = model.State().at(id);
		auto &reader = log->Reader(id);
		REQUIRE(reader.LastIndex() == group.LastIndex());
		REQUIRE(reader.FirstIndex() == group.snapshot.index + 1);
		auto begin = group.snapshot.index + 1 + prng.Below(group.entries.size() + 1);
		auto read = reader.Entries(begin, begin + prng.Below(10), prng.Below(2000));
		REQUIRE_MESSAGE(read.IsOk(), read.GetStatus().ToString());
		for (auto &entry : read.Value()) {
			auto &expected = group.entries[entry.index - group.snapshot.index - 1];
			CHECK(entry.term == expected.term);
			CHECK(*entry.payload == *expected.payload);
		}
	}

	Prng prng;
	storage::FaultFileSystem files;
	storage::LogOptions options;
	std::unique_ptr<storage::LogStore> log;
	LogModel model;
	bool is_broken = false;
};

} // namespace

TEST_CASE("no crash loses a synced record or invents one") {
	// Every opening after a crash must show a state between the last Sync and the last attempted step.
	uint64_t crash_count = 0;
	for (uint64_t seed = 1; seed <= SeedCount(600); seed++) {
		CAPTURE(seed);
		History history(seed);
		history.Run(150);
		crash_count += history.crash_count;
	}
	MESSAGE("crashes survived: " << crash_count);
	CHECK(crash_count > 0);
}
