//! Goal: whatever of a checkpoint reached the disk, the blocks that it wrote in place are whole after Recover.
#include "quack/catalog/block_journal.hpp"

#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

using namespace quack;
using catalog::BlockJournal;

namespace {

constexpr size_t HEADER = 4096;
constexpr size_t BLOCK = 8192;
constexpr size_t BLOCKS = 6;

size_t BlockOffset(size_t block) {
	return 3 * HEADER + block * BLOCK;
}

//! A file with the shape of DuckDB's.
class File {
public:
	File() {
		auto name = (std::filesystem::temp_directory_path() / "quack-journal-XXXXXX").string();
		directory = mkdtemp(name.data());
		path = directory + "/cp.duckdb";
		bytes = std::string(BlockOffset(BLOCKS), '.');
		SetHeader(1, 7);
		SetHeader(2, 8);
		Save();
	}
	~File() {
		std::filesystem::remove_all(directory);
	}
	void SetHeader(size_t header, uint64_t iteration) {
		memcpy(bytes.data() + header * HEADER + 8, &iteration, sizeof(iteration));
	}
	void Save() const {
		std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
	}
	void Load() {
		bytes = Read(path);
	}
	static std::string Read(const std::string &path) {
		std::ifstream in(path, std::ios::binary);
		return {std::istreambuf_iterator<char>(in), {}};
	}
	std::string JournalPath() const {
		return path + ".journal";
	}
	//! As a checkpoint does, up to its first sync; what goes to the file stays in `bytes` only.
	void Checkpoint(BlockJournal &journal, char fill, std::vector<size_t> blocks) {
		for (auto block : blocks) {
			std::string content(BLOCK, fill);
			if (!journal.Hold(content, BlockOffset(block))) {
				bytes.replace(BlockOffset(block), BLOCK, content);
			}
		}
		auto status =
		    journal.Flush([this](void *out, size_t size, uint64_t offset) { memcpy(out, bytes.data() + offset, size); },
			              [this](const std::string &block, uint64_t offset) {
			                  bytes.replace(offset, block.size(), block);
		                  });
		REQUIRE(status.IsOk());
	}
	void Tear(size_t block) {
		bytes.replace(BlockOffset(block) + 512, 512, std::string(512, '!'));
		Save();
	}

	std::string directory;
	std::string path;
	std::string bytes;
};

void Begin(BlockJournal &journal, std::vector<size_t> blocks) {
	std::set<uint64_t> offsets;
	for (auto block : blocks) {
		offsets.insert(BlockOffset(block));
	}
	REQUIRE(journal.Begin(offsets, BLOCK).IsOk());
}

} // namespace

TEST_CASE("blocks that the old state needs are held back until the journal has them") {
	File file;
	BlockJournal journal(file.path);
	Begin(journal, {0, 2});
	CHECK(!journal.Hold(std::string(BLOCK, 'a'), BlockOffset(1)));
	CHECK(!journal.IsHolding());
	CHECK(journal.Hold(std::string(BLOCK, 'a'), BlockOffset(2)));
	CHECK(journal.IsHolding());
	// A reader sees them over what the file has, also when it asks for several blocks at once.
	std::string read(2 * BLOCK, '.');
	journal.Overlay(read.data(), read.size(), BlockOffset(1));
	CHECK(read == std::string(BLOCK, '.') + std::string(BLOCK, 'a'));
	read = std::string(BLOCK, '.');
	journal.Overlay(read.data(), read.size(), BlockOffset(2) - BLOCK / 2);
	CHECK(read == std::string(BLOCK / 2, '.') + std::string(BLOCK / 2, 'a'));
	file.Checkpoint(journal, 'b', {0});
	CHECK(!journal.IsHolding());
	CHECK(file.bytes.substr(BlockOffset(0), 3 * BLOCK) ==
	      std::string(BLOCK, 'b') + std::string(BLOCK, '.') + std::string(BLOCK, 'a'));
	// Behind the checkpoint nothing is held back any more.
	CHECK(!journal.Hold(std::string(BLOCK, 'c'), BlockOffset(2)));
}

