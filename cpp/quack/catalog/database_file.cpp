#include "quack/catalog/database_file.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/storage/block_allocator.hpp"
#include "duckdb/storage/block_manager.hpp"
#include "duckdb/storage/buffer_manager.hpp"
#include "duckdb/storage/storage_manager.hpp"
#include "quack/catalog/detached.hpp"
#include "quack/catalog/file_calls.hpp"
#include "quack/catalog/meta_store.hpp"
#include "quack/catalog/private_access.hpp"
#include "quack/catalog/query_rows.hpp"
#include "quack/catalog/replicated_catalog.hpp"
#include "quack/catalog/replicated_transaction_manager.hpp"
#include "quack/catalog/scratch_database.hpp"
#include "quack/catalog/snapshot_image.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

//! Main header and two that a checkpoint writes by turns.
constexpr off_t FILE_HEADERS_BYTES = 3 * 4096;
//! In the main header, behind its checksum.
constexpr off_t FILE_MAGIC_OFFSET = 8;
constexpr char FILE_MAGIC[] = {'D', 'U', 'C', 'K'};
//! See CheckpointBytesMax.
constexpr uint64_t CHECKPOINT_MARGIN_BYTES = 8 * 1024 * 1024;
constexpr uint64_t STAT_BLOCK_BYTES = 512; // of st_blocks, whatever the file system's own are
//! One call waits this long for the checkpoint lock: the applier and new transactions wait too.
constexpr MonotonicNs CHECKPOINT_WAIT = 100 * NS_PER_MS;
//! The last checkpoint of a node disturbs nobody.
constexpr MonotonicNs LAST_CHECKPOINT_WAIT = 2 * NS_PER_SECOND;

//! What DuckDB says of a file: Corruption only when the bytes are to blame, not the system they lie on.
Status DescribeFailure(const std::exception &exception) {
	duckdb::ErrorData error(exception);
	auto &extra = error.ExtraInfo();
	auto number = extra.find("errno");
	auto code = ErrorCode::IoError;
	switch (error.Type()) {
	case duckdb::ExceptionType::DATA_CORRUPTION:
	case duckdb::ExceptionType::SERIALIZATION:
	case duckdb::ExceptionType::INTERNAL:
	case duckdb::ExceptionType::FATAL:
		code = ErrorCode::Corruption;
		break;
	case duckdb::ExceptionType::IO:
		if (number != extra.end()) {
			auto value = std::strtol(number->second.c_str(), nullptr, 10);
			code = value == ENOSPC || value == EDQUOT ? ErrorCode::DiskFull : ErrorCode::IoError;
		} else if (error.RawMessage().find("storage version number") != std::string::npos) {
			code = ErrorCode::Incompatible;
		} else if (error.RawMessage().find("lock on file") == std::string::npos) {
			code = ErrorCode::Corruption;
		}
		break;
	default:
		break;
	}
	return Status(code, error.Message());
}

Status RunSql(duckdb::Connection &connection, const std::string &sql) {
	try {
		QueryRows(connection, sql);
		return Status::Ok();
	} catch (std::exception &exception) {
		return DescribeFailure(exception);
	}
}

//! DuckDB checks a block when it reads it, which may be long after the damage: here every one that the last checkpoint
//! uses is read once. Throws what DuckDB throws.
void ReadAllBlocks(duckdb::AttachedDatabase &database) {
	auto &storage = database.GetStorageManager().Cast<duckdb::SingleFileStorageManager>();
	auto &blocks = storage.block_manager->Cast<duckdb::SingleFileBlockManager>();
	auto &free_blocks = FreeBlocksOf(blocks);
	duckdb::Block block(duckdb::BlockAllocator::Get(database), 0, blocks);
	auto count = static_cast<duckdb::block_id_t>(blocks.TotalBlocks());
	for (duckdb::block_id_t id = 0; id < count; id++) {
		if (free_blocks.count(id) == 0) {
			block.id = id;
			blocks.ReadBlock(block);
		}
	}
}

