#include "quack/sql/authenticator.hpp"

#include <openssl/rand.h>

#include <algorithm>

#include "quack/common/check.hpp"

namespace quack {
namespace sql {

namespace {

constexpr size_t ADDRESSES_MAX = 4096;

} // namespace

bool EqualsInConstantTime(const std::string &expected, const std::string &given) {
	// The loop runs over what the caller sent, so its time tells nothing about the secret.
	uint32_t difference = static_cast<uint32_t>(expected.size() ^ given.size());
	for (size_t i = 0; i < given.size(); i++) {
		auto other = expected.empty() ? '\0' : expected[i % expected.size()];
		difference |= static_cast<uint32_t>(static_cast<uint8_t>(given[i]) ^ static_cast<uint8_t>(other));
	}
	return difference == 0;
}

std::string RandomHex128() {
	static const char DIGITS[] = "0123456789ABCDEF";
	unsigned char bytes[16];
	QUACK_CHECK(RAND_bytes(bytes, sizeof(bytes)) == 1, "the system gives no random bytes");
	std::string text;
	for (auto byte : bytes) {
		text += DIGITS[byte >> 4];
		text += DIGITS[byte & 0xF];
	}
	return text;
}

Authenticator::Authenticator(AuthenticationConfig config_p) : config(std::move(config_p)) {
}

Authenticator::Bucket &Authenticator::BucketLocked(const std::string &address, MonotonicNs now) {
	auto entry = buckets.find(address);
	if (entry == buckets.end()) {
		if (buckets.size() >= ADDRESSES_MAX) {
			// Full buckets tell nothing; what remains of an attack from so many addresses is bounded by the sessions.
			for (auto it = buckets.begin(); it != buckets.end();) {
				it = now - it->second.updated > 60 * NS_PER_SECOND ? buckets.erase(it) : std::next(it);
			}
		}
		if (buckets.size() >= ADDRESSES_MAX) {
			buckets.erase(buckets.begin());
		}
		Bucket fresh;
		fresh.left = config.failures_burst;
		fresh.updated = now;
		return buckets.emplace(address, fresh).first->second;
	}
	auto &bucket = entry->second;
	auto seconds = static_cast<double>(now - bucket.updated) / static_cast<double>(NS_PER_SECOND);
	bucket.left = std::min<double>(config.failures_burst, bucket.left + seconds * config.failures_per_second);
	bucket.updated = now;
	return bucket;
}

Status Authenticator::Admit(const std::string &address, MonotonicNs now) {
	std::lock_guard<std::mutex> guard(lock);
	if (BucketLocked(address, now).left < 1) {
		return Status(ErrorCode::Overloaded,
		              "Too many failed logins from " + address + "; wait a moment and try again");
	}
	return Status::Ok();
}

void Authenticator::Failed(const std::string &address, MonotonicNs now) {
	std::lock_guard<std::mutex> guard(lock);
	auto &bucket = BucketLocked(address, now);
	bucket.left = std::max(0.0, bucket.left - 1);
}

Status Authenticator::Check(const std::string &token, const std::string &identity, const std::string &address,
                            MonotonicNs now) {
	auto admitted = Admit(address, now);
	if (!admitted.IsOk()) {
		return admitted;
	}
	if (token.empty() && !identity.empty() && config.accept_client_certificates) {
		return Status::Ok();
	}
	if (!config.token.empty() && EqualsInConstantTime(config.token, token)) {
		return Status::Ok();
	}
	Failed(address, now);
	std::string hint = "the token is not the one this node expects";
	if (token.empty()) {
		hint = "no token came; give one with TOKEN '...' or a secret of TYPE quack";
		if (!identity.empty()) {
			hint += ", or let accept_client_certificates be true in the file of every node";
		}
	}
	return Status(ErrorCode::Unauthorized, "Authentication failed: " + hint);
}

} // namespace sql
} // namespace quack
