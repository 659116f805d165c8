//! Goal: every message survives its encoding, its bytes never change between releases, and no input crashes a decoder.
//! Method: golden bytes written down here, round trips, every truncation, and seeded random bytes.
#include <doctest/doctest.h>

#include "quack/common/crc32c.hpp"
#include "quack/common/prng.hpp"
#include "quack/wire/calls.hpp"
#include "quack/wire/fields.hpp"
#include "quack/wire/hello.hpp"
#include "quack/wire/raft_codec.hpp"

using namespace quack;
using namespace quack::wire;

namespace {

std::string Hex(ByteView bytes) {
	static const char digits[] = "0123456789abcdef";
	std::string out;
	for (auto c : bytes) {
		out.push_back(digits[static_cast<unsigned char>(c) >> 4]);
		out.push_back(digits[static_cast<unsigned char>(c) & 15]);
	}
	return out;
}

raft::Message FullMessage() {
	raft::Message message;
	message.type = raft::MessageType::AppendRequest;
	message.group = 7;
	message.from = 0x1111111111111111ULL;
	message.to = 0x2222222222222222ULL;
	message.term = 3;
	message.log_index = 300;
	message.log_term = 2;
	message.commit_index = 299;
	message.reject = true;
	message.hint_index = 5;
	message.hint_term = 1;
	message.pre_vote = true;
	message.force = true;
	message.context = 1ULL << 40;
	message.entries.push_back({3, 301, raft::EntryType::Normal, MakeSharedBytes("abc")});
	message.entries.push_back({3, 302, raft::EntryType::NoOp, MakeSharedBytes("")});
	message.snapshot.index = 9;
	message.snapshot.term = 2;
	message.snapshot.membership.voters = {1, 2};
	return message;
}

void CheckEqual(const raft::Message &a, const raft::Message &b) {
	CHECK(a.type == b.type);
	CHECK(a.group == b.group);
	CHECK(a.from == b.from);
	CHECK(a.to == b.to);
	CHECK(a.term == b.term);
	CHECK(a.log_index == b.log_index);
	CHECK(a.log_term == b.log_term);
	CHECK(a.commit_index == b.commit_index);
	CHECK(a.reject == b.reject);
	CHECK(a.hint_index == b.hint_index);
	CHECK(a.hint_term == b.hint_term);
	CHECK(a.pre_vote == b.pre_vote);
	CHECK(a.force == b.force);
	CHECK(a.context == b.context);
	CHECK(a.quiet == b.quiet);
	CHECK(a.snapshot.index == b.snapshot.index);
	CHECK(a.snapshot.term == b.snapshot.term);
	CHECK(a.snapshot.membership == b.snapshot.membership);
	REQUIRE(a.entries.size() == b.entries.size());
	for (size_t i = 0; i < a.entries.size(); i++) {
		CHECK(a.entries[i].term == b.entries[i].term);
		CHECK(a.entries[i].index == b.entries[i].index);
		CHECK(a.entries[i].type == b.entries[i].type);
		CHECK(*a.entries[i].payload == *b.entries[i].payload);
	}
}

Hello SampleHello() {
	Hello hello;
	hello.cluster_id = "c1";
	hello.node_name = "n0";
	hello.node = 0x0102030405060708ULL;
	hello.incarnation = 1;
	hello.duckdb_version = "v2.0.1";
	hello.storage_version = 68;
	hello.entry_format_min = 1;
	hello.entry_format_max = 3;
	hello.capabilities = 3;
	hello.host = "h";
	hello.port = 9494;
	hello.membership = "opaque";
	hello.met = {{"n1", 17}, {"n2", UINT64_MAX}};
	return hello;
}

//! Runs every decoder; the result does not matter, only that it comes back.
void DecodeAll(ByteView bytes) {
	static_cast<void>(DecodeEnvelope(bytes).IsOk());
	static_cast<void>(DecodeHello(bytes).IsOk());
	static_cast<void>(DecodeProposeRequest(bytes).IsOk());
	static_cast<void>(DecodeProposeAnswer(bytes).IsOk());
	static_cast<void>(DecodeTransferRequest(bytes).IsOk());
	static_cast<void>(DecodeMemberRequest(bytes).IsOk());
	static_cast<void>(DecodeTextAnswer(bytes).IsOk());
	static_cast<void>(DecodeStatusAnswer(bytes).IsOk());
	static_cast<void>(DecodeSnapshotOpenRequest(bytes).IsOk());
	static_cast<void>(DecodeSnapshotOpenAnswer(bytes).IsOk());
	static_cast<void>(DecodeSnapshotChunkRequest(bytes).IsOk());
	static_cast<void>(DecodeSnapshotChunkAnswer(bytes).IsOk());
}

std::vector<std::string> Samples() {
	EnvelopeWriter envelope;
	envelope.Add(FullMessage());
	envelope.Add(FullMessage());
	ProposeRequest propose;
	propose.group = 2;
	propose.items = {{5 * NS_PER_MS, MakeSharedBytes("one")}, {0, MakeSharedBytes("")}};
	ProposeAnswer proposed;
	proposed.items = {{Status::Ok(), 17}, {Status(ErrorCode::NotLeader, "n2 leads"), 0}};
	SnapshotOpenAnswer opened;
	opened.cluster_id = "c1";
	opened.image = 5;
	opened.bytes = 1000;
	raft::Membership membership;
	membership.voters = {1, 2, 3};
	opened.positions = {{1, {40, 2, membership}}, {9, {7, 1, raft::Membership()}}};
	SnapshotChunkAnswer chunk;
	chunk.offset = 4096;
	chunk.data = "the bytes";
	chunk.crc32c = Crc32c(chunk.data);
	return {envelope.Take(),
	        EncodeHello(SampleHello()),
	        Encode(propose),
	        Encode(proposed),
	        Encode(TransferRequest {1, 42, NS_PER_SECOND}),
	        Encode(MemberRequest {1, 2, "n3", 77, "h", 9494, NS_PER_SECOND}),
	        Encode(TextAnswer {Status(ErrorCode::Overloaded, "full"), "words"}),
	        Encode(SnapshotOpenRequest {"c1", 1, 12}),
	        Encode(opened),
	        Encode(SnapshotChunkRequest {5, 4096, 65536}),
	        Encode(chunk)};
}

} // namespace

