//! Keeps a checkpoint whole when the power goes. DuckDB writes blocks of the catalog's file in place that the state of
//! before still needs (its metadata blocks: one of 4 KiB in use keeps the whole of 256 KiB in use), and each has one
//! checksum: torn, it takes the old state with it. So such blocks lie in a file of their own, durable, before they are
//! written to their place, and a start puts them there again. (Double write, as InnoDB does it.)
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! Of one catalog file. Any thread; Begin and Flush are called by the one that makes the checkpoint.
class BlockJournal {
public:
	using Reader = std::function<void(void *bytes, size_t size, uint64_t offset)>;
	using Writer = std::function<void(const std::string &bytes, uint64_t offset)>;

	//! `database`: path of the catalog's file.
	explicit BlockJournal(const std::string &database);
	~BlockJournal();
	BlockJournal(const BlockJournal &) = delete;
	BlockJournal &operator=(const BlockJournal &) = delete;

	//! Before a checkpoint. `offsets`: of the blocks that the file's state needs and that the checkpoint may write in
	//! place. Reserves what they may take. DiskFull, IoError.
	Status Begin(std::set<uint64_t> offsets, uint64_t block_bytes);
	//! True: the block is held back until Flush.
	bool Hold(ByteView bytes, uint64_t offset);
	bool IsHolding() const {
		return is_holding;
	}
	//! Puts what is held back over bytes that were read from the file.
	void Overlay(char *bytes, size_t size, uint64_t offset);
	//! Before a sync of the file: makes what is held back durable here, then writes it to its place.
	Status Flush(const Reader &read, const Writer &write);

	//! Before DuckDB opens the file: puts back what a checkpoint that was cut short may have torn. Does nothing while
	//! another process has the file open.
	static Status Recover(const std::string &database);
	//! What is there belongs to another file.
	static void Remove(const std::string &database);

private:
	Status Open();

	const std::string path;
	int file = -1;
	std::mutex lock; //! guards what follows
	std::set<uint64_t> offsets;
	std::map<uint64_t, std::string> held;
	std::atomic<bool> is_holding {false};
};

} // namespace catalog
} // namespace quack
