//! Who may open a session: the shared token, a client certificate, or DuckDB's own Quack authentication hook.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace sql {

struct AuthenticationConfig {
	//! Empty = no token is accepted (certificates only). Never logged.
	std::string token;
	//! A verified client certificate is enough, without a token.
	bool accept_client_certificates = false;
	uint32_t failures_burst = 50;
	uint32_t failures_per_second = 10;
};

//! Thread-safe.
class Authenticator {
public:
	explicit Authenticator(AuthenticationConfig config);

	//! Ok, Overloaded (too many failures from this address: not even looked at), or Unauthorized. The messages say
	//! nothing about the expected token. `identity` is the name in a verified client certificate or empty.
	Status Check(const std::string &token, const std::string &identity, const std::string &address, MonotonicNs now);
	//! The first half of Check alone, for a caller that verifies by other means; Failed() counts its failures.
	Status Admit(const std::string &address, MonotonicNs now);
	void Failed(const std::string &address, MonotonicNs now);

	const std::string &Token() const {
		return config.token;
	}

private:
	//! A token bucket of failures per remote address.
	struct Bucket {
		double left = 0;
		MonotonicNs updated = 0;
	};

	Bucket &BucketLocked(const std::string &address, MonotonicNs now);

	const AuthenticationConfig config;
	std::mutex lock; //! guards buckets
	std::map<std::string, Bucket> buckets;
};

//! Equal in time that depends only on the length of `given`.
bool EqualsInConstantTime(const std::string &expected, const std::string &given);

//! 128 bits from the operating system as 32 hex digits. Aborts when there is no randomness.
std::string RandomHex128();

} // namespace sql
} // namespace quack