TEST_CASE("an envelope of messages comes back equal, and sizes are exact") {
	auto full = FullMessage();
	raft::Message small;
	small.type = raft::MessageType::HeartbeatResponse;
	small.group = 1;
	small.term = 1;
	EnvelopeWriter writer;
	CHECK(writer.Empty());
	writer.Add(full);
	auto first_size = writer.Size();
	CHECK(first_size == 1 + VarintSize(MessageSize(full)) + MessageSize(full));
	writer.Add(small);
	CHECK(writer.Count() == 2);
	auto decoded = DecodeEnvelope(writer.Take());
	CHECK(writer.Empty());
	REQUIRE(decoded.IsOk());
	REQUIRE(decoded.Value().size() == 2);
	CheckEqual(decoded.Value()[0], full);
	CheckEqual(decoded.Value()[1], small);
}

TEST_CASE("golden bytes: an envelope, a hello and a forwarded proposal as written by the first release") {
	auto message = FullMessage();
	message.snapshot = raft::SnapshotMeta();
	EnvelopeWriter writer;
	writer.Add(message);
	CHECK(Hex(writer.Take()) == "013c"
	                            "0401"
	                            "0807"
	                            "0e1111111111111111"
	                            "122222222222222222"
	                            "1403"
	                            "18ac02"
	                            "1c02"
	                            "20ab02"
	                            "2407"
	                            "2805"
	                            "2c01"
	                            "30808080808020"
	                            "350703ad0200616263"
	                            "350403ae0201");
	CHECK(Hex(EncodeHello(SampleHello())) == "01"
	                                         "05026331"
	                                         "09026e30"
	                                         "0e0807060504030201"
	                                         "120100000000000000"
	                                         "150676322e302e31"
	                                         "1844"
	                                         "1c01"
	                                         "2003"
	                                         "2403"
	                                         "290168"
	                                         "2c964a"
	                                         "31066f7061717565"
	                                         "350b026e311100000000000000"
	                                         "350b026e32ffffffffffffffff");
	raft::Message quiet;
	quiet.type = raft::MessageType::HeartbeatResponse;
	quiet.quiet = true;
	writer.Add(quiet);
	// A number that a reader of the first release skips, and an envelope that it takes for an empty one.
	CHECK(Hex(writer.Take()) == "010704060801800201");
	CHECK(Hex(writer.Take()) == "01");
	CHECK(DecodeEnvelope(ByteView("\1", 1)).Value().empty());
	Hello successor;
	successor.replaces = {1, UINT64_MAX};
	// A number that a reader of the first release skips.
	CHECK(Hex(EncodeHello(successor)) == "011c012001"
	                                     "8102080100000000000000"
	                                     "810208ffffffffffffffff");
	ProposeRequest propose;
	propose.group = 2;
	propose.items = {{300, MakeSharedBytes("one")}};
	CHECK(Hex(Encode(propose)) == "0104020905ac026f6e65");
	ProposeAnswer answer;
	answer.items = {{Status(ErrorCode::NotLeader, "x"), 0}, {Status::Ok(), 17}};
	CHECK(Hex(Encode(answer)) == "0105070505040809017805020811");
	CHECK(Hex(Encode(SnapshotChunkRequest {5, 4096, 65536})) == "010605000000000000000880200c808004");
}

