#include "quack/node/snapshot_fetcher.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

constexpr const char *FILE_PREFIX = "incoming-snapshot-";
constexpr MonotonicNs CALL_TIMEOUT = 10 * NS_PER_SECOND;
constexpr MonotonicNs RETRY_PAUSE = 200 * NS_PER_MS;

Status FileFailure(const char *action, const std::string &path, int error) {
	auto code = error == ENOSPC || error == EDQUOT ? ErrorCode::DiskFull : ErrorCode::IoError;
	return Status(code, std::string(action) + " of snapshot file '" + path + "': " + std::strerror(error));
}

Status WriteAt(int file, uint64_t offset, ByteView bytes) {
	size_t done = 0;
	while (done < bytes.size()) {
		auto written = pwrite(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
		if (written < 0 && errno == EINTR) {
			continue;
		}
		if (written < 0) {
			return FileFailure("write", "(temporary)", errno);
		}
		done += static_cast<size_t>(written);
	}
	return Status::Ok();
}

//! Closes the descriptor, and removes the file unless it was handed on.
class TemporaryFile {
public:
	explicit TemporaryFile(std::string path_p)
	    : path(std::move(path_p)), file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
	}
	~TemporaryFile() {
		if (file >= 0) {
			close(file);
			if (!is_kept) {
				unlink(path.c_str());
			}
		}
	}
	TemporaryFile(const TemporaryFile &) = delete;
	TemporaryFile &operator=(const TemporaryFile &) = delete;

	const std::string path;
	const int file;
	bool is_kept = false;
};

//! What a waiting caller and the transport's thread share; outlives either.
struct PendingCall {
	std::mutex lock;
	std::condition_variable answered;
	std::optional<Result<std::string>> answer;
};

} // namespace

SnapshotFetcher::SnapshotFetcher(const RaftEngineConfig &config_p, const MemberDirectory &directory_p,
                                 transport::Transport &transport_p, const Clock &clock_p, ApplyLoop &apply_p,
                                 LoopMailbox &loop_p, DegradedLatch &latch_p)
    : config(config_p), directory(directory_p), transport(transport_p), clock(clock_p), apply(apply_p), loop(loop_p),
      latch(latch_p) {
}

SnapshotFetcher::~SnapshotFetcher() {
	Stop();
}

Status SnapshotFetcher::PrepareDirectory() const {
	std::error_code error;
	std::filesystem::create_directories(config.temp_dir, error);
	if (error) {
		return Status(ErrorCode::IoError, "directory '" + config.temp_dir +
		                                      "' for incoming snapshots: " + error.message() + "; make it writable");
	}
	for (auto &entry : std::filesystem::directory_iterator(config.temp_dir, error)) {
		if (entry.path().filename().string().rfind(FILE_PREFIX, 0) == 0) {
			std::filesystem::remove(entry.path(), error);
		}
	}
	return Status::Ok();
}

void SnapshotFetcher::Start() {
	thread = std::thread([this] { RunGuarded(latch, "snapshot fetcher", [this] { Run(); }); });
}

void SnapshotFetcher::Stop() {
	{
		std::lock_guard<std::mutex> guard(lock);
		is_stopping.store(true);
	}
	changed.notify_all();
	if (thread.joinable()) {
		thread.join();
	}
}

void SnapshotFetcher::Request(raft::GroupId group, raft::LogIndex index_min, raft::NodeId from) {
	{
		std::lock_guard<std::mutex> guard(lock);
		jobs[group] = {group, index_min, from};
	}
	changed.notify_all();
}

std::string SnapshotFetcher::LastError() const {
	std::lock_guard<std::mutex> guard(lock);
	return last_error;
}

bool SnapshotFetcher::ShouldQuit() const {
	return is_stopping.load() || latch.IsSet();
}

bool SnapshotFetcher::Sleep(MonotonicNs time) {
	std::unique_lock<std::mutex> guard(lock);
	changed.wait_for(guard, std::chrono::nanoseconds(time), [this] { return ShouldQuit(); });
	return !ShouldQuit();
}

