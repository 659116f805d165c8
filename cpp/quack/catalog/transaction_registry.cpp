#include "quack/catalog/transaction_registry.hpp"

#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#include "duckdb/transaction/transaction_manager.hpp"
#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace catalog {
namespace {

thread_local bool no_barrier_active = false;

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

void TransactionRegistry::Remove(duckdb::DuckTransaction &transaction) {
	{
		std::lock_guard<std::mutex> guard(lock);
		open_transactions.erase(&transaction);
	}
	changed.notify_all();
}

size_t TransactionRegistry::EvictWriters(duckdb::AttachedDatabase &database, const Status &reason) {
	std::vector<std::pair<duckdb::shared_ptr<duckdb::ClientContext>, duckdb::DuckTransaction *>> victims;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : open_transactions) {
			auto context = entry.second.context.lock();
			if (context && !entry.second.committing && !entry.first->IsReadOnly()) {
				victims.emplace_back(std::move(context), entry.first);
			}
		}
	}
	size_t evicted = 0;
	for (auto &victim : victims) {
		evicted += EvictOne(database, *victim.first, victim.second, reason) ? 1 : 0;
	}
	WaitForCommitting();
	return evicted;
}

bool TransactionRegistry::EvictOne(duckdb::AttachedDatabase &database, duckdb::ClientContext &context,
                                   duckdb::DuckTransaction *victim, const Status &reason) {
	{
		std::lock_guard<std::mutex> guard(lock);
		auto found = open_transactions.find(victim);
		if (found == open_transactions.end() || found->second.committing) {
			return false;
		}
		// From here on its COMMIT returns at once, so that its session's lock becomes free.
		found->second.doomed = reason;
	}
	auto &session = SessionState::Get(context);
	session.Doom(reason);
	context.Interrupt();
	context.RunFunctionInTransaction(
	    [&]() {
		    context.ClearInterrupt();
		    auto &meta = duckdb::MetaTransaction::Get(context);
		    auto current = meta.TryGetTransaction(database);
		    if (!current || current.get() != victim) {
			    return; // the interrupt ended it
		    }
		    database.GetTransactionManager().RollbackTransaction(*current);
		    meta.RemoveTransaction(database);
		    // A fresh, empty one stands in, so that the session's COMMIT comes to us and hears of its doom.
		    NoBarrierScope no_barrier;
		    meta.GetTransaction(database);
	    },
	    false);
	session.DoomDelivered();
	return true;
}

void TransactionRegistry::WaitForCommitting() {
	std::unique_lock<std::mutex> guard(lock);
	changed.wait(guard, [&]() {
		for (auto &entry : open_transactions) {
			if (entry.second.committing) {
				return false;
			}
		}
		return true;
	});
}

} // namespace catalog
} // namespace quack