Status CheckIdentity(const LoadedMeta &meta, const std::string &cluster_id, const std::string &path) {
	if (meta.format != FILE_FORMAT_VERSION) {
		return Status(ErrorCode::Incompatible, "catalog file '" + path + "' has format version " +
		                                           std::to_string(meta.format) + ", this node understands version " +
		                                           std::to_string(FILE_FORMAT_VERSION));
	}
	if (meta.cluster_id != cluster_id) {
		return Status(ErrorCode::Incompatible, "catalog file '" + path + "' belongs to cluster '" + meta.cluster_id +
		                                           "', this node is of cluster '" + cluster_id +
		                                           "'; give the node its own data directory");
	}
	return Status::Ok();
}

std::vector<node::AppliedPosition> PositionsOf(const ReplicatedState &state) {
	std::vector<node::AppliedPosition> positions;
	for (auto &position : state.positions) {
		positions.push_back(position.second);
	}
	return positions;
}

void AdoptState(ReplicaCore &core, ReplicatedState state) {
	std::lock_guard<std::mutex> guard(core.state_lock);
	core.state = std::move(state);
	core.durable = PositionsOf(core.state);
	core.PublishCopies();
}

Status LoadOrCreateMeta(ReplicaCore &core) {
	duckdb::Connection connection(core.instance);
	SessionState::Get(*connection.context).SetConsistency(Consistency::Eventual);
	auto loaded = LoadMeta(connection);
	if (loaded.IsOk()) {
		auto status = CheckIdentity(loaded.Value(), core.options.cluster_id, core.options.path);
		if (status.IsOk()) {
			AdoptState(core, std::move(loaded.Value().state));
		}
		return status;
	}
	auto tables = QueryRows(connection, "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'cp'");
	if (tables[0][0].GetValue<int64_t>() != 0) {
		return Status(ErrorCode::Incompatible, "'" + core.options.path +
		                                           "' is a DuckDB database that was not written "
		                                           "by a node; give the node its own data directory");
	}
	CreateMetaTables(core);
	return WriteCheckpoint(core);
}

using CheckpointKey = duckdb::unique_ptr<duckdb::StorageLockKey>;

//! Counts a copy under way.
class CopyScope {
public:
	explicit CopyScope(std::atomic<int> &count_p) : count(count_p) {
		count++;
	}
	~CopyScope() {
		count--;
	}
	CopyScope(const CopyScope &) = delete;
	CopyScope &operator=(const CopyScope &) = delete;

private:
	std::atomic<int> &count;
};

CheckpointKey TryLock(duckdb::AttachedDatabase &database, MonotonicNs wait) {
	auto &manager = duckdb::DuckTransactionManager::Get(database);
	SystemClock clock;
	auto end = clock.Now() + wait;
	for (;;) {
		auto key = manager.TryGetCheckpointLock();
		if (key || clock.Now() > end) {
			return key;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(2));
	}
}

//! Aborts what was open for longer than the patience allows; at the end of the node, everything.
size_t EvictForCheckpoint(ReplicaCore &core, duckdb::AttachedDatabase &database) {
	Status reason(ErrorCode::Conflict, "the transaction was open for so long that it blocked a checkpoint; retry");
	auto now = SystemClock().Now();
	EvictionScope writers;
	EvictionScope all;
	all.readers_too = true;
	if (!core.closing) {
		writers.opened_before = std::max<MonotonicNs>(now - core.options.checkpoint_writer_patience, 1);
		all.opened_before = std::max<MonotonicNs>(now - core.options.checkpoint_reader_patience, 1);
	}
	auto evicted = core.transactions.Evict(database, writers, reason) + core.transactions.Evict(database, all, reason);
	core.local_evictions += evicted;
	return evicted;
}

//! The exclusive checkpoint lock. Open writers hold it shared; so do committed updates that an open reader's snapshot
//! does not see yet. Short transactions end by themselves while the gate is closed.
Result<CheckpointKey> LockForCheckpoint(ReplicaCore &core, duckdb::AttachedDatabase &database) {
	auto key = TryLock(database, core.closing ? 0 : CHECKPOINT_WAIT);
	if (!key && EvictForCheckpoint(core, database) > 0) {
		key = TryLock(database, core.closing ? LAST_CHECKPOINT_WAIT : CHECKPOINT_WAIT);
	}
	if (!key) {
		core.checkpoints_postponed++;
		core.postponed_at = SystemClock().Now();
		return Status(ErrorCode::Unavailable, "checkpoint postponed; the log is kept until these transactions end: " +
		                                          core.transactions.DescribeOldest(SystemClock().Now()));
	}
	return key;
}

