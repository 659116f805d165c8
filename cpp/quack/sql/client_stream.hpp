//! Rows that a client sends while its INSERT runs: the buffer between SEND_DATA requests and the table function
//! scan_data_from_quack_client(stream_id, NULL::STRUCT(...), ordered := ...) that reads them.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "duckdb.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/parallel/interrupt.hpp"
#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/sql/admission.hpp"
#include "quack/sql/quack_message.hpp"

namespace quack {
namespace sql {

//! Thread-safe. Batches are named (dense from 1), so a repeated SEND_DATA is harmless.
class ClientStream {
public:
	ClientStream(std::string id, duckdb::vector<duckdb::LogicalType> types, bool ordered, size_t buffer_bytes_max,
	             Admission &admission);
	~ClientStream();

	const std::string &Id() const {
		return id;
	}
	bool IsOrdered() const {
		return ordered;
	}

	//! Takes one SEND_DATA of `bytes` encoded bytes. Blocks while the buffer is full, at most `timeout`. Throws when
	//! the statement failed (with its error), when types do not match, or on the timeout; the statement itself goes on.
	void Push(SendDataRequest request, size_t bytes, MonotonicNs timeout);

	enum class TakeResult { Chunk, Blocked, End };
	//! Next chunk for a scan. Blocked: `interrupt` is called back when there is more; with a null one the call waits.
	//! Throws once Abort was called.
	TakeResult Take(const duckdb::InterruptState *interrupt, duckdb::unique_ptr<duckdb::DataChunk> &out);

	//! The client is gone or cancelled, or the node stops: the scan fails, the statement rolls back.
	void Abort(const Status &reason);
	//! The statement is over. With an error: every later Push throws it.
	void StatementEnded(const ErrorResponse *error);
	bool IsEnded() const;

private:
	struct Batch {
		std::vector<duckdb::unique_ptr<duckdb::DataChunk>> chunks;
		size_t bytes = 0;
	};

	bool HasRoomLocked(uint64_t batch_index, size_t bytes) const;
	bool IsKnownLocked(uint64_t batch_index) const;
	void AcceptLocked(uint64_t batch_index, Batch batch);
	//! Moves batches that are next in order into `ready`.
	void PromoteLocked();
	//! Wakes scans; the callbacks run after `lock` is released.
	void WakeScans(std::unique_lock<std::mutex> &guard);
	void RemoveBytesLocked(size_t bytes);
	void CheckTypes(const SendDataRequest &request) const;

	const std::string id;
	const duckdb::vector<duckdb::LogicalType> types;
	const bool ordered;
	const size_t buffer_bytes_max;
	Admission &admission;

	mutable std::mutex lock;
	std::condition_variable changed;
	//! Arrived before their turn (ordered streams only).
	std::map<uint64_t, Batch> early;
	std::deque<Batch> ready;
	//! Batches 1..received_up_to arrived; `received` holds those above.
	uint64_t received_up_to = 0;
	std::set<uint64_t> received;
	size_t buffered_bytes = 0;
	duckdb::optional_idx total_batches;
	Status aborted; //! Ok = it goes on
	bool ended = false;
	bool failed = false;
	ErrorResponse failure;
	std::vector<duckdb::InterruptState> parked;
};

//! Registers scan_data_from_quack_client.
void RegisterClientStreamFunction(duckdb::ExtensionLoader &loader);

} // namespace sql
} // namespace quack
