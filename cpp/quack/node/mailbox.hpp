//! A queue from many threads to one. It is the sender's duty to bound what it sends (each user says how).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "quack/common/clock.hpp"

namespace quack {
namespace node {

template <class T>
class Mailbox {
public:
	//! False when closed; the item is then left untouched.
	bool Push(T &&item) {
		bool wake = false;
		{
			std::lock_guard<std::mutex> guard(lock);
			if (closed) {
				return false;
			}
			items.push_back(std::move(item));
			wake = waiting;
			waiting = false;
		}
		if (wake) {
			arrived.notify_one();
		}
		return true;
	}

	//! Wakes the receiver without an item.
	void Wake() {
		{
			std::lock_guard<std::mutex> guard(lock);
			woken = true;
		}
		arrived.notify_one();
	}

	//! Moves all items to `out` (emptied first), waiting up to `timeout` for the first one, a wake or the close.
	void TakeAll(std::vector<T> &out, MonotonicNs timeout) {
		out.clear();
		std::unique_lock<std::mutex> guard(lock);
		if (items.empty() && !woken && !closed && timeout > 0) {
			waiting = true;
			arrived.wait_for(guard, std::chrono::nanoseconds(timeout),
			                 [this] { return !items.empty() || woken || closed; });
			waiting = false;
		}
		woken = false;
		items.swap(out);
	}

	//! Later pushes fail; items already in stay for TakeAll.
	void Close() {
		{
			std::lock_guard<std::mutex> guard(lock);
			closed = true;
		}
		arrived.notify_all();
	}

	bool IsClosed() const {
		std::lock_guard<std::mutex> guard(lock);
		return closed;
	}

private:
	mutable std::mutex lock; //! guards everything below; never held while an item is handled
	std::condition_variable arrived;
	std::vector<T> items;
	bool waiting = false;
	bool woken = false;
	bool closed = false;
};

} // namespace node
} // namespace quack