//! A process that ended while DuckDB was making the file left it empty, or with less than its three headers: no
//! checkpoint was ever in it. The file is not attached.
void RemoveUnfinishedFile(const std::string &path) {
	auto file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return;
	}
	struct stat info {};
	char magic[sizeof(FILE_MAGIC)] = {};
	auto is_short = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size < FILE_HEADERS_BYTES;
	auto is_ours = is_short && (info.st_size == 0 || (pread(file, magic, sizeof(magic), FILE_MAGIC_OFFSET) ==
	                                                      static_cast<ssize_t>(sizeof(magic)) &&
	                                                  memcmp(magic, FILE_MAGIC, sizeof(magic)) == 0));
	close(file);
	if (is_ours && unlink(path.c_str()) == 0) {
		Log(LogLevel::Warn, "catalog", "unfinished_file_removed",
		    {{"path", path}, {"bytes", std::to_string(info.st_size)}});
	}
}

//! What a checkpoint may write at most, by a wide margin: all that is in the file again, the rows that are in memory
//! only, and blocks that are not filled.
uint64_t CheckpointBytesMax(ReplicaCore &core, duckdb::AttachedDatabase &database) {
	auto &blocks = database.GetStorageManager().Cast<duckdb::SingleFileStorageManager>().GetBlockManager();
	uint64_t bytes =
	    (blocks.TotalBlocks() - std::min(blocks.FreeBlocks(), blocks.TotalBlocks())) * blocks.GetBlockAllocSize();
	for (auto &memory : duckdb::BufferManager::GetBufferManager(core.instance).GetMemoryUsageInfo()) {
		if (memory.tag == duckdb::MemoryTag::IN_MEMORY_TABLE) {
			bytes += memory.size + memory.evicted_data;
		}
	}
	return bytes + bytes / 4 + CHECKPOINT_MARGIN_BYTES;
}

//! Makes sure that the file may grow by `bytes`: the space behind its end becomes its own and stays so for the next
//! checkpoint. DuckDB gives the whole database up when a checkpoint meets a full disk, so it must not meet one.
Status ReserveSpace(ReplicaCore &core, uint64_t bytes, const std::string &what) {
	struct stat info {};
	struct statvfs space {};
	if (fstat(core.file, &info) != 0 || fstatvfs(core.file, &space) != 0) {
		return SystemError("looking for free space at", core.options.path);
	}
	auto size = static_cast<uint64_t>(info.st_size);
	auto allocated = static_cast<uint64_t>(info.st_blocks) * STAT_BLOCK_BYTES;
	auto missing = bytes - std::min(bytes, allocated - std::min(allocated, size));
	if (missing == 0) {
		return Status::Ok();
	}
	// Asked first: some file systems take what there is before they fail.
	int failure = static_cast<uint64_t>(space.f_bavail) * space.f_frsize < missing ? ENOSPC : EINTR;
	while (failure == EINTR) {
		auto done = fallocate(core.file, FALLOC_FL_KEEP_SIZE, info.st_size, static_cast<off_t>(bytes));
		failure = done == 0 ? 0 : errno;
	}
	if (failure == ENOSPC || failure == EDQUOT) {
		return Status(ErrorCode::DiskFull, "no space on " + core.options.node_id + ": " + core.options.path + " (" +
		                                       what + " may need " + std::to_string(missing) +
		                                       " bytes more; the log keeps what it would write, free some)");
	}
	if (failure == 0 || failure == EOPNOTSUPP) { // where nothing can be reserved, what is free now must do
		return Status::Ok();
	}
	errno = failure;
	return SystemError("reserving space in", core.options.path);
}

