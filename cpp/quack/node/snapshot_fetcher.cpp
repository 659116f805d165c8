#include "quack/node/snapshot_fetcher.hpp"

#include <filesystem>

#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs CALL_TIMEOUT = 10 * NS_PER_SECOND;
constexpr MonotonicNs RETRY_PAUSE = 200 * NS_PER_MS;
//! So often a source that may be restarting is asked to go on, before another node is asked for everything.
constexpr unsigned SOURCE_ATTEMPTS = 25;
//! What was received of an image and not asked for since is removed.
constexpr MonotonicNs KEEP_PART = 3600 * NS_PER_SECOND;

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
      latch(latch_p), incoming(config_p.temp_dir) {
}

SnapshotFetcher::~SnapshotFetcher() {
	Stop();
}

Status SnapshotFetcher::PrepareDirectory() {
	return incoming.Sweep();
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
	Job job;
	last_job = clock.Now();
	while (TakeJob(job)) {
		auto status = Fetch(job);
		incoming.Close();
		last_job = clock.Now();
		{
			std::lock_guard<std::mutex> guard(lock);
			last_error = status.IsOk() ? "" : status.ToString();
			shown = status.IsOk() ? shown : std::nullopt;
		}
		if (!status.IsOk() && Sleep(RETRY_PAUSE)) {
			Log(LogLevel::Warn, "node", "snapshot_fetch_failed", {{"message", status.ToString()}});
			loop.Push(LoopEvent(SnapshotFailed {job.group, status}));
		}
	}
}

bool SnapshotFetcher::TakeJob(Job &job) {
	while (true) {
		{
			std::unique_lock<std::mutex> guard(lock);
			changed.wait_for(guard, std::chrono::milliseconds(500), [this] { return !jobs.empty() || ShouldQuit(); });
			if (ShouldQuit()) {
				return false;
			}
			if (!jobs.empty()) {
				job = jobs.begin()->second;
				jobs.erase(jobs.begin());
				return true;
			}
		}
		ForgetWhenIdle();
	}
}

void SnapshotFetcher::ForgetWhenIdle() {
	if (!handed_over.empty() && !std::filesystem::exists(handed_over)) {
		handed_over.clear();
		incoming.Remove();
		std::lock_guard<std::mutex> guard(lock);
		shown.reset();
	}
	if (last_job != 0 && handed_over.empty() && clock.Now() - last_job > KEEP_PART) {
		last_job = 0;
		incoming.Remove();
	}
}

Status SnapshotFetcher::Fetch(const Job &job) {
	if (!handed_over.empty() && std::filesystem::exists(handed_over)) {
		return Status(ErrorCode::Unavailable, "the image received last is still being installed");
	}
	handed_over.clear();
	return FetchFromEither(job);
}

Status SnapshotFetcher::FetchFromEither(const Job &job) {
	auto peer = directory.NameOf(job.from);
	auto part = incoming.Load();
	if (part && part->source != peer) {
		auto status = FetchFrom(part->source, job, part, true);
		if (status.IsOk() || ShouldQuit()) {
			return status;
		}
		Log(LogLevel::Info, "node", "snapshot_source_changed",
		    {{"from", part->source}, {"to", peer}, {"message", status.ToString()}});
		part = incoming.Load();
	}
	return FetchFrom(peer, job, std::move(part), false);
}

