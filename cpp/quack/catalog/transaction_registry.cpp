#include "quack/catalog/transaction_registry.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#include "duckdb/transaction/transaction_manager.hpp"
#include "quack/catalog/private_access.hpp"
#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace catalog {
namespace {

thread_local bool no_barrier_active = false;

//! How long a victim's running statement may go on before it is interrupted.
constexpr auto INTERRUPT_AFTER = std::chrono::milliseconds(10);
//! How long an interrupted query may take to end by itself before it is ended for its client.
constexpr MonotonicNs CANCEL_AFTER = 200 * NS_PER_MS;
//! How many transactions a message names.
constexpr size_t DESCRIBED_MAX = 3;

//! Interrupts a session again and again while it lives: a statement that starts clears the flag.
class Interrupter {
public:
	explicit Interrupter(duckdb::ClientContext &context_p)
	    : context(context_p), session(SessionState::Get(context_p)), thread([this]() { Run(); }) {
	}
	~Interrupter() {
		Stop();
		thread.join();
	}
	//! After this no interrupt comes from here.
	void Stop() {
		std::lock_guard<std::mutex> guard(lock);
		stopped = true;
		changed.notify_all();
	}

private:
	void Run() {
		std::unique_lock<std::mutex> guard(lock);
		while (!changed.wait_for(guard, INTERRUPT_AFTER, [this]() { return stopped; })) {
			session.InterruptForEviction(context);
		}
	}

	duckdb::ClientContext &context;
	SessionState &session;
	std::mutex lock;
	std::condition_variable changed;
	bool stopped = false;
	std::thread thread;
};

//! Ends the query whatever its client does; a result that anyone holds fails.
void EndRunningQuery(duckdb::ClientContext &context) {
	Interrupter interrupter(context);
	context.CancelTransaction();
}

//! Under the session's lock, rolls the victim back and puts an empty transaction in its place, so that the session's
//! COMMIT comes to us and hears of its doom. When a query has begun and not ended, nothing is done: the lock is free
//! between its steps while worker threads use its transaction (COMMIT itself may run on one). It must end first, and is
//! told to.
enum class Replaced : uint8_t { Yes, QueryRuns, QueryEndsTransaction };
Replaced ReplaceTransaction(duckdb::AttachedDatabase &database, duckdb::ClientContext &context,
                            duckdb::DuckTransaction *victim) {
	Interrupter interrupter(context);
	std::lock_guard<duckdb::mutex> session_lock(SessionLockOf(context));
	interrupter.Stop();
	if (HasActiveQuery(context)) {
		auto interrupted = SessionState::Get(context).InterruptForEviction(context);
		return interrupted ? Replaced::QueryRuns : Replaced::QueryEndsTransaction;
	}
	context.ClearInterrupt();
	if (!context.transaction.HasActiveTransaction()) {
		return Replaced::Yes; // it ended with its query
	}
	auto &meta = context.transaction.ActiveTransaction();
	auto current = meta.TryGetTransaction(database);
	if (!current || current.get() != victim) {
		return Replaced::Yes;
	}
	database.GetTransactionManager().RollbackTransaction(*current);
	meta.RemoveTransaction(database);
	NoBarrierScope no_barrier;
	meta.GetTransaction(database);
	return Replaced::Yes;
}

bool InScope(duckdb::DuckTransaction &transaction, const OpenTransaction &open, const EvictionScope &scope) {
	if (scope.opened_before != 0 && open.opened_at >= scope.opened_before) {
		return false;
	}
	if (scope.readers_too) {
		return true;
	}
	if (transaction.IsReadOnly()) {
		return false;
	}
	if (scope.tables.empty() || open.written.empty()) {
		return true;
	}
	for (auto &table : open.written) {
		if (scope.tables.count(table.first) != 0) {
			return true;
		}
	}
	return false;
}

} // namespace

