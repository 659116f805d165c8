#include "quack/node/degraded_latch.hpp"

#include <exception>
#include <stdexcept>

#include "quack/common/check.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace node {

namespace {

//! The only exception thrown below `catalog`: it carries a broken invariant from where it was seen to RunGuarded.
class PanicError final : public std::runtime_error {
public:
	using std::runtime_error::runtime_error;
};

void ThrowPanic(const char *file, int line, const char *condition, const char *message) {
	throw PanicError(std::string("broken invariant: ") + message + " (" + condition + " at " + file + ":" +
	                 std::to_string(line) + ")");
}

} // namespace

void DegradedLatch::Latch(const std::string &reason_p) {
	{
		std::lock_guard<std::mutex> guard(lock);
		if (is_set.load(std::memory_order_relaxed)) {
			return;
		}
		reason = reason_p;
		is_set.store(true, std::memory_order_release);
	}
	Log(LogLevel::Error, "node", "degraded", {{"reason", reason_p}});
	for (auto &watcher : watchers) {
		watcher();
	}
}

void RunGuarded(DegradedLatch &latch, const char *thread_name, const std::function<void()> &body) {
	try {
		body();
	} catch (const std::exception &error) {
		latch.Latch(std::string(thread_name) + " thread: " + error.what());
	} catch (...) {
		latch.Latch(std::string(thread_name) + " thread: unknown exception");
	}
}

void InstallThrowingPanicHook() {
	SetPanicHook(ThrowPanic);
}

} // namespace node
} // namespace quack
