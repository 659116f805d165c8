//! The clock seam. Only `node` and above read a real clock; `raft` takes time inside its events.
#pragma once

#include <cstdint>

namespace quack {

//! Nanoseconds on a monotonic clock; differences only, the origin means nothing. Never wall time.
using MonotonicNs = int64_t;

constexpr MonotonicNs NS_PER_MS = 1000 * 1000;
constexpr MonotonicNs NS_PER_SECOND = 1000 * NS_PER_MS;

class Clock {
public:
	virtual ~Clock() = default;
	virtual MonotonicNs Now() const = 0;
};

//! CLOCK_MONOTONIC.
class SystemClock final : public Clock {
public:
	MonotonicNs Now() const override;
};

} // namespace quack