Status SnapshotFetcher::FetchFrom(const std::string &peer, const Job &job, std::optional<SnapshotPart> part,
                                  bool resume_only) {
	SnapshotDownload download(config, job.group, job.index_min, peer, part, resume_only);
	download.NeedAtLeast(apply.AppliedPositions());
	Show(peer, "opening");
	auto status = Open(peer, download, resume_only ? SOURCE_ATTEMPTS : 1);
	if (!status.IsOk()) {
		return status;
	}
	if (resume_only && !download.IsResumed()) {
		return Status(ErrorCode::Incompatible, "node '" + peer + "' offers another image than the one asked for");
	}
	auto image = std::to_string(download.Image().image);
	if (download.IsResumed()) {
		Log(LogLevel::Info, "node", "snapshot_resumed",
		    {{"image", image},
		     {"from", peer},
		     {"offset", std::to_string(download.Offset())},
		     {"bytes", std::to_string(download.Image().bytes)}});
	} else if (part) {
		Log(LogLevel::Warn, "node", "snapshot_begun_anew",
		    {{"image", image},
		     {"from", peer},
		     {"message", "image " + std::to_string(part->image.image) + " of node '" + part->source +
		                     "' is not to be had any more; " + std::to_string(part->offset) +
		                     " bytes of it are dropped"}});
	} else {
		Log(LogLevel::Info, "node", "snapshot_begun",
		    {{"image", image}, {"from", peer}, {"bytes", std::to_string(download.Image().bytes)}});
	}
	status = incoming.Begin(download.Part());
	if (status.IsOk()) {
		status = FetchInto(peer, download);
	}
	if (!status.IsOk()) {
		return status;
	}
	status = incoming.Save(download.Part(), clock.Now());
	if (!status.IsOk()) {
		return status;
	}
	handed_over = incoming.Path(download.Part());
	Show(peer, "installing");
	apply.PushInstall(job.group, handed_over, download.Image().positions);
	return Status::Ok();
}

Status SnapshotFetcher::Open(const std::string &peer, SnapshotDownload &download, unsigned attempts) {
	while (true) {
		auto status = download.TakeOpen(CallAndWait(peer, wire::METHOD_SNAPSHOT_OPEN, download.OpenRequest()));
		auto is_away = !download.IsPreparing() && status.Code() == ErrorCode::Unavailable && attempts-- > 1;
		if (status.IsOk() || (!download.IsPreparing() && !is_away)) {
			return status;
		}
		if (download.IsPreparing()) {
			Show(peer, "preparing");
		}
		if (!Sleep(RETRY_PAUSE)) {
			return status;
		}
	}
}

Status SnapshotFetcher::FetchInto(const std::string &peer, SnapshotDownload &download) {
	{
		std::lock_guard<std::mutex> guard(lock);
		rate.Begin(clock.Now());
	}
	Show(peer, "receiving");
	ShowBytes(download, 0);
	while (!download.IsComplete()) {
		if (ShouldQuit()) {
			return Status(ErrorCode::Unavailable, "the node is stopping");
		}
		auto answer = CallAndWait(peer, wire::METHOD_SNAPSHOT_CHUNK, download.ChunkRequest());
		auto data = download.TakeChunk(answer, clock.Now());
		if (!data.IsOk()) {
			if (!download.MayAskAgain() || !Sleep(RETRY_PAUSE)) {
				return data.GetStatus();
			}
			continue;
		}
		auto status = incoming.Write(data.Value(), download.Part(), clock.Now());
		if (!status.IsOk()) {
			return status;
		}
		ShowBytes(download, data.Value().size());
	}
	return Status::Ok();
}

void SnapshotFetcher::Show(const std::string &peer, const char *state) {
	std::lock_guard<std::mutex> guard(lock);
	if (!shown || shown->peer != peer) {
		shown = SnapshotTransfer();
		shown->peer = peer;
	}
	shown->state = state;
}

void SnapshotFetcher::ShowBytes(const SnapshotDownload &download, uint64_t moved) {
	std::lock_guard<std::mutex> guard(lock);
	if (!shown) {
		return;
	}
	moved_total += moved;
	rate.Add(moved, clock.Now());
	shown->image = download.Image().image;
	shown->bytes_done = download.Offset();
	shown->bytes_total = download.Image().bytes;
	shown->bytes_moved = moved_total;
	shown->resumed_count = download.Part().resumed_count;
	rate.Describe(*shown);
}

std::optional<SnapshotTransfer> SnapshotFetcher::Transfer() const {
	std::lock_guard<std::mutex> guard(lock);
	return shown;
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

} // namespace node
} // namespace quack
