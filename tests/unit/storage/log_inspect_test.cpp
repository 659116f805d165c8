//! Goal: what the offline tools say is what recovery would do. Method: the log that holds every kind of record, sound
//! and with one flipped bit.
#include "log_fixture.hpp"

#include "quack/storage/log_inspect.hpp"

using namespace quack;
using testing::LogFixture;

TEST_CASE("an inspection tells of every group what recovery recovers, and words for every record") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	size_t count = 0;
	auto inspected =
	    storage::InspectLog(fixture.files, testing::LOG_DIRECTORY, [&count](const storage::ScannedRecord &record) {
		    CHECK(record.crc_ok);
		    auto has_words = !storage::DescribeRecord(record).empty();
		    CHECK(has_words == (record.fields.type != storage::RecordType::RemoveGroup));
		    count++;
	    });
	REQUIRE(inspected.IsOk());
	CHECK(inspected.Value().summary.damage_count == 0);
	CHECK(inspected.Value().summary.record_count == count);
	fixture.EndProcess();
	fixture.Open();
	auto recovered = fixture.log->Recovered();
	REQUIRE(recovered.size() == inspected.Value().groups.size());
	for (size_t i = 0; i < recovered.size(); i++) {
		auto &group = inspected.Value().groups[i];
		CHECK(group.group == recovered[i].group);
		CHECK(group.hard_state.term == recovered[i].hard_state.term);
		CHECK(group.hard_state.voted_for == recovered[i].hard_state.voted_for);
		CHECK(group.snapshot.index == recovered[i].snapshot.index);
		CHECK(group.first_index == recovered[i].first_index);
		CHECK(group.last_index == recovered[i].last_index);
	}
}

TEST_CASE("an inspection goes on behind damage, counts it and keeps what came before") {
	LogFixture fixture;
	testing::WriteEveryKind(fixture);
	auto path = fixture.Segments().front();
	fixture.EndProcess();
	QUACK_REQUIRE_OK(fixture.files.EditFile(path, [](std::string &bytes) {
		bytes[storage::SEGMENT_HEADER_BYTES + 9] ^= static_cast<char>(1);
	}));
	size_t damaged = 0;
	auto inspected =
	    storage::InspectLog(fixture.files, testing::LOG_DIRECTORY, [&damaged](const storage::ScannedRecord &record) {
		    damaged += record.crc_ok ? 0 : 1;
		    CHECK((storage::DescribeRecord(record) == "damaged") == !record.crc_ok);
	    });
	REQUIRE(inspected.IsOk());
	CHECK(damaged == 1);
	CHECK(inspected.Value().summary.damage_count >= 1);
	CHECK(inspected.Value().summary.first_damage.Message().find(path) == 0);
	CHECK(fixture.TryOpen().Code() == ErrorCode::Corruption);
}

TEST_CASE("a directory without segments is no log") {
	LogFixture fixture;
	QUACK_REQUIRE_OK(fixture.files.CreateDirectory("/empty"));
	auto inspected = storage::InspectLog(fixture.files, "/empty", nullptr);
	CHECK(inspected.GetStatus().Code() == ErrorCode::NotFound);
}
