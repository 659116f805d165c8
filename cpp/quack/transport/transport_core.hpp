//! What all parts of one transport share. Internal to the layer.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include <asio.hpp>

#include "quack/transport/tls_context.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace transport {

//! Paths and headers of the protocol between peers; see DESIGN.md.
constexpr const char *HELLO_PATH = "/quack-peer/hello";
constexpr const char *REFUSE_PATH = "/quack-peer/refuse";
constexpr const char *URGENT_PATH = "/quack-peer/messages/urgent";
constexpr const char *BULK_PATH = "/quack-peer/messages/bulk";
constexpr const char *CALL_PREFIX = "/quack-peer/call/";
constexpr const char *FROM_HEADER = "quack-from";
constexpr const char *TO_HEADER = "quack-to";
constexpr const char *TIMEOUT_HEADER = "quack-timeout-us";
constexpr const char *ERROR_HEADER = "quack-error";
constexpr size_t HELLO_BYTES_MAX = 64 * 1024;
constexpr size_t WORDS_BYTES_MAX = 8 * 1024;

//! Refused inbound connections, newest last. Any thread.
class RefusalLog {
public:
	void Add(InboundRefusal refusal);
	std::vector<InboundRefusal> Get() const;
	uint64_t Count() const;

private:
	mutable std::mutex lock; //! guards both fields
	std::deque<InboundRefusal> refusals;
	uint64_t count = 0;
};

//! Received traffic of one peer, written on the event loop, read anywhere.
struct ReceiveCounters {
	std::atomic<uint64_t> message_count {0};
	std::atomic<uint64_t> call_count {0};
	std::atomic<MonotonicNs> last_receive {0};
	std::atomic<bool> is_inbound_up {false};
};

struct TransportCore {
	TransportCore(const TransportConfig &config_p, TransportHandler &handler_p)
	    : config(config_p), handler(handler_p), io(std::make_shared<asio::io_context>(1)),
	      tls(config.tls, config.node_id) {
	}

	const TransportConfig config;
	TransportHandler &handler;
	const SystemClock clock;
	const std::shared_ptr<asio::io_context> io;
	TlsContextStore tls;
	RefusalLog refusals;

	//! Told of every refusal with the claimed name; set before the loop runs.
	std::function<void(const std::string &claimed, const std::string &reason)> on_refused;

	//! Event loop. Logs (bounded per second) and remembers; `claimed` is the name the other side gave, unproven, may be
	//! empty.
	void Refuse(const std::string &remote, const std::string &claimed, const std::string &reason);

private:
	MonotonicNs log_second_start = 0;
	uint32_t logged_in_second = 0;
};

inline std::chrono::nanoseconds Nanoseconds(MonotonicNs duration) {
	return std::chrono::nanoseconds(duration);
}

} // namespace transport
} // namespace quack
