//! What a node takes on at once, by count and by bytes. What is too much is refused in words before any of it is done,
//! with a hint when to come back; what ends work or tells about the node always finds room.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace sql {

struct AdmissionLimits {
	//! Statements that run or wait in sessions; past it Overloaded.
	uint64_t statements_max = 512;
	//! Further ones for statements of open transactions and for status queries: refusing these frees nothing.
	uint64_t statements_reserve = 512;
	//! Bytes of large requests, of rows on their way in, and of results on their way out. Past it large requests are
	//! refused, senders of rows wait, and statements pause before they produce more.
	uint64_t buffer_bytes_max = 1024ULL * 1024 * 1024;
};

struct AdmissionStatus {
	uint64_t statements = 0;
	uint64_t statements_refused = 0;
	uint64_t buffer_bytes = 0;
	uint64_t requests_refused = 0;
	uint64_t retry_after_ms = 0;
};

//! Thread-safe; outlives everything that counts in it.
class Admission {
public:
	explicit Admission(AdmissionLimits limits);

	//! Overloaded when there are too many. `urgent`: may use the reserve. Each success is answered by one Leave.
	Status Enter(bool urgent);
	//! `duration`: of the statement, waiting included.
	void Leave(MonotonicNs duration);

	//! Room for a request body of `bytes`; false = refused. Each success is answered by one RemoveBytes.
	bool EnterRequest(uint64_t bytes);
	void AddBytes(uint64_t bytes);
	void RemoveBytes(uint64_t bytes);
	//! Whether those that can wait should.
	bool IsOverBytes() const {
		return buffer_bytes.load() >= limits.buffer_bytes_max;
	}

	//! How long a refused client should wait: about the time in which a place becomes free.
	uint64_t RetryAfterMs() const;
	AdmissionStatus GetStatus() const;
	const AdmissionLimits &Limits() const {
		return limits;
	}

private:
	const AdmissionLimits limits;
	std::atomic<uint64_t> statements {0};
	std::atomic<uint64_t> statements_refused {0};
	std::atomic<uint64_t> buffer_bytes {0};
	std::atomic<uint64_t> requests_refused {0};
	std::atomic<MonotonicNs> mean_duration {50 * NS_PER_MS};
};

//! Whether the text may use the reserve although its session is in no transaction: it ends one, or only asks the node
//! about itself.
bool IsUrgentText(const std::string &sql);

} // namespace sql
} // namespace quack
