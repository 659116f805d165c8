#include "quack/catalog/equality_audit.hpp"
#include "quack/catalog/commit_proposals.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

#include <pthread.h>

#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "quack/common/limits.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

//! A round may cost one 100th of the time until the next one: 1 % of one core.
constexpr int64_t COST_SHARE = 100;
//! The leader waits longer than that: marks do not reach all nodes after the same delay.
constexpr int64_t MARK_SHARE = COST_SHARE + COST_SHARE / 4;
constexpr MonotonicNs PROPOSE_TIMEOUT = 30 * NS_PER_SECOND;
//! How often the thread looks whether this node leads and a mark is due.
constexpr MonotonicNs LOOK_INTERVAL = 100 * NS_PER_MS;
//! Seen in /proc/PID/task/*/comm; tests/bench/equality_bench.py looks for it.
constexpr const char *THREAD_NAME = "quack-equality";
//! Log lines per report; quack_checksums() shows the rest.
constexpr size_t TOLD_MAX = 10;

uint64_t ThreadCpuUs() {
	timespec time {};
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return static_cast<uint64_t>(time.tv_sec) * 1000000 + static_cast<uint64_t>(time.tv_nsec) / 1000;
}

std::string FullName(const ObjectVerdict &verdict) {
	return verdict.schema.empty() ? verdict.object : verdict.schema + "." + verdict.object;
}

} // namespace

EqualityAudit::EqualityAudit(ReplicaCore &core_p) : core(core_p) {
}

EqualityAudit::~EqualityAudit() {
	Stop();
}

void EqualityAudit::Start() {
	std::lock_guard<std::mutex> guard(lock);
	if (!thread.joinable()) {
		is_stopping = false;
		last_mark = clock.Now();
		thread = std::thread([this] { Run(); });
	}
}

void EqualityAudit::Stop() {
	{
		std::lock_guard<std::mutex> guard(lock);
		is_stopping = true;
		if (task && task->connection) {
			task->connection->Interrupt();
		}
	}
	changed.notify_all();
	if (thread.joinable()) {
		thread.join();
	}
	std::lock_guard<std::mutex> guard(lock);
	task.reset();
}

void EqualityAudit::Run() {
	pthread_setname_np(pthread_self(), THREAD_NAME);
	for (;;) {
		bool is_task = false;
		bool is_due = false;
		{
			std::unique_lock<std::mutex> guard(lock);
			changed.wait_for(guard, std::chrono::nanoseconds(LOOK_INTERVAL),
			                 [this] { return is_stopping || task != nullptr; });
			if (is_stopping) {
				return;
			}
			is_task = task != nullptr;
			is_due = core.options.checksum_interval > 0 && clock.Now() >= NextMark();
		}
		if (is_task) {
			Hash();
		} else if (is_due && core.Leads(raft::ROOT_GROUP)) {
			ProposeMark();
		}
	}
}

//! Under the lock.
MonotonicNs EqualityAudit::NextMark() const {
	auto cost = static_cast<MonotonicNs>(rounds.NewestCostUs()) * 1000;
	return last_mark + std::max(core.options.checksum_interval, MARK_SHARE * cost);
}

void EqualityAudit::ProposeMark() {
	{
		// Whatever becomes of it, the next one is not due at once.
		std::lock_guard<std::mutex> guard(lock);
		last_mark = clock.Now();
	}
	Propose(std::string());
}

void EqualityAudit::Propose(const std::string &content) {
	EffectWriter effects;
	effects.AddChecksum(content);
	auto header = core.OwnHeader();
	header.request_id = NewRequestId(header.base_index);
	auto payload = effects.Finish(header);
	if (payload.size() > ENTRY_BYTES_MAX) {
		Log(LogLevel::Error, "catalog", "checksums_too_large", {{"bytes", std::to_string(payload.size())}});
		return;
	}
	auto outcome = ProposeAndWait(core, {header.request_id}, MakeSharedBytes(std::move(payload)),
	                              clock.Now() + PROPOSE_TIMEOUT, [this] {
		                              std::lock_guard<std::mutex> guard(lock);
		                              return is_stopping;
	                              });
	if (!outcome.status.IsOk()) {
		Log(LogLevel::Warn, "catalog", content.empty() ? "checksum_mark_not_placed" : "checksums_not_reported",
		    {{"message", outcome.status.ToString()}});
	}
}