TEST_CASE("a hello comes back equal; another hello version is refused in words") {
	auto hello = SampleHello();
	hello.replaces = {7, UINT64_MAX};
	hello.restored_from = "a backup";
	auto bytes = EncodeHello(hello);
	auto decoded = DecodeHello(bytes);
	REQUIRE(decoded.IsOk());
	CHECK(decoded.Value().cluster_id == hello.cluster_id);
	CHECK(decoded.Value().node_name == hello.node_name);
	CHECK(decoded.Value().node == hello.node);
	CHECK(decoded.Value().incarnation == 1);
	CHECK(decoded.Value().duckdb_version == hello.duckdb_version);
	CHECK(decoded.Value().storage_version == 68);
	CHECK(decoded.Value().entry_format_min == 1);
	CHECK(decoded.Value().entry_format_max == 3);
	CHECK(decoded.Value().capabilities == 3);
	CHECK(decoded.Value().replaces == hello.replaces);
	CHECK(decoded.Value().restored_from == "a backup");
	bytes[0] = 2;
	auto other = DecodeHello(bytes);
	CHECK(other.GetStatus().Code() == ErrorCode::Incompatible);
	CHECK(other.GetStatus().Message().find("version 2") != std::string::npos);
}

TEST_CASE("the fence names what differs, both values and the fix; entry formats need only overlap") {
	auto local = SampleHello();
	auto remote = SampleHello();
	remote.node_name = "n1";
	CHECK(CheckCompatible(local, remote).IsOk());
	remote.entry_format_min = 3;
	remote.entry_format_max = 5;
	CHECK(CheckCompatible(local, remote).IsOk());
	remote.entry_format_min = 4;
	auto formats = CheckCompatible(local, remote);
	CHECK(formats.Code() == ErrorCode::Incompatible);
	CHECK(formats.Message().find("1..3") != std::string::npos);
	CHECK(formats.Message().find("4..5") != std::string::npos);
	CHECK(CheckCompatible(remote, local).Code() == ErrorCode::Incompatible);
	remote = SampleHello();
	remote.duckdb_version = "v2.0.2";
	auto version = CheckCompatible(local, remote);
	CHECK(version.Message().find("'v2.0.1'") != std::string::npos);
	CHECK(version.Message().find("'v2.0.2'") != std::string::npos);
	CHECK(version.Message().find("install the same DuckDB version") != std::string::npos);
	remote = SampleHello();
	remote.storage_version = 69;
	CHECK(CheckCompatible(local, remote).Message().find("storage version") != std::string::npos);
	remote = SampleHello();
	remote.cluster_id = "c2";
	auto cluster = CheckCompatible(local, remote);
	CHECK(cluster.Message().find("'c1'") != std::string::npos);
	CHECK(cluster.Message().find("'c2'") != std::string::npos);
}