//! Metadata blocks are all that a checkpoint writes in place although the file's state needs them.
Status BeginJournal(ReplicaCore &core, duckdb::AttachedDatabase &database) {
	auto &storage = database.GetStorageManager().Cast<duckdb::SingleFileStorageManager>();
	auto block_bytes = storage.GetBlockManager().GetBlockAllocSize();
	std::set<uint64_t> offsets;
	for (auto &block : storage.GetMetadataInfo()) {
		offsets.insert(FILE_HEADERS_BYTES + static_cast<uint64_t>(block.block_id) * block_bytes);
	}
	auto status = core.journal->Begin(std::move(offsets), block_bytes);
	if (status.Code() == ErrorCode::DiskFull) {
		return Status(ErrorCode::DiskFull, "no space on " + core.options.node_id + ": " + status.Message());
	}
	return status;
}

Status CheckpointAttached(ReplicaCore &core) {
	auto database = core.Attached();
	if (!database) {
		return Status(ErrorCode::Unavailable, "the catalog is not attached");
	}
	auto reserved = ReserveSpace(core, CheckpointBytesMax(core, *database), "a checkpoint");
	if (!reserved.IsOk()) {
		return reserved;
	}
	reserved = BeginJournal(core, *database);
	if (!reserved.IsOk()) {
		return reserved;
	}
	if (core.snapshot_copies != 0) {
		// It would wait for the copy in vain, with the gate closed.
		return Status(ErrorCode::Unavailable, "the state is being copied for a peer or a backup");
	}
	SystemClock clock;
	auto start = clock.Now();
	GateScope gate(core.transactions);
	gate.Close();
	auto lock = LockForCheckpoint(core, *database);
	if (lock.IsOk()) {
		// Compacting writes, which the lock would not let through.
		lock.Value().reset();
		CompactMeta(core);
		lock = LockForCheckpoint(core, *database);
	}
	if (!lock.IsOk()) {
		return lock.GetStatus();
	}
	gate.Open();
	auto positions = PositionsOf(core.state);
	duckdb::Connection connection(core.instance);
	auto &manager = static_cast<ReplicatedTransactionManager &>(database->GetTransactionManager());
	connection.context->RunFunctionInTransaction([&]() { manager.WriteCheckpoint(*connection.context); });
	auto duration_ms = uint64_t((clock.Now() - start) / NS_PER_MS);
	core.checkpoints++;
	core.postponed_at = 0;
	core.checkpoint_last_ms = duration_ms;
	core.checkpoint_max_ms = std::max(core.checkpoint_max_ms.load(), duration_ms);
	std::lock_guard<std::mutex> guard(core.state_lock);
	core.durable = std::move(positions);
	return Status::Ok();
}

Result<LoadedMeta> ReadFile(duckdb::DatabaseInstance &host, const std::string &path) {
	ScratchDatabase scratch(host);
	auto &connection = scratch.Session();
	auto status = RunSql(connection, "ATTACH " + SqlString(path) + " AS cp (READ_ONLY)");
	if (!status.IsOk()) {
		return Status(status.Code(), "'" + path + "' cannot be opened: " + status.Message());
	}
	auto database = duckdb::DatabaseManager::Get(scratch.Instance()).GetDatabase(duckdb::Identifier(CATALOG_NAME));
	try {
		ReadAllBlocks(*database);
	} catch (std::exception &exception) {
		auto failure = DescribeFailure(exception);
		return Status(failure.Code(), "'" + path + "' cannot be read: " + failure.Message());
	}
	return LoadMeta(connection);
}

//! What cannot be read of an image is the sender's fault.
Result<LoadedMeta> InspectImage(duckdb::DatabaseInstance &host, const std::string &image) {
	auto meta = ReadFile(host, image);
	if (!meta.IsOk()) {
		return Status(ErrorCode::Corruption, "snapshot image " + meta.GetStatus().Message());
	}
	return meta;
}

Status CheckNotOlder(const ReplicaCore &core, const LoadedMeta &meta) {
	for (auto &mine : core.state.positions) {
		auto theirs = meta.state.positions.find(mine.first);
		if (theirs == meta.state.positions.end()) {
			return Status(ErrorCode::Incompatible, "snapshot image does not know group " + std::to_string(mine.first));
		}
		if (theirs->second.index < mine.second.index) {
			return Status(ErrorCode::InvalidArgument, "snapshot image stands at index " +
			                                              std::to_string(theirs->second.index) + " of group " +
			                                              std::to_string(mine.first) + ", this node is at " +
			                                              std::to_string(mine.second.index) + " already");
		}
	}
	return Status::Ok();
}

