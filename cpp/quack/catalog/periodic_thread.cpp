#include "quack/catalog/periodic_thread.hpp"

#include <chrono>

namespace quack {
namespace catalog {

PeriodicThread::PeriodicThread(MonotonicNs interval_p, std::function<void()> work_p)
    : interval(interval_p), work(std::move(work_p)) {
}

PeriodicThread::~PeriodicThread() {
	Stop();
}

void PeriodicThread::Start() {
	std::lock_guard<std::mutex> guard(lock);
	if (!thread.joinable()) {
		is_stopping = false;
		thread = std::thread([this] { Run(); });
	}
}

void PeriodicThread::Stop() {
	{
		std::lock_guard<std::mutex> guard(lock);
		is_stopping = true;
	}
	changed.notify_all();
	if (thread.joinable()) {
		thread.join();
	}
}

bool PeriodicThread::IsStopping() const {
	std::lock_guard<std::mutex> guard(lock);
	return is_stopping;
}

void PeriodicThread::Run() {
	for (;;) {
		{
			std::unique_lock<std::mutex> guard(lock);
			changed.wait_for(guard, std::chrono::nanoseconds(interval), [this] { return is_stopping; });
			if (is_stopping) {
				return;
			}
		}
		work();
	}
}

} // namespace catalog
} // namespace quack
