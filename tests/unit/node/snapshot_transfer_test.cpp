//! Goal: both sides of a snapshot transfer decide rightly on whatever comes, or does not come. Method: the shelf and
//! the download hand each other their encoded calls, without threads; the test loses, repeats and bends them.
#include <filesystem>
#include <fstream>
#include <set>

#include <doctest/doctest.h>

#include "quack/common/crc32c.hpp"
#include "quack/node/incoming_file.hpp"
#include "quack/node/send_pacer.hpp"
#include "quack/node/snapshot_download.hpp"
#include "quack/node/snapshot_shelf.hpp"
#include "unit/node/test_cluster.hpp"

using namespace quack;
using namespace quack::node;

namespace {

struct Fixture {
	Fixture()
	    : machine(std::make_shared<test::ListDisk>()), shelf(config, machine, [](raft::GroupId) {
		      raft::Membership membership;
		      membership.voters = {1};
		      return membership;
	      }) {
		config.cluster_id = "c";
		config.node_id = "a";
		config.snapshot_chunk_bytes = 10;
		config.snapshot_idle_timeout = 100;
		config.snapshot_resume_timeout = 1000;
		for (raft::LogIndex index = 1; index <= 20; index++) {
			Add(index);
		}
		REQUIRE(machine.Checkpoint().IsOk());
	}
	void Add(raft::LogIndex index) {
		CommittedEntry entry;
		entry.entry = {1, index, raft::EntryType::Normal, MakeSharedBytes("value " + std::to_string(index))};
		REQUIRE(machine.Apply({entry}).IsOk());
	}
	SnapshotDownload Download(raft::LogIndex index_min = 1) {
		return SnapshotDownload(config, raft::ROOT_GROUP, index_min, "a");
	}
	Result<std::string> Open(const SnapshotDownload &download, MonotonicNs now = 0) {
		return Encode(shelf.Open(download.OpenRequest(), "b", now));
	}
	Result<std::string> Chunk(const SnapshotDownload &download, MonotonicNs now = 0) {
		return Encode(shelf.Chunk(download.ChunkRequest(), "b", now));
	}

	RaftEngineConfig config;
	test::MemoryStateMachine machine;
	SnapshotShelf shelf;
};

} // namespace

TEST_CASE("an image arrives whole, chunk by chunk, though calls are lost and asked again") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	CHECK(!download.IsComplete());
	std::string file;
	for (int round = 0; !download.IsComplete(); round++) {
		REQUIRE(round < 1000);
		if (round % 2 == 0) {
			REQUIRE(!download.TakeChunk(Status(ErrorCode::DeadlineExceeded, "lost"), 0).IsOk());
			REQUIRE(download.MayAskAgain());
			continue;
		}
		REQUIRE(download.Offset() == file.size());
		auto data = download.TakeChunk(f.Chunk(download), 0);
		REQUIRE(data.IsOk());
		file += data.Value();
	}
	CHECK(file.size() == download.Image().bytes);
	auto state = test::ListState::Decode(file);
	REQUIRE(state.IsOk());
	CHECK(state.Value().values.size() == 20);
	CHECK(f.shelf.BytesDone() == file.size());
	CHECK(f.shelf.BytesTotal() == file.size());
}

TEST_CASE("an image is the state of its opening, also when the source goes on and checkpoints") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	std::string file;
	for (raft::LogIndex index = 21; !download.IsComplete(); index++) {
		f.Add(index);
		REQUIRE(f.machine.Checkpoint().IsOk());
		auto data = download.TakeChunk(f.Chunk(download), 0);
		REQUIRE(data.IsOk());
		file += data.Value();
	}
	CHECK(test::ListState::Decode(file).Value().values.size() == 20);
	CHECK(download.Image().positions.front().meta.index == 20);
}

TEST_CASE("an image that is older in another group than the receiver's state is refused by both") {
	Fixture f;
	raft::Entry entry {1, 1, raft::EntryType::Normal, MakeSharedBytes("create 2 two")};
	entry.index = 21;
	REQUIRE(f.machine.Apply({{raft::ROOT_GROUP, entry}}).IsOk());
	entry.index = 1;
	entry.payload = MakeSharedBytes("in two");
	REQUIRE(f.machine.Apply({{2, entry}}).IsOk());
	REQUIRE(f.machine.Checkpoint().IsOk());
	auto ahead = f.Download(5);
	// Its own group counts by index_min alone, one that the image does not hold is retired there.
	ahead.NeedAtLeast({{raft::ROOT_GROUP, 500}, {2, 2}, {3, 700}});
	CHECK(ahead.TakeOpen(f.Open(ahead)).Code() == ErrorCode::Unavailable);
	auto level = f.Download(5);
	level.NeedAtLeast({{raft::ROOT_GROUP, 500}, {2, 1}, {3, 700}});
	auto offered = f.Open(level);
	CHECK(level.TakeOpen(offered).IsOk());
	CHECK(ahead.TakeOpen(offered).Code() == ErrorCode::Incompatible);
}

