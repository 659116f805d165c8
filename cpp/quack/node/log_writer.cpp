#include "quack/node/log_writer.hpp"

#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

constexpr MonotonicNs IDLE_WAIT = NS_PER_SECOND;

//! Adds one command to the batch; consecutive appends of a group become one element.
void AddToBatch(std::vector<storage::GroupAppend> &batch, LogCommand &command) {
	storage::GroupAppend *target = nullptr;
	for (auto &append : batch) {
		if (append.group == command.group) {
			target = &append;
		}
	}
	auto is_consecutive = target == nullptr || target->entries.empty() || command.entries.empty() ||
	                      target->entries.back().index + 1 == command.entries.front().index;
	if (target == nullptr || !is_consecutive) {
		batch.emplace_back();
		target = &batch.back();
		target->group = command.group;
	}
	if (command.hard_state) {
		target->hard_state = command.hard_state;
	}
	for (auto &entry : command.entries) {
		target->entries.push_back(entry);
	}
}

} // namespace

LogWriter::LogWriter(const RaftEngineConfig &config_p, const MemberDirectory &directory, storage::LogStore &log_p,
                     transport::Transport &transport, const Clock &clock_p, LoopMailbox &loop_p, DegradedLatch &latch_p)
    : config(config_p), log(log_p), clock(clock_p), loop(loop_p), latch(latch_p), outbox(directory, transport) {
}

LogWriter::~LogWriter() {
	Abort();
}

void LogWriter::Start() {
	thread = std::thread([this] { RunGuarded(latch, "log writer", [this] { Run(); }); });
}

void LogWriter::Stop() {
	is_stopping.store(true);
	mailbox.Close();
	if (thread.joinable()) {
		thread.join();
	}
}

void LogWriter::Abort() {
	is_aborting.store(true);
	Stop();
}

void LogWriter::Push(LogCommand command) {
	command.bytes = 64;
	for (auto &entry : command.entries) {
		command.bytes += entry.payload->size() + sizeof(raft::Entry);
	}
	auto bytes = command.bytes;
	queue_bytes.fetch_add(bytes, std::memory_order_relaxed);
	if (!mailbox.Push(std::move(command))) {
		queue_bytes.fetch_sub(bytes, std::memory_order_relaxed);
	}
}

bool LogWriter::ShouldQuit() const {
	return is_aborting.load() || latch.IsSet();
}

void LogWriter::Run() {
	std::vector<LogCommand> round;
	while (!ShouldQuit()) {
		round.clear();
		if (backlog.empty()) {
			mailbox.TakeAll(round, IDLE_WAIT);
		} else {
			round.assign(std::make_move_iterator(backlog.begin()), std::make_move_iterator(backlog.end()));
			backlog.clear();
		}
		if (round.empty() && mailbox.IsClosed()) {
			mailbox.TakeAll(round, 0);
			if (round.empty()) {
				return;
			}
		}
		if (!round.empty() && !ShouldQuit()) {
			RunRound(round);
		}
	}
}