TEST_CASE("call bodies come back equal") {
	ProposeRequest propose;
	propose.group = 2;
	propose.items = {{5 * NS_PER_MS, MakeSharedBytes("one")}, {-1, MakeSharedBytes("")}};
	auto request = DecodeProposeRequest(Encode(propose));
	REQUIRE(request.IsOk());
	CHECK(request.Value().group == 2);
	REQUIRE(request.Value().items.size() == 2);
	CHECK(request.Value().items[0].timeout == 5 * NS_PER_MS);
	CHECK(*request.Value().items[0].payload == "one");
	CHECK(request.Value().items[1].timeout == 0);
	CHECK(request.Value().items[1].payload->empty());

	ProposeAnswer proposed;
	proposed.items = {{Status::Ok(), 17}, {Status(ErrorCode::OutcomeUnknown, "lost"), 0}};
	auto answer = DecodeProposeAnswer(Encode(proposed));
	REQUIRE(answer.IsOk());
	REQUIRE(answer.Value().items.size() == 2);
	CHECK(answer.Value().items[0].status.IsOk());
	CHECK(answer.Value().items[0].index == 17);
	CHECK(answer.Value().items[1].status.Code() == ErrorCode::OutcomeUnknown);
	CHECK(answer.Value().items[1].status.Message() == "lost");

	auto transfer = DecodeTransferRequest(Encode(TransferRequest {3, 42, NS_PER_SECOND}));
	REQUIRE(transfer.IsOk());
	CHECK(transfer.Value().group == 3);
	CHECK(transfer.Value().target == 42);
	CHECK(transfer.Value().timeout == NS_PER_SECOND);

	auto member = DecodeMemberRequest(Encode(MemberRequest {1, 2, "n3", 77, "h", 9494, NS_PER_SECOND}));
	REQUIRE(member.IsOk());
	CHECK(member.Value().action == 2);
	CHECK(member.Value().name == "n3");
	CHECK(member.Value().incarnation == 77);
	CHECK(member.Value().host == "h");
	CHECK(member.Value().port == 9494);
	CHECK(member.Value().timeout == NS_PER_SECOND);

	StatusAnswer said;
	said.groups = {{1, 300, 0, 0, ""}, {2, 7, 3, 4096, "waits for group 1"}};
	CHECK(Hex(Encode(said)) == "0105050401"
	                           "08ac02"
	                           "051c040208070c03108020"
	                           "1511776169747320666f722067726f75702031");
	auto heard = DecodeStatusAnswer(Encode(said));
	REQUIRE(heard.IsOk());
	REQUIRE(heard.Value().groups.size() == 2);
	CHECK(heard.Value().groups[0].applied_index == 300);
	CHECK(heard.Value().groups[1].queue_count == 3);
	CHECK(heard.Value().groups[1].queue_bytes == 4096);
	CHECK(heard.Value().groups[1].reason == "waits for group 1");
	auto text = DecodeTextAnswer(Encode(TextAnswer {Status::Ok(), "n2 leads"}));
	REQUIRE(text.IsOk());
	CHECK(text.Value().status.IsOk());
	CHECK(text.Value().text == "n2 leads");
}