TEST_CASE("an image that is older than wanted is refused by the source, and by the receiver") {
	Fixture f;
	auto download = f.Download(21);
	auto refused = f.Open(download);
	CHECK(download.TakeOpen(refused).Code() == ErrorCode::Unavailable);
	auto modest = f.Download(5);
	auto offered = f.Open(modest);
	CHECK(download.TakeOpen(offered).Code() == ErrorCode::Incompatible);
	CHECK(!download.IsComplete());
}

TEST_CASE("another cluster's image is refused on both sides") {
	Fixture f;
	auto download = f.Download();
	RaftEngineConfig other = f.config;
	other.cluster_id = "d";
	SnapshotDownload stranger(other, raft::ROOT_GROUP, 1, "a");
	CHECK(stranger.TakeOpen(f.Open(stranger)).Code() == ErrorCode::Incompatible);
	CHECK(stranger.TakeOpen(f.Open(download)).Code() == ErrorCode::Incompatible);
}

TEST_CASE("a bent or misplaced chunk is not taken") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	auto first = f.Chunk(download).Value();
	auto bent = first;
	bent.back() = static_cast<char>(bent.back() ^ 1);
	CHECK(download.TakeChunk(bent, 0).GetStatus().Code() == ErrorCode::Corruption);
	CHECK(download.MayAskAgain());
	REQUIRE(download.TakeChunk(first, 0).IsOk());
	// The same answer once more belongs to another offset.
	CHECK(download.TakeChunk(first, 0).GetStatus().Code() == ErrorCode::Corruption);
	CHECK(!download.MayAskAgain());
	CHECK(download.Offset() == 10);
}

TEST_CASE("a transfer ends when the image is not there any more, and after useless answers for too long") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	f.shelf.CloseIdle(1001);
	CHECK(download.TakeChunk(f.Chunk(download), 0).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(!download.MayAskAgain());
	auto patient = f.Download();
	REQUIRE(patient.TakeOpen(f.Open(patient)).IsOk());
	auto ask = [&](MonotonicNs now) {
		return patient.TakeChunk(Status(ErrorCode::Unavailable, "no"), now).IsOk() || patient.MayAskAgain();
	};
	auto patience = f.config.snapshot_source_patience;
	CHECK(ask(7));
	CHECK(ask(7 + patience - 1));
	REQUIRE(patient.TakeChunk(f.Chunk(patient), 7 + patience).IsOk());
	CHECK(ask(8 + patience)); // a chunk that came makes it patient again
	CHECK(ask(7 + 2 * patience));
	CHECK(!ask(8 + 2 * patience));
}

TEST_CASE("the log behind an open image is kept until it is idle or closed, but not for a backup") {
	Fixture f;
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == UINT64_MAX);
	auto backup = f.shelf.Open(f.Download().OpenRequest(), SnapshotShelf::BACKUP, 0);
	CHECK(backup.status.IsOk());
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == UINT64_MAX);
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == 20);
	// A chunk keeps it open.
	REQUIRE(download.TakeChunk(f.Chunk(download, 90), 0).IsOk());
	f.shelf.CloseIdle(1050);
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == 20);
	f.shelf.Close(download.Image().image);
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == UINT64_MAX);
}

TEST_CASE("a shelf holds a bounded number of images") {
	Fixture f;
	std::set<uint64_t> images;
	while (true) {
		auto answer = f.shelf.Open(f.Download().OpenRequest(), SnapshotShelf::BACKUP, 0);
		if (!answer.status.IsOk()) {
			CHECK(answer.status.Code() == ErrorCode::Overloaded);
			break;
		}
		images.insert(answer.image);
		REQUIRE(images.size() < 100);
	}
	CHECK(images.size() == 4);
}

