#include "quack/sql/contention.hpp"

#include <algorithm>
#include <chrono>

#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/query_node/delete_query_node.hpp"
#include "duckdb/parser/query_node/insert_query_node.hpp"
#include "duckdb/parser/query_node/merge_query_node.hpp"
#include "duckdb/parser/query_node/update_query_node.hpp"
#include "duckdb/parser/statement/delete_statement.hpp"
#include "duckdb/parser/statement/insert_statement.hpp"
#include "duckdb/parser/statement/merge_into_statement.hpp"
#include "duckdb/parser/statement/update_statement.hpp"

namespace quack {
namespace sql {

namespace {

//! A line stays for so long after the last conflict.
constexpr MonotonicNs HOT_FOR = 200 * NS_PER_MS;
//! After so many losses the condition did not name all that is fought for: the whole table gets one line.
constexpr uint32_t LOSSES_BEFORE_TABLE = 8;
constexpr auto POLL_INTERVAL = std::chrono::milliseconds(20);
constexpr MonotonicNs ATTEMPT_LENGTH_FIRST = 5 * NS_PER_MS;
constexpr MonotonicNs YIELD_MAX = 50 * NS_PER_MS;
constexpr size_t LINES_MAX = 10000;
constexpr const char *INSERT_ROWS = "insert";

std::string Lowered(const std::string &text) {
	return duckdb::StringUtil::Lower(text);
}

} // namespace

struct ContentionQueue::Line {
	std::condition_variable changed;
	std::deque<uint64_t> tickets; //! the first one has the turn
	uint64_t next_ticket = 1;
	MonotonicNs hot_until = 0;
	//! The next turn begins not before this: other nodes go first.
	MonotonicNs yield_until = 0;
};

ContentionKey ContentionKey::Of(const duckdb::SQLStatement &statement) {
	ContentionKey key;
	switch (statement.type) {
	case duckdb::StatementType::UPDATE_STATEMENT: {
		auto &node = *statement.Cast<duckdb::UpdateStatement>().node;
		key.table = Lowered(node.table->ToString());
		key.rows = node.set_info && node.set_info->condition ? node.set_info->condition->ToString() : "";
		break;
	}
	case duckdb::StatementType::DELETE_STATEMENT: {
		auto &node = *statement.Cast<duckdb::DeleteStatement>().node;
		key.table = Lowered(node.table->ToString());
		key.rows = node.condition ? node.condition->ToString() : "";
		break;
	}
	case duckdb::StatementType::INSERT_STATEMENT:
		// Inserts meet over a sequence, or over the rows of ON CONFLICT.
		key.table = Lowered(statement.Cast<duckdb::InsertStatement>().node->qualified_name.ToString());
		key.rows = INSERT_ROWS;
		break;
	case duckdb::StatementType::MERGE_INTO_STATEMENT:
		key.table = Lowered(statement.Cast<duckdb::MergeIntoStatement>().node->target->ToString());
		break;
	default:
		break;
	}
	key.changes_rows = !key.table.empty() && key.rows != INSERT_ROWS;
	return key;
}

ContentionQueue::ContentionQueue(std::function<uint64_t()> foreign_conflicts_p)
    : foreign_conflicts(std::move(foreign_conflicts_p)), attempt_length(ATTEMPT_LENGTH_FIRST),
      prng(static_cast<uint64_t>(SystemClock().Now())) {
}

ContentionQueue::~ContentionQueue() = default;

std::string ContentionQueue::TableLine(const ContentionKey &key) const {
	return key.table;
}

std::string ContentionQueue::RowsLine(const ContentionKey &key) const {
	return key.rows.empty() ? key.table : key.table + '\n' + key.rows;
}

bool ContentionQueue::IsHotLocked(const std::string &name, MonotonicNs now) {
	auto found = lines.find(name);
	if (found == lines.end()) {
		return false;
	}
	if (found->second->tickets.empty() && found->second->hot_until < now) {
		lines.erase(found);
		return false;
	}
	return true;
}

void ContentionQueue::HeatLocked(const std::string &name, MonotonicNs now) {
	if (lines.size() >= LINES_MAX) {
		for (auto entry = lines.begin(); entry != lines.end();) {
			bool is_cold = entry->second->tickets.empty() && entry->second->hot_until < now;
			entry = is_cold ? lines.erase(entry) : std::next(entry);
		}
	}
	auto &line = lines[name];
	if (!line) {
		line = std::make_shared<Line>();
	}
	line->hot_until = now + HOT_FOR;
}

ContentionStatus ContentionQueue::GetStatus() const {
	std::lock_guard<std::mutex> guard(lock);
	return status;
}

ContentionQueue::Turn::Turn(ContentionQueue &queue_p, ContentionKey key_p, std::function<bool()> give_up_p)
    : queue(queue_p), key(std::move(key_p)), give_up(std::move(give_up_p)) {
}

ContentionQueue::Turn::~Turn() {
	Leave();
}

void ContentionQueue::Turn::Begin() {
	if (!key.table.empty() && !line) {
		std::string name;
		{
			std::lock_guard<std::mutex> guard(queue.lock);
			auto now = SystemClock().Now();
			for (auto &candidate : {queue.TableLine(key), queue.RowsLine(key)}) {
				if (name.empty() && queue.IsHotLocked(candidate, now)) {
					name = candidate;
				}
			}
		}
		if (!name.empty()) {
			Join(name);
		}
	}
	started = SystemClock().Now();
	foreign_before = queue.foreign_conflicts();
}

void ContentionQueue::Turn::Join(const std::string &name) {
	std::unique_lock<std::mutex> guard(queue.lock);
	queue.HeatLocked(name, SystemClock().Now());
	line = queue.lines[name];
	ticket = line->next_ticket++;
	line->tickets.push_back(ticket);
	queue.status.waiting++;
	while (true) {
		auto now = SystemClock().Now();
		bool is_first = line->tickets.front() == ticket;
		if (is_first && line->yield_until <= now) {
			break;
		}
		auto pause =
		    is_first ? std::chrono::nanoseconds(line->yield_until - now) : std::chrono::nanoseconds(POLL_INTERVAL);
		line->changed.wait_for(guard, std::min<std::chrono::nanoseconds>(pause, POLL_INTERVAL));
		guard.unlock();
		auto stop = give_up();
		guard.lock();
		if (stop) {
			break;
		}
	}
	queue.status.waiting--;
	queue.status.turns++;
}

void ContentionQueue::Turn::Leave() {
	if (!line) {
		return;
	}
	std::lock_guard<std::mutex> guard(queue.lock);
	auto &tickets = line->tickets;
	tickets.erase(std::remove(tickets.begin(), tickets.end(), ticket), tickets.end());
	line->changed.notify_all();
	line.reset();
}

void ContentionQueue::Turn::Lost() {
	losses++;
	{
		std::lock_guard<std::mutex> guard(queue.lock);
		queue.status.conflicts++;
		if (key.table.empty()) {
			return;
		}
		auto now = SystemClock().Now();
		queue.HeatLocked(queue.RowsLine(key), now);
		if (losses >= LOSSES_BEFORE_TABLE) {
			queue.HeatLocked(queue.TableLine(key), now);
		}
	}
	// A turn is kept until the statement is done, but for the way from the line of some rows to that of the table.
	if (losses == LOSSES_BEFORE_TABLE && !key.rows.empty()) {
		Leave();
	}
}

void ContentionQueue::Turn::Done() {
	if (key.table.empty()) {
		return;
	}
	auto now = SystemClock().Now();
	bool others_lost = queue.foreign_conflicts() != foreign_before;
	std::lock_guard<std::mutex> guard(queue.lock);
	auto length = std::min(now - started, YIELD_MAX);
	queue.attempt_length += (length - queue.attempt_length) / 8;
	if (!others_lost || !key.changes_rows) {
		return;
	}
	auto name = queue.RowsLine(key);
	queue.HeatLocked(name, now);
	auto most = static_cast<uint64_t>(2 * queue.attempt_length) + 1;
	queue.lines[name]->yield_until = now + static_cast<MonotonicNs>(queue.prng.Next() % most);
}

} // namespace sql
} // namespace quack
