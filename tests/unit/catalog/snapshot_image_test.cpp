//! Goal: an image is a faithful copy that goes with its object, or, retained, is found again by the next process, and
//! only what is surely still the same is found. Method: small files in a folder of their own.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "quack/catalog/snapshot_image.hpp"

using namespace quack;
namespace fs = std::filesystem;

namespace {

struct Folder {
	Folder() {
		auto pattern = (fs::temp_directory_path() / "quack-image-XXXXXX").string();
		path = mkdtemp(pattern.data());
		origin = {(path / "cp.duckdb").string(), "c"};
		content.resize(20 * 1024 * 1024 + 17);
		for (size_t i = 0; i < content.size(); i++) {
			content[i] = static_cast<char>(i * 31 + i / 4096);
		}
		std::ofstream(origin.catalog_path, std::ios::binary) << content;
		file = open(origin.catalog_path.c_str(), O_RDONLY | O_CLOEXEC);
		REQUIRE(file >= 0);
	}
	~Folder() {
		close(file);
		std::error_code ignored;
		fs::remove_all(path, ignored);
	}
	std::unique_ptr<node::StateMachine::SnapshotImage> Copy() {
		node::AppliedPosition position;
		position.index = 7;
		position.term = 3;
		position.membership.voters = {1, 2};
		auto image = catalog::CopyToImage(origin, file, content.size(), {position});
		REQUIRE(image.IsOk());
		return std::move(image.Value());
	}
	//! As the process would leave it that dies now.
	void Leave() {
		auto image = Copy();
		REQUIRE(image->Retain(true).IsOk());
	}
	std::vector<fs::path> Files() {
		std::vector<fs::path> files;
		for (auto &entry : fs::directory_iterator(path)) {
			if (entry.path() != origin.catalog_path) {
				files.push_back(entry.path());
			}
		}
		return files;
	}
	fs::path Record() {
		for (auto &name : Files()) {
			if (name.extension() == ".kept") {
				return name;
			}
		}
		return {};
	}

	fs::path path;
	catalog::ImageOrigin origin;
	std::string content;
	int file = -1;
};

} // namespace

TEST_CASE("an image holds the bytes, and takes its file with it") {
	Folder folder;
	auto image = folder.Copy();
	CHECK(image->Bytes() == folder.content.size());
	CHECK(image->Read(0, folder.content.size()).Value() == folder.content);
	CHECK(image->Read(folder.content.size() - 5, 100).Value() == folder.content.substr(folder.content.size() - 5));
	CHECK(image->Read(folder.content.size() + 5, 100).Value().empty());
	auto other = folder.Copy();
	CHECK(image->Id() != other->Id());
	CHECK(folder.Files().size() == 2);
	image.reset();
	other.reset();
	CHECK(folder.Files().empty());
}

TEST_CASE("a retained image is found by the next process, under its id and at its position") {
	Folder folder;
	auto image = folder.Copy();
	auto id = image->Id();
	auto leftover = folder.Copy();
	REQUIRE(image->Retain(true).IsOk());
	image.reset();
	std::ofstream(folder.origin.catalog_path + ".snapshot.5") << "of a copy that was cut";
	auto found = catalog::FindRetainedImages(folder.origin);
	REQUIRE(found.size() == 1);
	CHECK(found.front()->Id() == id);
	CHECK(found.front()->Bytes() == folder.content.size());
	REQUIRE(found.front()->Positions().size() == 1);
	CHECK(found.front()->Positions().front().index == 7);
	CHECK(found.front()->Positions().front().term == 3);
	CHECK(found.front()->Positions().front().membership.voters == std::vector<raft::NodeId> {1, 2});
	CHECK(found.front()->Read(0, folder.content.size()).Value() == folder.content);
	// The rest went; this one stays until somebody says that it is of no use any more.
	CHECK(folder.Files().size() == 2);
	found.clear();
	CHECK(folder.Files().size() == 2);
	found = catalog::FindRetainedImages(folder.origin);
	REQUIRE(found.size() == 1);
	REQUIRE(found.front()->Retain(false).IsOk());
	found.clear();
	CHECK(folder.Files().empty());
}

TEST_CASE("what is not surely the retained image is removed") {
	Folder folder;
	folder.Leave();
	auto record = folder.Record();
	REQUIRE(!record.empty());
	auto image = fs::path(record).replace_extension();
	auto origin = folder.origin;
	SUBCASE("the record is bent") {
		std::fstream(record, std::ios::in | std::ios::out | std::ios::binary).seekp(9).put('?');
	}
	SUBCASE("the record is torn") {
		fs::resize_file(record, fs::file_size(record) - 1);
	}
	SUBCASE("the image is shorter") {
		fs::resize_file(image, 100);
	}
	SUBCASE("the image is gone") {
		fs::remove(image);
	}
	SUBCASE("it is older than a day") {
		fs::last_write_time(record, fs::last_write_time(record) - std::chrono::hours(25));
	}
	SUBCASE("it is of another cluster") {
		origin.cluster_id = "d";
	}
	CHECK(catalog::FindRetainedImages(origin).empty());
	CHECK(folder.Files().empty());
}

TEST_CASE("a file that is too short to be copied leaves nothing behind") {
	Folder folder;
	CHECK(!catalog::CopyToImage(folder.origin, folder.file, folder.content.size() + 1, {}).IsOk());
	CHECK(folder.Files().empty());
}
