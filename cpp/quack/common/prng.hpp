//! The randomness seam: a small deterministic generator (splitmix64, Steele et al. 2014), seeded by the caller.
#pragma once

#include <cstdint>

namespace quack {

class Prng {
public:
	explicit Prng(uint64_t seed) : state(seed) {
	}
	uint64_t Next() {
		state += 0x9e3779b97f4a7c15ULL;
		uint64_t z = state;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
		return z ^ (z >> 31);
	}
	//! Uniform in [0, bound); bound > 0. The modulo bias is below 2^-32 for the bounds in use.
	uint64_t Below(uint64_t bound) {
		return Next() % bound;
	}
	//! True with probability numerator / denominator.
	bool Chance(uint64_t numerator, uint64_t denominator) {
		return Below(denominator) < numerator;
	}

private:
	uint64_t state;
};

} // namespace quack
