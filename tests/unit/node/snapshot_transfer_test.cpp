//! Goal: both sides of a snapshot transfer decide rightly on whatever comes, or does not come. Method: the shelf and
//! the download hand each other their encoded calls, without threads; the test loses, repeats and bends them.
#include <doctest/doctest.h>

#include "memory_state_machine.hpp"
#include "quack/node/snapshot_download.hpp"
#include "quack/node/snapshot_shelf.hpp"

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
		return Encode(shelf.Open(download.OpenRequest(), true, now));
	}
	Result<std::string> Chunk(const SnapshotDownload &download, MonotonicNs now = 0) {
		return Encode(shelf.Chunk(download.ChunkRequest(), now));
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
			REQUIRE(!download.TakeChunk(Status(ErrorCode::DeadlineExceeded, "lost")).IsOk());
			REQUIRE(download.MayAskAgain());
			continue;
		}
		REQUIRE(download.Offset() == file.size());
		auto data = download.TakeChunk(f.Chunk(download));
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
		auto data = download.TakeChunk(f.Chunk(download));
		REQUIRE(data.IsOk());
		file += data.Value();
	}
	CHECK(test::ListState::Decode(file).Value().values.size() == 20);
	CHECK(download.Image().positions.front().meta.index == 20);
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
	CHECK(download.TakeChunk(bent).GetStatus().Code() == ErrorCode::Corruption);
	CHECK(download.MayAskAgain());
	REQUIRE(download.TakeChunk(first).IsOk());
	// The same answer once more belongs to another offset.
	CHECK(download.TakeChunk(first).GetStatus().Code() == ErrorCode::Corruption);
	CHECK(!download.MayAskAgain());
	CHECK(download.Offset() == 10);
}

TEST_CASE("a transfer ends when the image is not there any more, and after too many useless answers") {
	Fixture f;
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	f.shelf.CloseIdle(101);
	CHECK(download.TakeChunk(f.Chunk(download)).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(!download.MayAskAgain());
	auto patient = f.Download();
	REQUIRE(patient.TakeOpen(f.Open(patient)).IsOk());
	int asked = 1;
	while (!patient.TakeChunk(Status(ErrorCode::Unavailable, "no")).IsOk() && patient.MayAskAgain()) {
		asked++;
	}
	CHECK(asked == 25);
}

TEST_CASE("the log behind an open image is kept until it is idle or closed, but not for a backup") {
	Fixture f;
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == UINT64_MAX);
	auto backup = f.shelf.Open(f.Download().OpenRequest(), false, 0);
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == UINT64_MAX);
	auto download = f.Download();
	REQUIRE(download.TakeOpen(f.Open(download)).IsOk());
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == 20);
	// A chunk keeps it open.
	REQUIRE(download.TakeChunk(f.Chunk(download, 90)).IsOk());
	f.shelf.CloseIdle(150);
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == 20);
	f.shelf.Close(download.Image().image);
	CHECK(f.shelf.HeldIndex(raft::ROOT_GROUP) == UINT64_MAX);
}

TEST_CASE("a shelf holds a bounded number of images, and numbers of an earlier life name none") {
	Fixture f;
	f.shelf.NumberFrom(1000);
	std::vector<uint64_t> images;
	while (true) {
		auto answer = f.shelf.Open(f.Download().OpenRequest(), true, 0);
		if (!answer.status.IsOk()) {
			CHECK(answer.status.Code() == ErrorCode::Overloaded);
			break;
		}
		images.push_back(answer.image);
		REQUIRE(images.size() < 100);
	}
	CHECK(images.size() == 4);
	CHECK(images.front() == 1000);
	auto old = f.shelf.Chunk(Encode(wire::SnapshotChunkRequest {1, 0, 10}), 0);
	CHECK(old.status.Code() == ErrorCode::NotFound);
}