TEST_CASE("a torn block is whole again, before and after the header of the checkpoint") {
	File file;
	BlockJournal journal(file.path);
	Begin(journal, {0, 2});
	file.Checkpoint(journal, 'a', {0, 2, 4});
	auto good = file.bytes;
	file.Tear(2);
	REQUIRE(BlockJournal::Recover(file.path).IsOk());
	file.Load();
	CHECK(file.bytes == good);
	file.SetHeader(1, 9);
	good = file.bytes;
	file.Tear(0);
	REQUIRE(BlockJournal::Recover(file.path).IsOk());
	file.Load();
	CHECK(file.bytes == good);
}

TEST_CASE("a journal that does not belong to the file's state changes nothing") {
	File file;
	BlockJournal journal(file.path);
	Begin(journal, {0});
	file.Checkpoint(journal, 'a', {0});
	SUBCASE("two checkpoints later") {
		file.SetHeader(1, 9);
		file.SetHeader(2, 10);
		file.bytes.replace(BlockOffset(0), BLOCK, std::string(BLOCK, 'z'));
	}
	SUBCASE("another file") {
		file.bytes[16] = 'x';
		file.bytes.replace(BlockOffset(0), BLOCK, std::string(BLOCK, 'z'));
	}
	file.Save();
	REQUIRE(BlockJournal::Recover(file.path).IsOk());
	CHECK(File::Read(file.path) == file.bytes);
}

TEST_CASE("a journal that was cut short anywhere changes nothing: the file was not written yet") {
	File file;
	BlockJournal journal(file.path);
	Begin(journal, {0});
	file.Checkpoint(journal, 'a', {0});
	auto whole = File::Read(file.JournalPath());
	file.bytes.replace(BlockOffset(0), BLOCK, std::string(BLOCK, '.'));
	file.Save();
	for (size_t size = 0; size < whole.size(); size += 97) {
		std::ofstream(file.JournalPath(), std::ios::binary | std::ios::trunc) << whole.substr(0, size);
		REQUIRE(BlockJournal::Recover(file.path).IsOk());
		REQUIRE(File::Read(file.path) == file.bytes);
	}
	for (size_t sector = 0; sector < whole.size(); sector += 512) {
		auto torn = whole;
		torn.replace(sector, std::min<size_t>(512, torn.size() - sector),
		             std::string(std::min<size_t>(512, torn.size() - sector), '\7'));
		std::ofstream(file.JournalPath(), std::ios::binary | std::ios::trunc) << torn;
		REQUIRE(BlockJournal::Recover(file.path).IsOk());
		REQUIRE(File::Read(file.path) == file.bytes);
	}
	std::ofstream(file.JournalPath(), std::ios::binary | std::ios::trunc) << whole;
	REQUIRE(BlockJournal::Recover(file.path).IsOk());
	CHECK(File::Read(file.path) != file.bytes);
}

TEST_CASE("a journal after a larger one is read up to its own end") {
	File file;
	BlockJournal journal(file.path);
	Begin(journal, {0, 1, 2});
	file.Checkpoint(journal, 'a', {0, 1, 2});
	file.SetHeader(1, 9);
	Begin(journal, {1});
	file.Checkpoint(journal, 'b', {1});
	auto good = file.bytes;
	file.Tear(1);
	REQUIRE(BlockJournal::Recover(file.path).IsOk());
	file.Load();
	CHECK(file.bytes == good);
}

TEST_CASE("a journal goes with the folder of its file") {
	File file;
	BlockJournal journal(file.path);
	Begin(journal, {0});
	file.Checkpoint(journal, 'a', {0});
	BlockJournal::Remove(file.path);
	Begin(journal, {0});
	file.Checkpoint(journal, 'b', {0});
	CHECK(std::filesystem::exists(file.JournalPath()));
	file.Tear(0);
	REQUIRE(BlockJournal::Recover(file.path).IsOk());
	file.Load();
	CHECK(file.bytes.substr(BlockOffset(0), BLOCK) == std::string(BLOCK, 'b'));
}
