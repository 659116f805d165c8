//! The one thread that runs a transport's io_context.
#pragma once

#include <memory>
#include <thread>

#include <asio.hpp>

namespace quack {
namespace transport {

class EventLoop {
public:
	explicit EventLoop(std::shared_ptr<asio::io_context> io_p);
	~EventLoop();

	void Start();
	//! Lets the loop end by itself: everything posted before runs, then the thread is joined. All sockets and timers
	//! must be closed by what was posted, else this waits for them.
	void Finish();
	bool IsLoopThread() const;

private:
	const std::shared_ptr<asio::io_context> io;
	asio::executor_work_guard<asio::io_context::executor_type> work;
	std::thread thread;
};

} // namespace transport
} // namespace quack