TEST_CASE("two receivers share one image, which stays until both have it") {
	Fixture f;
	auto first = f.Download();
	REQUIRE(first.TakeOpen(f.Open(first)).IsOk());
	f.Add(21);
	REQUIRE(f.machine.Checkpoint().IsOk());
	SnapshotDownload second(f.config, raft::ROOT_GROUP, 1, "a");
	REQUIRE(second.TakeOpen(Encode(f.shelf.Open(second.OpenRequest(), "c", 0))).IsOk());
	CHECK(second.Image().image == first.Image().image);
	// One that needs more gets another one.
	SnapshotDownload third(f.config, raft::ROOT_GROUP, 21, "a");
	REQUIRE(third.TakeOpen(Encode(f.shelf.Open(third.OpenRequest(), "d", 0))).IsOk());
	CHECK(third.Image().image != first.Image().image);
	CHECK(f.machine.RetainedSnapshots().size() == 2);
	while (!first.IsComplete()) {
		REQUIRE(first.TakeChunk(f.Chunk(first), 0).IsOk());
	}
	CHECK(f.machine.RetainedSnapshots().size() == 2);
	while (!second.IsComplete()) {
		REQUIRE(second.TakeChunk(Encode(f.shelf.Chunk(second.ChunkRequest(), "c", 50)), 0).IsOk());
	}
	CHECK(f.machine.RetainedSnapshots().size() == 1);
	f.shelf.CloseIdle(151);
	CHECK(second.TakeChunk(f.Chunk(second), 0).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(f.shelf.Transfers(151).size() == 1);
}

TEST_CASE("after a restart of the source the transfer goes on in the same image, and only in that one") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	CHECK(!download.IsResumed());
	std::string file;
	for (int i = 0; i < 3; i++) {
		file += download.TakeChunk(f.Chunk(download), 0).Value();
	}
	f.Add(21);
	REQUIRE(f.machine.Checkpoint().IsOk());
	f.shelf.CloseAll();
	SnapshotShelf reborn(f.config, f.machine, [](raft::GroupId) -> raft::Membership { return {}; });
	reborn.Begin(0);
	CHECK(reborn.HeldIndex(raft::ROOT_GROUP) == 20);
	SUBCASE("the receiver lives") {
		while (!download.IsComplete()) {
			file += download.TakeChunk(Encode(reborn.Chunk(download.ChunkRequest(), "b", 1)), 0).Value();
		}
		CHECK(test::ListState::Decode(file).Value().values.size() == 20);
		// Nobody needs it in a third life.
		CHECK(f.machine.RetainedSnapshots().empty());
	}
	SUBCASE("the receiver restarted too") {
		auto part = DecodeSnapshotPart(Encode(download.Part()));
		REQUIRE(part.IsOk());
		SnapshotDownload again(f.config, raft::ROOT_GROUP, 1, "a", part.Value());
		REQUIRE(again.TakeOpen(Encode(reborn.Open(again.OpenRequest(), "b", 1))).IsOk());
		CHECK(again.IsResumed());
		CHECK(again.Offset() == 30);
		while (!again.IsComplete()) {
			file += again.TakeChunk(Encode(reborn.Chunk(again.ChunkRequest(), "b", 1)), 0).Value();
		}
		CHECK(test::ListState::Decode(file).Value().values.size() == 20);
		CHECK(again.Part().crc32c == Crc32c(file));
		CHECK(reborn.Transfers(1).front().resumed_count == 1);
	}
	SUBCASE("the image is too old by now") {
		SnapshotDownload again(f.config, raft::ROOT_GROUP, 21, "a", download.Part());
		REQUIRE(again.TakeOpen(Encode(reborn.Open(again.OpenRequest(), "b", 1))).IsOk());
		CHECK(!again.IsResumed());
		CHECK(again.Offset() == 0);
	}
	SUBCASE("nobody asked for too long") {
		reborn.CloseIdle(1001);
		CHECK(f.machine.RetainedSnapshots().empty());
		SnapshotDownload only(f.config, raft::ROOT_GROUP, 1, "a", download.Part(), true);
		CHECK(only.TakeOpen(Encode(reborn.Open(only.OpenRequest(), "b", 1001))).Code() == ErrorCode::NotFound);
		SnapshotDownload again(f.config, raft::ROOT_GROUP, 1, "a", download.Part());
		REQUIRE(again.TakeOpen(Encode(reborn.Open(again.OpenRequest(), "b", 1001))).IsOk());
		CHECK(!again.IsResumed());
		CHECK(again.Image().image != download.Image().image);
	}
}

TEST_CASE("a peer that gives one id to two images is not resumed from") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	REQUIRE(download.TakeChunk(f.Chunk(download), 0).IsOk());
	auto part = download.Part();
	part.image.bytes++;
	SnapshotDownload again(f.config, raft::ROOT_GROUP, 1, "a", part);
	REQUIRE(again.TakeOpen(f.Open(again)).IsOk());
	CHECK(!again.IsResumed());
}

