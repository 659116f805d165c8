#include "quack/transport/transport_core.hpp"

#include "quack/common/log.hpp"

namespace quack {
namespace transport {

namespace {

constexpr size_t REFUSALS_MAX = 64;

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
	Log(LogLevel::Warn, "transport", "connection_refused",
	    {{"node", config.node_id}, {"remote", remote}, {"claimed", Printable(claimed, 256)}, {"reason", reason}});
	refusals.Add({remote, reason, clock.Now()});
}

} // namespace transport
} // namespace quack