//! Waiting sessions whose entry the image covers hear its outcome.
void AnswerWaiters(ReplicaCore &core) {
	std::vector<CommitOutcome> outcomes;
	{
		std::lock_guard<std::mutex> guard(core.waiters_lock);
		std::lock_guard<std::mutex> state_guard(core.state_lock);
		for (auto &waiter : core.waiters) {
			if (auto outcome = core.state.outcomes.FindAnywhere(waiter.first)) {
				outcomes.push_back(*outcome);
			}
		}
	}
	core.DeliverOutcomes(outcomes);
}

} // namespace

Status AttachFile(ReplicaCore &core, const std::shared_ptr<ReplicaCore> &owner) {
	try {
		if (core.Attached()) {
			return Status(ErrorCode::AlreadyExists,
			              std::string("a database named \"") + CATALOG_NAME + "\" is attached already");
		}
		RemoveUnfinishedFile(core.options.path);
		auto recovered = BlockJournal::Recover(core.options.path);
		if (!recovered.IsOk()) {
			return recovered;
		}
		{
			AttachPermit permit(owner);
			duckdb::Connection connection(core.instance);
			auto status = RunSql(connection, "ATTACH " + SqlString(core.options.path) + " AS " + CATALOG_NAME +
			                                     " (TYPE " + STORAGE_TYPE + ", RECOVERY_MODE no_wal_writes)");
			if (!status.IsOk()) {
				return Status(status.Code(), "opening '" + core.options.path + "' failed: " + status.Message());
			}
		}
		ReadAllBlocks(*core.Attached());
		core.file = open(core.options.path.c_str(), O_RDWR | O_CLOEXEC);
		auto status = core.file < 0 ? SystemError("opening", core.options.path) : LoadOrCreateMeta(core);
		if (!status.IsOk()) {
			(void)DetachFile(core);
		}
		return status;
	} catch (std::exception &exception) {
		auto failure = DescribeFailure(exception);
		(void)DetachFile(core);
		return Status(failure.Code(), "opening '" + core.options.path + "' failed: " + failure.Message());
	}
}

Result<CatalogFileReport> InspectCatalogFile(duckdb::DatabaseInstance &host, const std::string &path) {
	try {
		auto meta = ReadFile(host, path);
		if (!meta.IsOk() && meta.GetStatus().Code() == ErrorCode::NotFound) {
			return Status(ErrorCode::Incompatible,
			              "'" + path + "' is a DuckDB database that was not written by a node");
		}
		if (!meta.IsOk()) {
			return meta.GetStatus();
		}
		CatalogFileReport report;
		report.cluster_id = meta.Value().cluster_id;
		report.format = meta.Value().format;
		report.positions = PositionsOf(meta.Value().state);
		return report;
	} catch (std::exception &exception) {
		auto failure = DescribeFailure(exception);
		return Status(failure.Code(), "'" + path + "' cannot be read: " + failure.Message());
	}
}

Status GiveToCluster(duckdb::DatabaseInstance &host, const std::string &path, const std::string &cluster_id) {
	try {
		auto meta = ReadFile(host, path);
		if (!meta.IsOk()) {
			return meta.GetStatus();
		}
		if (cluster_id.empty() || meta.Value().cluster_id == cluster_id) {
			return Status(ErrorCode::InvalidArgument, "'" + path + "' is of cluster '" + meta.Value().cluster_id +
			                                              "': a restored cluster needs another cluster_id, got '" +
			                                              cluster_id + "'");
		}
		auto status = CheckIdentity(meta.Value(), meta.Value().cluster_id, path);
		if (!status.IsOk()) {
			return status;
		}
		{
			ScratchDatabase scratch(host);
			GiveMetaToCluster(scratch.Session(), path, cluster_id);
		}
		return SyncFile(path);
	} catch (std::exception &exception) {
		auto failure = DescribeFailure(exception);
		return Status(failure.Code(), "'" + path + "' cannot be changed: " + failure.Message());
	}
}

