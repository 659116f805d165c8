//! The one-way switch of a node that must not take part any more.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace quack {
namespace node {

//! Any thread. The first reason wins.
class DegradedLatch {
public:
	bool IsSet() const {
		return is_set.load(std::memory_order_acquire);
	}
	std::string Reason() const {
		std::lock_guard<std::mutex> guard(lock);
		return reason;
	}
	//! Wakes all watchers on the first call; later calls do nothing.
	void Latch(const std::string &reason);
	//! Called by Latch on its caller's thread. Not while other threads use the latch.
	void AddWatcher(std::function<void()> watcher) {
		watchers.push_back(std::move(watcher));
	}

private:
	std::atomic<bool> is_set {false};
	mutable std::mutex lock; //! guards reason; not held while watchers run
	std::string reason;
	std::vector<std::function<void()>> watchers;
};

//! Runs `body`; a panic thrown by the hook below, or any other exception, latches instead of ending the process.
void RunGuarded(DegradedLatch &latch, const char *thread_name, const std::function<void()> &body);

//! For a host whose process must survive a broken invariant: the panic hook then throws, the engine's threads catch it
//! and latch. Call before threads start. Without it a panic aborts.
void InstallThrowingPanicHook();

} // namespace node
} // namespace quack
