//! The conformance suite over every LogStore.
#include "conformance/log_store_suite.hpp"

#include <cstdlib>
#include <filesystem>

#include "quack/storage/memory_log_store.hpp"
#include "quack/storage/segmented_log.hpp"

using namespace quack;

namespace {

//! A new folder, removed at the end of the test.
class TemporaryFolder {
public:
	TemporaryFolder() {
		auto pattern = (std::filesystem::temp_directory_path() / "quack-log-XXXXXX").string();
		REQUIRE(::mkdtemp(&pattern[0]) != nullptr);
		path = pattern;
	}
	~TemporaryFolder() {
		std::filesystem::remove_all(path);
	}
	std::string path;
};

} // namespace

TEST_CASE("memory log store conforms") {
	conformance::LogStoreFactory factory;
	factory.create = [] {
		return std::make_unique<storage::MemoryLogStore>();
	};
	conformance::RunLogStoreSuite(factory);
}

TEST_CASE("segmented log on a real disk conforms") {
	// Small segments, so that the suite crosses segment borders; with and without a cache.
	storage::PosixFileSystem files;
	TemporaryFolder folder;
	storage::LogOptions options;
	options.directory = folder.path + "/deep/log";
	options.segment_bytes = 16 << 10;
	auto open = [&] {
		auto log = storage::OpenSegmentedLog(files, options);
		QUACK_REQUIRE_OK(log.GetStatus());
		return std::move(log.Value());
	};
	conformance::LogStoreFactory factory;
	factory.create = open;
	factory.weighs_headers = true;
	factory.reopen = [&](std::unique_ptr<storage::LogStore> store) {
		store.reset();
		return open();
	};
	SUBCASE("with a cache") {
		conformance::RunLogStoreSuite(factory);
	}
	SUBCASE("without a cache") {
		options.cache_bytes = 0;
		conformance::RunLogStoreSuite(factory);
	}
}

TEST_CASE("a second opener of the same directory is refused while the first lives") {
	storage::PosixFileSystem files;
	TemporaryFolder folder;
	storage::LogOptions options;
	options.directory = folder.path;
	options.segment_bytes = 64 << 10;
	auto first = storage::OpenSegmentedLog(files, options);
	REQUIRE(first.IsOk());
	CHECK(storage::OpenSegmentedLog(files, options).GetStatus().Code() == ErrorCode::Unavailable);
	first.Value().reset();
	CHECK(storage::OpenSegmentedLog(files, options).IsOk());
}
