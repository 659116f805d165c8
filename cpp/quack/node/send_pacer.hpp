//! Spreads bytes over time, without a clock of its own.
#pragma once

#include <algorithm>

#include "quack/common/clock.hpp"

namespace quack {
namespace node {

//! Whoever sends asks when he may, and says how much he sent. Time that passed unused is not made up for.
class SendPacer {
public:
	//! 0 = no limit.
	explicit SendPacer(uint64_t bytes_per_second_p) : bytes_per_second(bytes_per_second_p) {
	}
	//! Pieces of at most this size keep everybody's wait short.
	uint64_t PieceBytesMax() const {
		return bytes_per_second == 0 ? UINT64_MAX : std::max<uint64_t>(bytes_per_second / PIECES_PER_SECOND, PIECE_MIN);
	}
	//! 0 = at once.
	MonotonicNs Wait(MonotonicNs now) const {
		return bytes_per_second == 0 ? 0 : std::max<MonotonicNs>(next - now, 0);
	}
	void Sent(uint64_t bytes, MonotonicNs now) {
		if (bytes_per_second != 0) {
			auto seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_second);
			next = std::max(next, now) + static_cast<MonotonicNs>(seconds * static_cast<double>(NS_PER_SECOND));
		}
	}

private:
	static constexpr uint64_t PIECES_PER_SECOND = 8;
	static constexpr uint64_t PIECE_MIN = 1;

	const uint64_t bytes_per_second;
	MonotonicNs next = 0;
};

} // namespace node
} // namespace quack
