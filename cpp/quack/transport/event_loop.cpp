#include "quack/transport/event_loop.hpp"

#include "quack/common/check.hpp"

namespace quack {
namespace transport {

EventLoop::EventLoop(std::shared_ptr<asio::io_context> io_p) : io(std::move(io_p)), work(asio::make_work_guard(*io)) {
}

EventLoop::~EventLoop() {
	QUACK_CHECK(!thread.joinable(), "an event loop is finished before it is destroyed");
}

void EventLoop::Start() {
	thread = std::thread([this] { io->run(); });
}

void EventLoop::Finish() {
	QUACK_CHECK(!IsLoopThread(), "a transport is not stopped from its own event loop");
	work.reset();
	if (thread.joinable()) {
		thread.join();
	}
}

bool EventLoop::IsLoopThread() const {
	return thread.get_id() == std::this_thread::get_id();
}

} // namespace transport
} // namespace quack
