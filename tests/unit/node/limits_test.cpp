//! Goal: what may be proposed is exactly what travels, what the log takes and what recovery takes back. Method: the
//! largest entry and one byte more, at each place alone, then the largest one through a cluster of real parts that
//! restarts.
#include <doctest/doctest.h>

#include "conformance/log_store_suite.hpp"
#include "quack/common/limits.hpp"
#include "quack/storage/log_format.hpp"
#include "quack/storage/memory_log_store.hpp"
#include "quack/storage/segmented_log.hpp"
#include "quack/storage/testing/fault_file_system.hpp"
#include "quack/wire/calls.hpp"
#include "quack/wire/raft_codec.hpp"
#include "unit/node/real_cluster.hpp"

using namespace quack;
using namespace quack::test;

namespace {

SharedBytes Payload(size_t size) {
	return MakeSharedBytes(std::string(size, 'x'));
}

raft::Entry MakeEntry(SharedBytes payload) {
	return {1, 1, raft::EntryType::Normal, std::move(payload)};
}

Status Propose(const SharedBytes &payload) {
	TestCluster cluster(1);
	cluster.StartAll();
	REQUIRE(cluster.WaitForLeader() == 0);
	return cluster.Propose(0, *payload).status;
}

Status Replicate(const SharedBytes &payload) {
	raft::Message message;
	message.type = raft::MessageType::AppendRequest;
	message.entries.push_back(MakeEntry(payload));
	wire::EnvelopeWriter writer;
	writer.Add(message);
	auto decoded = wire::DecodeEnvelope(writer.Take());
	return decoded.IsOk() ? Status::Ok() : decoded.GetStatus();
}

Status Forward(const SharedBytes &payload) {
	wire::ProposeRequest request;
	request.items.push_back({1, payload});
	auto decoded = wire::DecodeProposeRequest(wire::Encode(request));
	return decoded.IsOk() ? Status::Ok() : decoded.GetStatus();
}

Status Append(storage::LogStore &log, const SharedBytes &payload) {
	REQUIRE(log.CreateGroup(raft::ROOT_GROUP, conformance::MakeSnapshot(0, 0)).IsOk());
	storage::GroupAppend append;
	append.group = raft::ROOT_GROUP;
	append.entries.push_back(MakeEntry(payload));
	auto status = log.Append({append});
	return status.IsOk() ? log.Sync() : status;
}

Status AppendToMemory(const SharedBytes &payload) {
	storage::MemoryLogStore log;
	return Append(log, payload);
}

//! Also reads it back after the end of the process.
Status AppendToSegments(const SharedBytes &payload) {
	storage::FaultFileSystem files(1);
	storage::LogOptions options;
	options.directory = "/log";
	options.segment_bytes = 64 << 10; // far smaller than the entry
	options.prepare_in_background = false;
	options.cache_bytes = 0;
	auto log = storage::OpenSegmentedLog(files, options);
	REQUIRE(log.IsOk());
	auto status = Append(*log.Value(), payload);
	if (!status.IsOk()) {
		return status;
	}
	files.EndProcess();
	log.Value().reset();
	auto recovered = storage::OpenSegmentedLog(files, options);
	REQUIRE_MESSAGE(recovered.IsOk(), recovered.GetStatus().ToString());
	auto entries = recovered.Value()->Reader(raft::ROOT_GROUP).Entries(1, 2, SIZE_MAX);
	REQUIRE_MESSAGE(entries.IsOk(), entries.GetStatus().ToString());
	CHECK(*entries.Value()[0].payload == *payload);
	return Status::Ok();
}

//! A record that Append would refuse, but with all its checksums right.
Status Recover(const SharedBytes &payload) {
	storage::SegmentHeader header;
	header.sequence = 1;
	auto bytes = storage::EncodeSegmentHeader(header);
	storage::PendingRecord record;
	record.fields.type = storage::RecordType::Entry;
	record.fields.index = 1;
	record.body = *payload;
	storage::BatchEncoder encoder(header, bytes.size(), bytes.size(), header.crc);
	encoder.Add(record);
	for (auto &piece : encoder.Pieces()) {
		bytes.append(piece);
	}
	storage::RecordView found;
	return storage::ParseRecord(bytes, storage::SEGMENT_HEADER_BYTES, header, found)
	           ? Status::Ok()
			   : Status(ErrorCode::Corruption, "of " + std::to_string(ENTRY_BYTES_MAX));
}

//! With ThreadSanitizer a loop needs longer than an election timeout for one entry of the largest size.
void GiveTime(node::RaftEngineConfig &config) {
#ifdef __SANITIZE_THREAD__
	config.election_timeout = 4 * NS_PER_SECOND;
#else
	static_cast<void>(config);
#endif
}

} // namespace

TEST_CASE("limits: every place takes an entry of the largest size and refuses one byte more") {
	struct Place {
		const char *name;
		Status (*take)(const SharedBytes &);
	};
	const Place places[] = {{"propose", Propose},
	                        {"replicate", Replicate},
	                        {"forward", Forward},
	                        {"append to memory", AppendToMemory},
	                        {"append to segments", AppendToSegments},
	                        {"recover", Recover}};
	auto largest = Payload(ENTRY_BYTES_MAX);
	auto larger = Payload(ENTRY_BYTES_MAX + 1);
	for (auto &place : places) {
		CAPTURE(place.name);
		auto taken = place.take(largest);
		CHECK_MESSAGE(taken.IsOk(), taken.ToString());
		auto refused = place.take(larger);
		CHECK(!refused.IsOk());
		CHECK(refused.Message().find(std::to_string(ENTRY_BYTES_MAX)) != std::string::npos);
	}
}

TEST_CASE("limits: the largest entry goes through a follower to all nodes and comes back from their logs") {
	RealCluster cluster(3, GiveTime);
	cluster.StartAll();
	auto leader = cluster.WaitForLeader();
	REQUIRE(leader != SIZE_MAX);
	std::vector<std::string> values {std::string(ENTRY_BYTES_MAX, 'x')};
	auto outcome = cluster.Propose((leader + 1) % 3, values[0]);
	REQUIRE_MESSAGE(outcome.status.IsOk(), outcome.status.ToString());
	CHECK(cluster.AllHold(values));
	for (size_t node = 0; node < 3; node++) {
		cluster.Kill(node);
	}
	cluster.StartAll();
	CHECK(cluster.AllHold(values));
}
