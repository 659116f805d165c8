#include "quack/node/disk_watch.hpp"

namespace quack {
namespace node {

std::string DiskWatch::Describe(MonotonicNs now) const {
	auto since = writer.BusySince();
	if (Exceeds(since, now, HangTime())) {
		return "the log disk of node '" + config.node_id + "' has not answered for " +
		       std::to_string((now - since) / NS_PER_MS) + " ms (" + config.log_dir + ")";
	}
	since = state_machine.SyncingSince();
	if (Exceeds(since, now, HangTime())) {
		return "the catalog disk of node '" + config.node_id + "' has not answered for " +
		       std::to_string((now - since) / NS_PER_MS) + " ms (" + state_machine.Place() + ")";
	}
	return "";
}

} // namespace node
} // namespace quack