NoBarrierScope::NoBarrierScope() {
	no_barrier_active = true;
}

NoBarrierScope::~NoBarrierScope() {
	no_barrier_active = false;
}

bool NoBarrierScope::Active() {
	return no_barrier_active;
}

void TransactionRegistry::Add(duckdb::DuckTransaction &transaction, OpenTransaction open) {
	std::lock_guard<std::mutex> guard(lock);
	open.number = ++last_number;
	open_transactions[&transaction] = std::move(open);
}

OpenTransaction TransactionRegistry::BeginCommit(duckdb::DuckTransaction &transaction) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	if (found == open_transactions.end()) {
		return OpenTransaction();
	}
	found->second.committing = true;
	return found->second;
}

void TransactionRegistry::BeginEnding(duckdb::DuckTransaction &transaction) {
	std::lock_guard<std::mutex> guard(lock);
	open_transactions.erase(&transaction);
	ending++;
}

void TransactionRegistry::EndingDone() {
	{
		std::lock_guard<std::mutex> guard(lock);
		ending--;
	}
	changed.notify_all();
}

bool TransactionRegistry::IsEmpty() {
	std::lock_guard<std::mutex> guard(lock);
	return open_transactions.empty() && ending == 0;
}

std::shared_ptr<const AppliedVector> TransactionRegistry::SnapshotOf(duckdb::DuckTransaction &transaction) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	return found == open_transactions.end() ? std::make_shared<AppliedVector>() : found->second.snapshot;
}

void TransactionRegistry::NoteRead(duckdb::DuckTransaction &transaction, const ObjectName &table) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	if (found != open_transactions.end() && found->second.is_serializable) {
		found->second.read.emplace(table.Key(), table);
	}
}

void TransactionRegistry::NoteWrite(duckdb::DuckTransaction &transaction, const ObjectName &table) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	if (found != open_transactions.end()) {
		found->second.written.emplace(table.Key(), table);
	}
}

void TransactionRegistry::NotePlacement(duckdb::DuckTransaction &transaction, const ObjectName &table,
                                        PlacementRequest request) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	if (found != open_transactions.end()) {
		found->second.placed[table.Key()] = {table, std::move(request)};
	}
}

bool TransactionRegistry::HasPlacements(duckdb::DuckTransaction &transaction) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	return found != open_transactions.end() && !found->second.placed.empty();
}

std::optional<PlacementRequest> TransactionRegistry::PlacementOf(duckdb::DuckTransaction &transaction,
                                                                 const ObjectName &table) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	if (found == open_transactions.end()) {
		return std::nullopt;
	}
	auto wish = found->second.placed.find(table.Key());
	return wish == found->second.placed.end() ? std::nullopt : std::make_optional(wish->second.second);
}

void TransactionRegistry::NoteForeignKey(duckdb::DuckTransaction &transaction, const ObjectName &table,
                                         const ObjectName &other) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(&transaction);
	if (found != open_transactions.end()) {
		found->second.joined.emplace_back(table, other);
	}
}

void TransactionRegistry::CloseGate() {
	std::lock_guard<std::mutex> guard(lock);
	gate_closed = true;
}

void TransactionRegistry::OpenGate() {
	{
		std::lock_guard<std::mutex> guard(lock);
		gate_closed = false;
	}
	changed.notify_all();
}

void TransactionRegistry::WaitAtGate(duckdb::ClientContext &context) {
	std::unique_lock<std::mutex> guard(lock);
	while (!changed.wait_for(guard, std::chrono::milliseconds(20), [this]() { return !gate_closed; })) {
		context.InterruptCheck();
	}
}

