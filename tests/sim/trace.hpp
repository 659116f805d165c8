//! The fingerprint of a run: every event and every output of a core is mixed into one hash, and printed when asked.
#pragma once

#include <cstdint>
#include <cstdio>

#include "quack/raft/ready.hpp"

namespace quack {
namespace sim {

inline uint64_t Mix(uint64_t hash, uint64_t value) {
	hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 32);
}

//! Content hash of an entry's type and payload.
uint64_t HashEntry(const raft::Entry &entry);

class Trace {
public:
	void Add(uint64_t value) {
		hash = Mix(hash, value);
	}
	void AddMessage(const raft::Message &message);
	void AddReady(const raft::Ready &ready);
	uint64_t Hash() const {
		return hash;
	}

	//! Lines go to `out`; null = silent.
	void PrintTo(FILE *out) {
		file = out;
	}
	bool IsPrinting() const {
		return file != nullptr;
	}
	__attribute__((format(printf, 2, 3))) void Print(const char *format, ...);

private:
	uint64_t hash = 0x517cc1b727220a95ULL;
	FILE *file = nullptr;
};

//! One line for people.
std::string Describe(const raft::Message &message);
std::string Describe(const raft::Membership &membership);
const char *RoleName(raft::Role role);

} // namespace sim
} // namespace quack
