#include "quack/sql/session_registry.hpp"

#include <chrono>

#include "quack/common/log.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

namespace {

constexpr auto WATCH_INTERVAL = std::chrono::milliseconds(25);
//! How long statements may try to end by themselves once the node's disk is known to hang.
constexpr MonotonicNs STUCK_AFTER = 2 * NS_PER_SECOND;

} // namespace

SessionRegistry::SessionRegistry(const ServerContext &context_p) : context(context_p) {
	watcher = std::thread([this] { WatchLoop(); });
	closer = std::thread([this] { CloseLoop(); });
}

SessionRegistry::~SessionRegistry() {
	Stop("the node stops");
}

std::shared_ptr<Session> SessionRegistry::Create(SessionInfo info) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (stopped) {
			ThrowCoded(Status(ErrorCode::Unavailable, "the node stops; use another node"));
		}
		if (sessions.size() + opening >= context.limits.sessions_max) {
			ThrowOverloaded(Status(ErrorCode::Overloaded,
			                       "the node has " + std::to_string(sessions.size()) +
			                           " sessions, the most it takes; close some or use another node"),
			                context.admission->RetryAfterMs());
		}
		opening++;
	}
	std::shared_ptr<Session> session;
	try {
		session = std::make_shared<Session>(context, std::move(info));
	} catch (...) {
		std::lock_guard<std::mutex> guard(lock);
		opening--;
		throw;
	}
	std::lock_guard<std::mutex> guard(lock);
	opening--;
	sessions.emplace(session->Info().id, session);
	return session;
}

std::shared_ptr<Session> SessionRegistry::Find(const std::string &id) const {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = sessions.find(id);
	return entry == sessions.end() ? nullptr : entry->second;
}

std::shared_ptr<Session> SessionRegistry::Take(const std::string &id) {
	std::lock_guard<std::mutex> guard(lock);
	auto entry = sessions.find(id);
	if (entry == sessions.end()) {
		return nullptr;
	}
	auto session = entry->second;
	sessions.erase(entry);
	return session;
}

bool SessionRegistry::Remove(const std::string &id, const std::string &reason) {
	auto session = Take(id);
	if (!session) {
		return false;
	}
	session->Close(reason);
	return true;
}

std::vector<SessionStatus> SessionRegistry::GetStatus() const {
	std::vector<std::shared_ptr<Session>> all;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto &entry : sessions) {
			all.push_back(entry.second);
		}
	}
	std::vector<SessionStatus> result;
	for (auto &session : all) {
		result.push_back(session->GetStatus());
	}
	return result;
}

size_t SessionRegistry::Count() const {
	std::lock_guard<std::mutex> guard(lock);
	return sessions.size();
}

void SessionRegistry::WatchLoop() {
	std::unique_lock<std::mutex> guard(lock);
	while (!stopped) {
		changed.wait_for(guard, WATCH_INTERVAL);
		std::vector<std::shared_ptr<Session>> all;
		for (auto &entry : sessions) {
			all.push_back(entry.second);
		}
		guard.unlock();
		auto now = SystemClock().Now();
		auto hung = context.engine == nullptr ? std::string() : context.engine->HungDisk();
		hung_since = hung.empty() ? 0 : hung_since == 0 ? now : hung_since;
		auto is_long = hung_since != 0 && now - hung_since > STUCK_AFTER;
		for (auto &session : all) {
			session->EnforceDeadlines(now);
			if (session->LeaseExpired(now)) {
				CloseLater(session, "session_expired",
				           "its lease of " + std::to_string(session->Info().lease_s) + " s");
			} else if (is_long && session->AbandonStuck(now - STUCK_AFTER, hung)) {
				CloseLater(session, "session_stuck", hung);
			}
		}
		all.clear();
		guard.lock();
	}
}

//! Closing may wait for the session's worker.
void SessionRegistry::CloseLater(const std::shared_ptr<Session> &session, const char *what, const std::string &why) {
	if (!Take(session->Info().id)) {
		return;
	}
	Log(LogLevel::Info, "server", what, {{"remote", session->Info().remote_address}, {"why", why}});
	std::lock_guard<std::mutex> guard(lock);
	expired.push_back(session);
	changed.notify_all();
}

void SessionRegistry::CloseLoop() {
	std::unique_lock<std::mutex> guard(lock);
	while (true) {
		changed.wait(guard, [this] { return stopped || !expired.empty(); });
		if (expired.empty()) {
			return;
		}
		auto session = std::move(expired.front());
		expired.pop_front();
		guard.unlock();
		session->Close("Connection heartbeat lease expired");
		session.reset();
		guard.lock();
	}
}

void SessionRegistry::Stop(const std::string &reason) {
	std::map<std::string, std::shared_ptr<Session>> ending;
	{
		std::lock_guard<std::mutex> guard(lock);
		stopped = true;
		ending.swap(sessions);
		changed.notify_all();
	}
	for (auto &entry : ending) {
		entry.second->BeginClose(reason); // what waits for its commit gives up at the same time as the others
	}
	for (auto &entry : ending) {
		entry.second->Close(reason);
	}
	for (auto *thread : {&watcher, &closer}) {
		if (thread->joinable()) {
			thread->join();
		}
	}
}

} // namespace sql
} // namespace quack
