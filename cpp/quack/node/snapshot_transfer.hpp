//! What is known of one snapshot transfer, on either side.
#pragma once

#include <string>
#include <vector>

#include "quack/common/clock.hpp"

namespace quack {
namespace node {

//! One row of quack_snapshot_transfers().
struct SnapshotTransfer {
	std::string peer; //! the other side; empty on the serving side = a backup
	bool is_sending = false;
	uint64_t image = 0; //! as wire::SnapshotOpenAnswer::image; 0 = not known yet
	//! Serving: preparing (the image is being made), sending, waiting (the other side has not asked for a while), done.
	//! Receiving: opening, preparing (the other side makes the image), receiving, installing.
	std::string state;
	uint64_t bytes_done = 0; //! of the image, those of earlier attempts included
	uint64_t bytes_total = 0;
	uint64_t bytes_moved = 0;      //! since the process started, repetitions included
	uint64_t bytes_per_second = 0; //! since the transfer began or was resumed
	int64_t seconds_left = -1;     //! -1 = cannot be told
	uint64_t resumed_count = 0;
};

//! Bytes per second of one attempt at a transfer.
class TransferRate {
public:
	void Begin(MonotonicNs now) {
		begun = now;
		last = now;
		bytes = 0;
	}
	void Add(uint64_t more, MonotonicNs now) {
		bytes += more;
		last = now;
	}
	//! Fills bytes_per_second and seconds_left of a row whose bytes are known.
	void Describe(SnapshotTransfer &row) const {
		auto nanoseconds = static_cast<double>(last - begun);
		if (nanoseconds <= 0 || bytes == 0) {
			return;
		}
		auto rate = static_cast<double>(bytes) * static_cast<double>(NS_PER_SECOND) / nanoseconds;
		row.bytes_per_second = static_cast<uint64_t>(rate);
		row.seconds_left = static_cast<int64_t>(static_cast<double>(row.bytes_total - row.bytes_done) / rate);
	}

private:
	MonotonicNs begun = 0;
	MonotonicNs last = 0;
	uint64_t bytes = 0;
};

} // namespace node
} // namespace quack
