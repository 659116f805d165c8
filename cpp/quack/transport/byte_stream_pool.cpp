#include <system_error>

#include "quack/transport/listener.hpp"

namespace quack {
namespace transport {

bool ByteStreamPool::Run(const std::shared_ptr<SocketByteStream> &stream) {
	JoinFinished();
	std::lock_guard<std::mutex> guard(lock);
	if (is_stopped || running_count >= core.config.byte_streams_max) {
		return false;
	}
	conversations.emplace_back();
	auto entry = std::prev(conversations.end());
	entry->stream = stream;
	try {
		entry->thread = std::thread([this, entry, stream] {
			core.handler.OnByteStream(stream);
			stream->Close();
			std::lock_guard<std::mutex> inner_guard(lock);
			entry->is_over = true;
			entry->stream.reset();
			running_count--;
		});
	} catch (const std::system_error &) { // the only report std::thread has
		conversations.erase(entry);
		return false;
	}
	running_count++;
	return true;
}

void ByteStreamPool::JoinFinished() {
	std::list<Conversation> finished;
	{
		std::lock_guard<std::mutex> guard(lock);
		for (auto entry = conversations.begin(); entry != conversations.end();) {
			auto next = std::next(entry);
			if (entry->is_over) {
				finished.splice(finished.end(), conversations, entry);
			}
			entry = next;
		}
	}
	for (auto &conversation : finished) {
		conversation.thread.join();
	}
}

void ByteStreamPool::Stop() {
	{
		std::lock_guard<std::mutex> guard(lock);
		is_stopped = true;
		for (auto &conversation : conversations) {
			if (conversation.stream) {
				conversation.stream->Close();
			}
		}
	}
	// Nothing is added any more, and a running thread touches only its own entry, so the list may be walked unlocked.
	for (auto &conversation : conversations) {
		conversation.thread.join();
	}
	conversations.clear();
}

size_t ByteStreamPool::Count() const {
	std::lock_guard<std::mutex> guard(lock);
	return running_count;
}

} // namespace transport
} // namespace quack