void SnapshotFetcher::Run() {
	while (true) {
		Job job;
		{
			std::unique_lock<std::mutex> guard(lock);
			changed.wait_for(guard, std::chrono::milliseconds(500), [this] { return !jobs.empty() || ShouldQuit(); });
			if (ShouldQuit()) {
				return;
			}
			if (jobs.empty()) {
				continue;
			}
			job = jobs.begin()->second;
			jobs.erase(jobs.begin());
		}
		auto status = Fetch(job);
		bytes_done.store(0);
		bytes_total.store(0);
		{
			std::lock_guard<std::mutex> guard(lock);
			last_error = status.IsOk() ? "" : status.ToString();
		}
		if (!status.IsOk() && Sleep(RETRY_PAUSE)) {
			Log(LogLevel::Warn, "node", "snapshot_fetch_failed", {{"message", status.ToString()}});
			loop.Push(LoopEvent(SnapshotFailed {job.group, status}));
		}
	}
}

Status SnapshotFetcher::Fetch(const Job &job) {
	auto peer = directory.NameOf(job.from);
	SnapshotDownload download(config, job.group, job.index_min, peer);
	auto status = download.TakeOpen(CallAndWait(peer, wire::METHOD_SNAPSHOT_OPEN, download.OpenRequest()));
	if (!status.IsOk()) {
		return status;
	}
	TemporaryFile file(config.temp_dir + "/" + FILE_PREFIX + std::to_string(download.Image().image));
	if (file.file < 0) {
		return FileFailure("open", file.path, errno);
	}
	status = FetchInto(peer, download, file.file);
	if (!status.IsOk()) {
		return status;
	}
	if (fsync(file.file) != 0) {
		return FileFailure("sync", file.path, errno);
	}
	file.is_kept = true;
	apply.PushInstall(job.group, file.path, download.Image().positions);
	return Status::Ok();
}

Status SnapshotFetcher::FetchInto(const std::string &peer, SnapshotDownload &download, int file) {
	bytes_done.store(0);
	bytes_total.store(download.Image().bytes);
	auto begun = clock.Now();
	while (!download.IsComplete()) {
		if (ShouldQuit()) {
			return Status(ErrorCode::Unavailable, "the node is stopping");
		}
		auto offset = download.Offset();
		auto data = download.TakeChunk(CallAndWait(peer, wire::METHOD_SNAPSHOT_CHUNK, download.ChunkRequest()));
		if (!data.IsOk()) {
			if (!download.MayAskAgain() || !Sleep(RETRY_PAUSE)) {
				return data.GetStatus();
			}
			continue;
		}
		auto status = WriteAt(file, offset, data.Value());
		if (!status.IsOk()) {
			return status;
		}
		bytes_done.store(download.Offset());
		Pace(begun, download.Offset());
	}
	return Status::Ok();
}

Result<std::string> SnapshotFetcher::CallAndWait(const std::string &peer, const char *method, std::string body) {
	auto call = std::make_shared<PendingCall>();
	transport.Call(peer, method, std::move(body), CALL_TIMEOUT, [call](Result<std::string> answer) {
		std::lock_guard<std::mutex> guard(call->lock);
		call->answer = std::move(answer);
		call->answered.notify_all();
	});
	std::unique_lock<std::mutex> guard(call->lock);
	auto deadline = clock.Now() + CALL_TIMEOUT;
	while (!call->answer && !ShouldQuit() && clock.Now() < deadline) {
		call->answered.wait_for(guard, std::chrono::milliseconds(100));
	}
	if (!call->answer) {
		return Status(ErrorCode::DeadlineExceeded, "node '" + peer + "' did not answer " + method);
	}
	return *call->answer;
}

//! Sleeps until the bytes received so far fit the rate limit.
void SnapshotFetcher::Pace(MonotonicNs begun, uint64_t bytes) {
	if (config.snapshot_bytes_per_second == 0) {
		return;
	}
	auto due = begun + static_cast<MonotonicNs>(static_cast<double>(bytes) /
	                                            static_cast<double>(config.snapshot_bytes_per_second) *
	                                            static_cast<double>(NS_PER_SECOND));
	auto now = clock.Now();
	if (due > now) {
		Sleep(due - now);
	}
}

} // namespace node
} // namespace quack
