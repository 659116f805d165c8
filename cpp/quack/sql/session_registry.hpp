//! All sessions of a node: found by id, bounded in number, ended when their lease runs out.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quack/sql/session.hpp"

namespace quack {
namespace sql {

//! Thread-safe. One thread of its own watches leases and deadlines, one closes sessions whose lease ended (a statement
//! that waits for its commit can take a while to give up).
class SessionRegistry {
public:
	//! `context` outlives the registry.
	explicit SessionRegistry(const ServerContext &context);
	~SessionRegistry();

	//! Throws Overloaded when there are too many, or what opening the connection throws.
	std::shared_ptr<Session> Create(SessionInfo info);
	//! Null when unknown.
	std::shared_ptr<Session> Find(const std::string &id) const;
	//! Rolls back and forgets. False when unknown.
	bool Remove(const std::string &id, const std::string &reason);
	std::vector<SessionStatus> GetStatus() const;
	size_t Count() const;

	//! Ends all sessions; new ones are refused. Idempotent.
	void Stop(const std::string &reason);

private:
	void WatchLoop();
	void CloseLoop();
	void CloseLater(const std::shared_ptr<Session> &session, const char *what, const std::string &why);
	std::shared_ptr<Session> Take(const std::string &id);

	const ServerContext &context;
	mutable std::mutex lock; //! guards the members below; never held while a session opens or closes
	std::condition_variable changed;
	std::map<std::string, std::shared_ptr<Session>> sessions;
	size_t opening = 0;
	std::deque<std::shared_ptr<Session>> expired;
	bool stopped = false;
	MonotonicNs hung_since = 0; //! the watcher's: when it saw that the node's disk hangs; 0 = it answers
	std::thread watcher;
	std::thread closer;
};

} // namespace sql
} // namespace quack
