//! A thread that looks after something every so often.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "quack/common/clock.hpp"

namespace quack {
namespace catalog {

class PeriodicThread {
public:
	//! `work` is called on the thread, `interval` after its last call has returned.
	PeriodicThread(MonotonicNs interval, std::function<void()> work);
	~PeriodicThread();
	PeriodicThread(const PeriodicThread &) = delete;
	PeriodicThread &operator=(const PeriodicThread &) = delete;

	//! Nothing happens when it runs already.
	void Start();
	//! Waits for work that is underway. Idempotent.
	void Stop();
	//! Any thread: what takes long should end.
	bool IsStopping() const;

private:
	void Run();

	const MonotonicNs interval;
	const std::function<void()> work;
	mutable std::mutex lock;
	std::condition_variable changed;
	bool is_stopping = false;
	std::thread thread;
};

} // namespace catalog
} // namespace quack