Status DetachFile(ReplicaCore &core) {
	Status status;
	try {
		duckdb::Connection connection(core.instance);
		auto database = core.Attached();
		if (database) {
			// A transaction that is still open keeps the old attachment; when it ends, DuckDB would checkpoint into a
			// file that another attachment may own by then.
			database->Invalidate(DETACHED_BY_NODE);
		}
		status = RunSql(connection, "SET checkpoint_on_detach = 'disabled'");
		if (status.IsOk()) {
			status = RunSql(connection, std::string("DETACH DATABASE IF EXISTS ") + CATALOG_NAME);
		}
	} catch (std::exception &exception) {
		status = Status(ErrorCode::Internal, duckdb::ErrorData(exception).Message());
	}
	if (core.file >= 0) {
		close(core.file);
		core.file = -1;
	}
	return status;
}

Status ReserveForRows(ReplicaCore &core, uint64_t bytes) {
	return ReserveSpace(core, bytes + bytes / 4 + CHECKPOINT_MARGIN_BYTES, "a large transaction");
}

Status WriteCheckpoint(ReplicaCore &core) {
	try {
		return CheckpointAttached(core);
	} catch (std::exception &exception) {
		return Status(ErrorCode::IoError,
		              "checkpoint of '" + core.options.path + "' failed: " + duckdb::ErrorData(exception).Message());
	}
}

Result<std::unique_ptr<node::StateMachine::SnapshotImage>> CopySnapshot(ReplicaCore &core) {
	try {
		auto database = core.Attached();
		if (!database || core.file < 0) {
			return Status(ErrorCode::Unavailable, "the catalog is not attached");
		}
		CopyScope scope(core.snapshot_copies);
		// Only a checkpoint changes blocks that the last one wrote, and the shared lock keeps it away.
		auto lock = duckdb::DuckTransactionManager::Get(*database).SharedCheckpointLock();
		std::vector<node::AppliedPosition> positions;
		{
			std::lock_guard<std::mutex> guard(core.state_lock);
			positions = core.durable;
		}
		struct stat info {};
		if (fstat(core.file, &info) != 0) {
			return SystemError("inspecting", core.options.path);
		}
		return CopyToImage({core.options.path, core.options.cluster_id}, core.file, uint64_t(info.st_size),
		                   std::move(positions));
	} catch (std::exception &exception) {
		return Status(ErrorCode::IoError, duckdb::ErrorData(exception).Message());
	}
}

Status InstallFile(ReplicaCore &core, const std::shared_ptr<ReplicaCore> &owner, const std::string &image) {
	try {
		auto meta = InspectImage(core.instance, image);
		auto status = meta.IsOk() ? CheckIdentity(meta.Value(), core.options.cluster_id, image) : meta.GetStatus();
		if (status.IsOk()) {
			status = CheckNotOlder(core, meta.Value());
		}
		if (status.IsOk()) {
			SyncWatch::Scope sync(*core.syncs);
			status = SyncFile(image);
		}
		if (!status.IsOk()) {
			return status;
		}
		if (auto database = core.Attached()) {
			core.local_evictions +=
			    core.transactions.Evict(*database, EvictionScope(),
				                        Status(ErrorCode::Conflict, "the node installed a snapshot; retry"));
		}
		status = DetachFile(core);
		if (!status.IsOk()) {
			return status;
		}
		unlink((core.options.path + ".wal").c_str());
		BlockJournal::Remove(core.options.path);
		if (rename(image.c_str(), core.options.path.c_str()) != 0) {
			return SystemError("renaming snapshot image to", core.options.path);
		}
		{
			SyncWatch::Scope sync(*core.syncs);
			status = SyncDirectoryOf(core.options.path);
		}
		if (status.IsOk()) {
			status = AttachFile(core, owner);
		}
		if (status.IsOk()) {
			AnswerWaiters(core);
		}
		return status;
	} catch (std::exception &exception) {
		return Status(ErrorCode::IoError,
		              "installing snapshot '" + image + "' failed: " + duckdb::ErrorData(exception).Message());
	}
}

} // namespace catalog
} // namespace quack