//! Before the loop hears of it, so that it sees the room.
void LogWriter::ReleaseBytes(const std::vector<LogCommand> &round, size_t begin, size_t end) {
	size_t bytes = 0;
	for (auto i = begin; i < end; i++) {
		bytes += round[i].bytes;
	}
	queue_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

void LogWriter::RunRound(std::vector<LogCommand> &round) {
	busy_since.store(clock.Now(), std::memory_order_relaxed);
	size_t begin = 0;
	while (begin < round.size() && !ShouldQuit()) {
		auto end = begin;
		while (end < round.size() && round[end].kind == LogCommand::Kind::Append) {
			end++;
		}
		if (end > begin) {
			WriteAppends(round, begin, end);
			begin = end;
			continue;
		}
		ReleaseBytes(round, begin, begin + 1);
		RunControl(round[begin]);
		begin++;
	}
	busy_since.store(0, std::memory_order_relaxed);
}

void LogWriter::RunControl(const LogCommand &command) {
	switch (command.kind) {
	case LogCommand::Kind::Append:
		break;
	case LogCommand::Kind::TruncatePrefix:
		Truncate(command);
		break;
	case LogCommand::Kind::Reset:
		Reset(command);
		break;
	case LogCommand::Kind::Create:
		Create(command);
		break;
	case LogCommand::Kind::Remove:
		Remove(command);
		break;
	}
}

void LogWriter::WriteAppends(std::vector<LogCommand> &round, size_t begin, size_t end) {
	std::vector<storage::GroupAppend> batch;
	std::map<raft::GroupId, EntriesDurable> durable;
	for (auto i = begin; i < end; i++) {
		auto &command = round[i];
		if (command.hard_state || !command.entries.empty()) {
			AddToBatch(batch, command);
		}
		if (!command.entries.empty()) {
			durable[command.group] = {command.group, command.entries.back().index, command.entries.back().term};
		}
	}
	if (!batch.empty() && !WriteBatch(batch)) {
		return;
	}
	ReleaseBytes(round, begin, end);
	SendMessages(round, begin, end);
	for (auto &entry : durable) {
		loop.Push(LoopEvent(entry.second));
	}
}

bool LogWriter::WriteBatch(const std::vector<storage::GroupAppend> &batch) {
	while (true) {
		auto status = log.Append(batch);
		if (status.IsOk()) {
			break;
		}
		if (status.Code() != ErrorCode::DiskFull) {
			return Fatal("append", status);
		}
		if (!WaitForSpace(status)) {
			return false;
		}
	}
	auto status = log.Sync();
	if (!status.IsOk()) {
		return Fatal("sync", status);
	}
	if (disk_is_full) {
		disk_is_full = false;
		Log(LogLevel::Info, "node", "disk_space_returned", {{"directory", config.log_dir}});
		loop.Push(LoopEvent(DiskState {}));
	}
	return true;
}

//! False when the writer shall give up.
bool LogWriter::WaitForSpace(const Status &failure) {
	if (!disk_is_full) {
		disk_is_full = true;
		auto message = "no space on " + config.node_id + ": " + config.log_dir + " (" + failure.Message() +
		               "); the node is read-only until space returns, free some";
		Log(LogLevel::Error, "node", "disk_full", {{"message", message}});
		loop.Push(LoopEvent(DiskState {true, message}));
	}
	if (is_stopping.load() || ShouldQuit()) {
		return false;
	}
	std::vector<LogCommand> arrived;
	busy_since.store(0, std::memory_order_relaxed);
	mailbox.TakeAll(arrived, config.disk_retry_interval);
	busy_since.store(clock.Now(), std::memory_order_relaxed);
	for (auto &command : arrived) {
		backlog.push_back(std::move(command));
	}
	RunTruncations(backlog);
	return !ShouldQuit();
}

//! Truncations free space, so they may not wait behind the append that needs it. They touch only entries that a durable
//! checkpoint covers, so their order to appends means nothing.
void LogWriter::RunTruncations(std::deque<LogCommand> &commands) {
	for (auto &command : commands) {
		if (command.kind == LogCommand::Kind::TruncatePrefix) {
			Truncate(command);
			command.kind = LogCommand::Kind::Append; // an append of nothing
		}
	}
}

//! The sync is what lets the log remove the files.
bool LogWriter::Truncate(const LogCommand &command) {
	auto status = log.TruncatePrefix(command.group, command.position);
	if (status.Code() == ErrorCode::DiskFull) {
		// The next checkpoint truncates again.
		Log(LogLevel::Warn, "node", "truncate_postponed", {{"message", status.Message()}});
		return true;
	}
	if (!status.IsOk()) {
		return Fatal("prefix truncation", status);
	}
	status = log.Sync();
	return status.IsOk() || Fatal("sync", status);
}

//! Tries again while the disk is full. False when the writer shall give up.
bool LogWriter::UntilSpace(const char *action, const std::function<Status()> &work) {
	while (true) {
		auto status = work();
		if (status.IsOk()) {
			return true;
		}
		if (status.Code() != ErrorCode::DiskFull) {
			return Fatal(action, status);
		}
		if (!WaitForSpace(status)) {
			return false;
		}
	}
}

bool LogWriter::Reset(const LogCommand &command) {
	storage::GroupAppend append;
	append.group = command.group;
	append.hard_state = command.hard_state;
	return UntilSpace("reset", [&] { return log.Reset(command.group, command.position); }) && WriteBatch({append}) &&
	       loop.Push(LoopEvent(LogWasReset {command.group, command.position}));
}

bool LogWriter::Create(const LogCommand &command) {
	storage::GroupAppend append;
	append.group = command.group;
	append.hard_state = command.hard_state;
	return UntilSpace("creation of a group", [&] { return log.CreateGroup(command.group, command.position); }) &&
	       WriteBatch({append}) && loop.Push(LoopEvent(LogWasMade {command.group}));
}

bool LogWriter::Remove(const LogCommand &command) {
	return UntilSpace("removal of a group", [&] { return log.RemoveGroup(command.group); }) && WriteBatch({});
}

void LogWriter::SendMessages(std::vector<LogCommand> &round, size_t begin, size_t end) {
	if (ShouldQuit()) {
		return;
	}
	for (auto i = begin; i < end; i++) {
		for (auto &message : round[i].messages) {
			outbox.Add(std::move(message));
		}
	}
	outbox.Flush();
	auto to_self = outbox.TakeSelf();
	if (!to_self.empty()) {
		loop.Push(LoopEvent(SelfMessages {std::move(to_self)}));
	}
}

bool LogWriter::Fatal(const char *action, const Status &status) {
	latch.Latch(std::string("durable log, ") + action + ": " + status.ToString());
	return false;
}

} // namespace node
} // namespace quack