TEST_CASE("snapshot bodies come back equal; a chunk whose bytes changed is refused") {
	SnapshotOpenRequest request {"c1", 4, 12};
	request.applied = {{1, 7}, {9, 300}};
	auto open = DecodeSnapshotOpenRequest(Encode(request));
	REQUIRE(open.IsOk());
	CHECK(open.Value().applied == request.applied);
	CHECK(open.Value().cluster_id == "c1");
	CHECK(open.Value().group == 4);
	CHECK(open.Value().index_min == 12);

	SnapshotOpenAnswer answer;
	answer.cluster_id = "c1";
	answer.image = 5;
	answer.bytes = 1000;
	raft::Membership membership;
	membership.voters = {1, 2, 3};
	membership.learners = {4};
	answer.positions = {{1, {40, 2, membership}}, {9, {7, 1, raft::Membership()}}};
	auto opened = DecodeSnapshotOpenAnswer(Encode(answer));
	REQUIRE(opened.IsOk());
	CHECK(opened.Value().image == 5);
	CHECK(opened.Value().bytes == 1000);
	REQUIRE(opened.Value().positions.size() == 2);
	CHECK(opened.Value().positions[0].meta.index == 40);
	CHECK(opened.Value().positions[0].meta.term == 2);
	CHECK(opened.Value().positions[0].meta.membership == membership);
	CHECK(opened.Value().positions[1].group == 9);

	SnapshotChunkAnswer chunk;
	chunk.offset = 4096;
	chunk.data = "the bytes";
	chunk.crc32c = Crc32c(chunk.data);
	auto bytes = Encode(chunk);
	auto decoded = DecodeSnapshotChunkAnswer(bytes);
	REQUIRE(decoded.IsOk());
	CHECK(decoded.Value().data == "the bytes");
	CHECK(decoded.Value().offset == 4096);
	bytes.back() = static_cast<char>(bytes.back() ^ 1);
	CHECK(DecodeSnapshotChunkAnswer(bytes).GetStatus().Code() == ErrorCode::Corruption);
}

TEST_CASE(
    "an unknown field is refused below 64 and skipped from 64 on; an unknown error code does not pass as success") {
	auto bytes = Encode(SnapshotChunkRequest {5, 4096, 65536});
	FieldWriter(bytes).PutVarint(63, 1);
	CHECK(DecodeSnapshotChunkRequest(bytes).GetStatus().Code() == ErrorCode::Incompatible);
	bytes = Encode(SnapshotChunkRequest {5, 4096, 65536});
	FieldWriter(bytes).PutBytes(64, "later");
	auto decoded = DecodeSnapshotChunkRequest(bytes);
	REQUIRE(decoded.IsOk());
	CHECK(decoded.Value().size == 65536);

	std::string status;
	FieldWriter(status).PutVarint(1, 200);
	std::string answer(1, 1);
	FieldWriter(answer).PutBytes(1, status);
	auto future_code = DecodeTextAnswer(answer);
	REQUIRE(future_code.IsOk());
	CHECK(future_code.Value().status.Code() == ErrorCode::Internal);
}

TEST_CASE("every truncation of every body either fails or is a shorter valid body, and never reads out of bounds") {
	for (auto &sample : Samples()) {
		for (size_t size = 0; size < sample.size(); size++) {
			// A copy of exact size, so that a sanitizer sees the first byte behind it.
			std::string cut(sample.data(), size);
			DecodeAll(cut);
		}
	}
	auto envelope = Samples()[0];
	for (size_t size = 2; size < envelope.size(); size++) {
		auto decoded = DecodeEnvelope(ByteView(envelope).substr(0, size));
		CHECK((!decoded.IsOk() || decoded.Value().size() == 1));
	}
}

TEST_CASE("random bytes, and valid bodies with random damage, never crash a decoder") {
	Prng prng(20140101);
	auto samples = Samples();
	for (int round = 0; round < 20000; round++) {
		std::string bytes;
		if (prng.Chance(1, 2)) {
			bytes = samples[prng.Below(samples.size())];
			for (uint64_t flips = 1 + prng.Below(4); flips > 0; flips--) {
				bytes[prng.Below(bytes.size())] = static_cast<char>(prng.Next());
			}
		} else {
			bytes.resize(prng.Below(64));
			for (auto &c : bytes) {
				c = static_cast<char>(prng.Next());
			}
			if (!bytes.empty()) {
				bytes[0] = 1; // past the version check
			}
		}
		DecodeAll(bytes);
	}
	CHECK(samples.size() == 11);
}