void EqualityAudit::OnMark(raft::LogIndex index) {
	std::lock_guard<std::mutex> guard(lock);
	last_mark = clock.Now();
	if (task || is_stopping || !thread.joinable()) {
		return; // still busy with an earlier one: this node has nothing to say in this round
	}
	auto next = std::make_unique<Task>();
	next->index = index;
	next->started = last_mark;
	if (last_mark < rested_at) {
		// Leaders that know less about the cost here, or that change too often, are not followed.
		next->refusal = "the last round took so much CPU time that this one would exceed 1 %";
		task = std::move(next);
		changed.notify_all();
		return;
	}
	try {
		NoBarrierScope no_barrier; // the apply thread must not wait for itself
		next->database = core.Attached();
		next->connection = std::make_unique<duckdb::Connection>(core.instance);
		if (!next->database) {
			return;
		}
		auto &context = *next->connection->context;
		SessionState::Get(context).SetConsistency(Consistency::Eventual);
		next->connection->BeginTransaction();
		context.RunFunctionInTransaction([&] { duckdb::DuckTransaction::Get(context, *next->database); });
		task = std::move(next);
		changed.notify_all();
	} catch (std::exception &exception) {
		Log(LogLevel::Warn, "catalog", "checksums_not_computed",
		    {{"index", std::to_string(index)}, {"message", duckdb::ErrorData(exception).Message()}});
	}
}

void EqualityAudit::Hash() {
	ChecksumReport report;
	report.member = core.options.member;
	report.node_id = core.options.node_id;
	report.life = core.incarnation;
	report.index = task->index; // only this thread takes the task away, but for Stop, after it has joined
	report.failure = task->refusal;
	if (report.failure.empty()) {
		HashSnapshot(report);
	}
	{
		std::lock_guard<std::mutex> guard(lock);
		rested_at = std::max(rested_at, task->started + COST_SHARE * static_cast<MonotonicNs>(report.cost_us) * 1000);
		task.reset();
		if (is_stopping) {
			return;
		}
	}
	Propose(Encode(report));
}

void EqualityAudit::HashSnapshot(ChecksumReport &report) {
	auto before = ThreadCpuUs();
	auto &session = SessionState::Get(*task->connection->context);
	try {
		report.objects = HashState(*task->connection, *task->database);
		// An evicted transaction is replaced by one that sees more than the mark.
		if (!session.Doomed().IsOk() || session.LostEffects()) {
			report.failure = "an entry or a checkpoint needed what the snapshot held back";
		}
		task->connection->Rollback();
	} catch (std::exception &exception) {
		report.failure = session.Doomed().IsOk() ? duckdb::ErrorData(exception).Message() : session.Doomed().Message();
	}
	if (!report.failure.empty()) {
		report.objects.clear();
	}
	report.cost_us = ThreadCpuUs() - before;
}

void EqualityAudit::OnReport(ChecksumReport report) {
	auto index = report.index;
	auto voters = Voters();
	std::vector<ObjectVerdict> verdicts;
	{
		std::lock_guard<std::mutex> guard(lock);
		verdicts = rounds.Add(std::move(report), voters);
	}
	for (size_t i = 0; i < verdicts.size() && i < TOLD_MAX; i++) {
		auto &verdict = verdicts[i];
		std::string odd;
		for (auto &member : verdict.odd) {
			odd += (odd.empty() ? "" : ", ") + member.node_id;
		}
		Log(LogLevel::Error, "catalog", "replicas_differ",
		    {{"object", verdict.type + " " + FullName(verdict)},
		     {"group", "root"},
		     {"index", std::to_string(index)},
		     {"odd", odd},
		     {"majority", verdict.is_decided ? "yes" : (verdict.is_undecidable ? "no" : "not yet")},
		     {"values", verdict.values}});
	}
	for (auto &verdict : verdicts) {
		for (auto &member : verdict.odd) {
			// What an earlier life of this database reported, or this one before it was replaced by an image, says
			// nothing about what it holds now.
			if (member.member == core.options.member && member.life == core.incarnation && index > installed_index) {
				LatchThisNode(verdict, index);
				return;
			}
		}
	}
}

void EqualityAudit::OnInstalled() {
	installed_index = core.root_applied;
}

void EqualityAudit::LatchThisNode(const ObjectVerdict &verdict, raft::LogIndex index) {
	auto reason = "the state of node '" + core.options.node_id + "' is wrong: " + verdict.type + " \"" +
	              FullName(verdict) + "\" differs from the majority of the voters at index " + std::to_string(index) +
	              " of group root (" + verdict.values + "); run: quack cluster node reseed " + core.options.node_id;
	if (core.options.on_divergence) {
		core.options.on_divergence(reason);
	}
	if (auto *engine = core.engine.load()) {
		engine->LatchDegraded(reason);
	}
}

//! By name, as this node knows them now; empty while it knows of none.
std::vector<std::string> EqualityAudit::Voters() const {
	if (auto *engine = core.engine.load()) {
		for (auto &group : engine->GetStatus()) {
			if (group.group == raft::ROOT_GROUP) {
				return group.voters;
			}
		}
	}
	return {};
}

std::vector<ChecksumRow> EqualityAudit::Rows() const {
	auto voters = Voters();
	std::lock_guard<std::mutex> guard(lock);
	return rounds.Rows(voters);
}

} // namespace catalog
} // namespace quack
