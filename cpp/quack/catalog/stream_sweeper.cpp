#include "quack/catalog/stream_sweeper.hpp"

#include "quack/catalog/commit_proposals.hpp"
#include "quack/catalog/fragment_sender.hpp"
#include "quack/common/log.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr MonotonicNs LOOK_INTERVAL = 250 * NS_PER_MS;
constexpr MonotonicNs PROPOSE_TIMEOUT = 10 * NS_PER_SECOND;

} // namespace

StreamSweeper::StreamSweeper(ReplicaCore &core_p) : core(core_p), thread(LOOK_INTERVAL, [this] { Look(); }) {
}

void StreamSweeper::Look() {
	for (auto &open : Idle()) {
		if (core.Leads(open.group)) {
			Drop(open);
		}
	}
}

std::vector<OpenStream> StreamSweeper::Idle() {
	std::vector<OpenStream> idle;
	std::map<StreamId, Watch> seen;
	auto now = clock.Now();
	std::lock_guard<std::mutex> guard(core.state_lock);
	for (auto &open : core.state.streams) {
		auto watch = watched[open.first];
		if (watch.last_index != open.second.last_index) {
			watch = {open.second.last_index, now};
		}
		seen[open.first] = watch;
		if (now - watch.since >= core.options.stream_patience) {
			idle.push_back(open.second);
		}
	}
	watched = std::move(seen);
	return idle;
}

void StreamSweeper::Drop(const OpenStream &open) {
	RequestId id;
	auto payload = StreamDropEntry(core, open.stream, id);
	auto outcome = ProposeAndWait(core, {id, open.group}, std::move(payload), clock.Now() + PROPOSE_TIMEOUT,
	                              [this] { return thread.IsStopping(); });
	if (outcome.status.IsOk()) {
		Log(LogLevel::Warn, "catalog", "large_transaction_given_up",
		    {{"request", RequestIdToString(open.request_id)},
		     {"fragments", std::to_string(open.count)},
		     {"bytes", std::to_string(open.bytes)},
		     {"last_index", std::to_string(open.last_index)}});
	}
}

} // namespace catalog
} // namespace quack
