#include "quack/transport/transport_core.hpp"

#include "quack/common/log.hpp"

namespace quack {
namespace transport {

namespace {

constexpr size_t REFUSALS_MAX = 64;
//! A flood of bad connections must not become a flood of log lines; the counter goes on.
constexpr uint32_t LOG_LINES_PER_SECOND_MAX = 20;

} // namespace

void RefusalLog::Add(InboundRefusal refusal) {
	std::lock_guard<std::mutex> guard(lock);
	count++;
	refusals.push_back(std::move(refusal));
	if (refusals.size() > REFUSALS_MAX) {
		refusals.pop_front();
	}
}

std::vector<InboundRefusal> RefusalLog::Get() const {
	std::lock_guard<std::mutex> guard(lock);
	return {refusals.begin(), refusals.end()};
}

uint64_t RefusalLog::Count() const {
	std::lock_guard<std::mutex> guard(lock);
	return count;
}

void TransportCore::Refuse(const std::string &remote, const std::string &claimed, const std::string &reason) {
	auto now = clock.Now();
	if (now - log_second_start > NS_PER_SECOND) {
		log_second_start = now;
		logged_in_second = 0;
	}
	refusals.Add({remote, reason, now});
	if (on_refused) {
		on_refused(claimed, reason);
	}
	if (++logged_in_second > LOG_LINES_PER_SECOND_MAX) {
		return;
	}
	Log(LogLevel::Warn, "transport", "connection_refused",
	    {{"node", config.node_id}, {"remote", remote}, {"claimed", Printable(claimed, 256)}, {"reason", reason}});
}

} // namespace transport
} // namespace quack