TEST_CASE("a server may answer less than was asked for, not nothing and not more") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	auto piece = download.TakeChunk(Encode(f.shelf.Chunk(download.ChunkRequest(), "b", 0, 3)), 0);
	REQUIRE(piece.IsOk());
	CHECK(piece.Value().size() == 3);
	CHECK(download.Offset() == 3);
	wire::SnapshotChunkAnswer empty;
	empty.offset = 3;
	CHECK(download.TakeChunk(Encode(empty), 0).GetStatus().Code() == ErrorCode::Corruption);
	CHECK(download.Offset() == 3);
}

TEST_CASE("the record of a part does not bear a bent or a missing byte") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	REQUIRE(download.TakeChunk(f.Chunk(download), 0).IsOk());
	auto record = Encode(download.Part());
	auto read = DecodeSnapshotPart(record);
	REQUIRE(read.IsOk());
	CHECK(read.Value().offset == 10);
	CHECK(read.Value().source == "a");
	CHECK(read.Value().image.positions.front().meta.index == 20);
	for (size_t i = 0; i < record.size(); i++) {
		auto bent = record;
		bent[i] = static_cast<char>(bent[i] ^ 4);
		CHECK(!DecodeSnapshotPart(bent).IsOk());
		CHECK(!DecodeSnapshotPart(ByteView(record).substr(0, i)).IsOk());
	}
}

TEST_CASE("the pace is kept over any number of pieces, and time that passed unused is not made up for") {
	SendPacer unlimited(0);
	unlimited.Sent(1 << 30, 5);
	CHECK(unlimited.Wait(5) == 0);
	CHECK(SendPacer(1).PieceBytesMax() == 1);
	SendPacer pacer(1000);
	MonotonicNs now = 7 * NS_PER_SECOND;
	uint64_t sent = 0;
	auto begun = now;
	while (now < begun + 10 * NS_PER_SECOND) {
		if (pacer.Wait(now) == 0) {
			pacer.Sent(125, now);
			sent += 125;
		}
		now += NS_PER_MS;
	}
	CHECK(sent >= 9900);
	CHECK(sent <= 10125);
	now += 100 * NS_PER_SECOND;
	CHECK(pacer.Wait(now) == 0);
	pacer.Sent(2000, now);
	CHECK(pacer.Wait(now) == 2 * NS_PER_SECOND);
}

TEST_CASE("what came survives the receiver's process as far as its record counts it, and nothing else does") {
	test::TemporaryDirectory directory;
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	std::string file;
	auto take = [&](IncomingFile &incoming, MonotonicNs now) {
		auto data = download.TakeChunk(f.Chunk(download), 0);
		REQUIRE(data.IsOk());
		file += data.Value();
		REQUIRE(incoming.Write(data.Value(), download.Part(), now).IsOk());
	};
	{
		IncomingFile incoming(directory.path + "/incoming");
		REQUIRE(incoming.Sweep().IsOk());
		CHECK(!incoming.Load());
		REQUIRE(incoming.Begin(download.Part()).IsOk());
		take(incoming, NS_PER_SECOND);
		take(incoming, 2 * NS_PER_SECOND); // written down: a second has passed
		take(incoming, 2 * NS_PER_SECOND + 1);
	}
	std::ofstream(directory.path + "/incoming/incoming-snapshot-5") << "of another one";
	IncomingFile again(directory.path + "/incoming");
	REQUIRE(again.Sweep().IsOk());
	CHECK(!std::filesystem::exists(directory.path + "/incoming/incoming-snapshot-5"));
	auto path = again.Path(download.Part());
	CHECK(std::filesystem::file_size(path) == 30);
	SUBCASE("resumed behind what is counted") {
		auto part = again.Load();
		REQUIRE(part);
		CHECK(part->offset == 20);
		SnapshotDownload resumed(f.config, raft::ROOT_GROUP, 1, "a", part);
		REQUIRE(resumed.TakeOpen(f.Open(resumed)).IsOk());
		REQUIRE(again.Begin(resumed.Part()).IsOk());
		CHECK(std::filesystem::file_size(path) == 20);
	}
	SUBCASE("a bent byte") {
		std::fstream(path) << "?";
		CHECK(!again.Load());
		CHECK(!std::filesystem::exists(path));
	}
	SUBCASE("bytes are missing") {
		std::filesystem::resize_file(path, 19);
		CHECK(!again.Load());
	}
	SUBCASE("the file is gone: the image was installed") {
		std::filesystem::remove(path);
		CHECK(!again.Load());
		CHECK(std::filesystem::is_empty(directory.path + "/incoming"));
	}
	SUBCASE("the record is torn") {
		std::filesystem::resize_file(directory.path + "/incoming/incoming-snapshot.part", 30);
		CHECK(!again.Load());
		CHECK(!std::filesystem::exists(path));
	}
}
