#include "quack/common/clock.hpp"

#include <ctime>

namespace quack {

MonotonicNs SystemClock::Now() const {
	timespec now {};
	clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<MonotonicNs>(now.tv_sec) * NS_PER_SECOND + now.tv_nsec;
}

} // namespace quack
