//! Autocommit statements of one node that fight for the same rows take turns, first come first served, so that a hot
//! row makes progress at the speed of commits instead of drowning in repetitions. Statements that meet nobody never
//! wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "duckdb/parser/sql_statement.hpp"
#include "quack/common/clock.hpp"
#include "quack/common/prng.hpp"

namespace quack {
namespace sql {

//! What a statement changes, as far as its text tells. Statements with equal keys surely fight; others may.
struct ContentionKey {
	std::string table; //! empty = changes no table that could be told
	std::string rows;  //! the condition; empty = any row
	//! Changes rows that exist, so that it may be one of other nodes' conflicts; plain inserts hardly ever are.
	bool changes_rows = false;

	static ContentionKey Of(const duckdb::SQLStatement &statement);
};

//! For quack_node_statistics().
struct ContentionStatus {
	uint64_t waiting = 0;   //! statements that wait for their turn now
	uint64_t turns = 0;     //! turns taken so far
	uint64_t conflicts = 0; //! attempts of autocommit statements that lost so far
};

//! Thread-safe; outlives its turns.
class ContentionQueue {
public:
	//! `foreign_conflicts`: how many entries of other nodes lost against an earlier entry so far. While it grows, a
	//! winner lets the others go first for about the length of an attempt: the leader's node would always win.
	explicit ContentionQueue(std::function<uint64_t()> foreign_conflicts);
	~ContentionQueue();

	struct Line;

	//! One statement from its first attempt to its end. One thread.
	class Turn {
	public:
		//! `give_up`: polled every 20 ms while waiting; true ends the wait without the turn.
		Turn(ContentionQueue &queue, ContentionKey key, std::function<bool()> give_up);
		~Turn();
		Turn(const Turn &) = delete;
		Turn &operator=(const Turn &) = delete;

		//! Before each attempt: waits while others fight for the same rows and came before.
		void Begin();
		//! The attempt lost against another transaction; the next Begin joins the line.
		void Lost();
		//! The attempt did not lose.
		void Done();
		bool IsInLine() const {
			return line != nullptr;
		}

	private:
		void Join(const std::string &name);
		void Leave();

		ContentionQueue &queue;
		const ContentionKey key;
		const std::function<bool()> give_up;
		std::shared_ptr<Line> line; //! null = nobody fights as far as is known
		uint64_t ticket = 0;
		uint32_t losses = 0;
		uint64_t foreign_before = 0;
		MonotonicNs started = 0;
	};

	ContentionStatus GetStatus() const;

private:
	std::string TableLine(const ContentionKey &key) const;
	std::string RowsLine(const ContentionKey &key) const;
	//! Whether statements under this name have to line up. Caller holds the lock.
	bool IsHotLocked(const std::string &name, MonotonicNs now);
	void HeatLocked(const std::string &name, MonotonicNs now);

	const std::function<uint64_t()> foreign_conflicts;
	mutable std::mutex lock; //! guards all below; not held while waiting or running
	std::map<std::string, std::shared_ptr<Line>> lines;
	MonotonicNs attempt_length; //! running mean
	Prng prng;
	ContentionStatus status;
};

} // namespace sql
} // namespace quack