std::vector<TransactionInfo> TransactionRegistry::List() {
	std::vector<TransactionInfo> list;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : open_transactions) {
			auto context = entry.second.context.lock();
			if (!context) {
				continue;
			}
			TransactionInfo info;
			info.connection = context->GetConnectionId();
			info.is_writer = !entry.first->IsReadOnly();
			info.opened_at = entry.second.opened_at;
			info.snapshot_index = entry.second.snapshot_index;
			for (auto &table : entry.second.written) {
				info.written.push_back(table.second.ToString());
			}
			list.push_back(std::move(info));
		}
	}
	std::sort(list.begin(), list.end(),
	          [](const TransactionInfo &a, const TransactionInfo &b) { return a.opened_at < b.opened_at; });
	return list;
}

std::string TransactionRegistry::DescribeOldest(MonotonicNs now) {
	std::multimap<MonotonicNs, std::string> by_age;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : open_transactions) {
			auto context = entry.second.context.lock();
			if (!context) {
				continue;
			}
			auto text = "connection " + std::to_string(context->GetConnectionId()) + " (" +
			            (entry.first->IsReadOnly() ? "reader" : "writer") + ", open for " +
			            std::to_string((now - entry.second.opened_at) / NS_PER_SECOND) + " s";
			for (auto &table : entry.second.written) {
				text += ", writes " + table.second.ToString();
			}
			by_age.emplace(entry.second.opened_at, text + ")");
		}
	}
	std::string text;
	size_t count = 0;
	for (auto &entry : by_age) {
		if (count++ == DESCRIBED_MAX) {
			return text + " and " + std::to_string(by_age.size() - DESCRIBED_MAX) + " more";
		}
		text += (text.empty() ? "" : ", ") + entry.second;
	}
	return text.empty() ? "a transaction that is ending" : text;
}

size_t TransactionRegistry::Evict(duckdb::AttachedDatabase &database, const EvictionScope &scope,
                                  const Status &reason) {
	std::vector<Victim> victims;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : open_transactions) {
			auto context = entry.second.context.lock();
			if (context && !entry.second.committing && InScope(*entry.first, entry.second, scope)) {
				victims.push_back(Victim {std::move(context), entry.first, entry.second.number});
			}
		}
	}
	size_t evicted = 0;
	for (auto &victim : victims) {
		evicted += EvictOne(database, victim, reason) ? 1 : 0;
	}
	WaitForEnding();
	return evicted;
}

bool TransactionRegistry::EvictOne(duckdb::AttachedDatabase &database, const Victim &victim, const Status &reason) {
	auto &context = *victim.context;
	{
		std::lock_guard<std::mutex> guard(lock);
		auto found = open_transactions.find(victim.transaction);
		// Another one at the same address belongs to another session; the victim's session may be in its COMMIT, where
		// it holds its lock and waits for the applier.
		if (found == open_transactions.end() || found->second.number != victim.number || found->second.committing) {
			return false;
		}
		// From here on its COMMIT returns at once, so that its session's lock becomes free.
		found->second.doomed = reason;
	}
	auto &session = SessionState::Get(context);
	session.Doom(reason);
	SystemClock clock;
	auto patience_ends = clock.Now() + CANCEL_AFTER;
	while (IsOpen(victim)) {
		auto replaced = ReplaceTransaction(database, context, victim.transaction);
		if (replaced == Replaced::Yes) {
			break;
		}
		if (replaced == Replaced::QueryRuns && clock.Now() > patience_ends) {
			EndRunningQuery(context);
		} else {
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
	}
	session.DoomDelivered();
	return true;
}

bool TransactionRegistry::IsOpen(const Victim &victim) {
	std::lock_guard<std::mutex> guard(lock);
	auto found = open_transactions.find(victim.transaction);
	return found != open_transactions.end() && found->second.number == victim.number;
}

void TransactionRegistry::WaitForEnding() {
	std::unique_lock<std::mutex> guard(lock);
	changed.wait(guard, [&]() {
		bool is_committing = false;
		for (auto &entry : open_transactions) {
			is_committing = is_committing || entry.second.committing;
		}
		return ending == 0 && !is_committing;
	});
}

} // namespace catalog
} // namespace quack
